"""Plans on disk: what is written reads back, and whatever is wrong is one clear line."""

import json
import stat

import jsonschema
import pytest

from tokenrouter.plan import schema
from tokenrouter.plan.hash import seal
from tokenrouter.plan.io import PlanError, decode, encode, read, write
from tokenrouter.plan.verify import verify


def damaged(plan, change):
    record = json.loads(encode(plan))
    change(record)
    return json.dumps(record).encode()


def test_what_is_written_reads_back_equal(plan, tmp_path):
    write(seal(plan), tmp_path / "plan.json")

    assert read(tmp_path / "plan.json") == seal(plan)
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_the_text_of_a_plan_can_be_reviewed(plan, golden):
    golden(encode(seal(plan)))


def test_a_written_plan_is_as_readable_for_others_as_any_file(plan, tmp_path):
    write(plan, tmp_path / "plan.json")
    (tmp_path / "other").touch()

    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plan.json", "other")]

    assert modes[0] == modes[1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r: r.update(plan_version=9, min_reader=9, producer="tokenrouter 7.0", new=1),
            "p: plan version 9, written by tokenrouter 7.0, needs a reader of version 9 or later, and tokenrouter",
        ),
        (lambda r: r.update(plan_version=0, min_reader=0), "p: plan version 0 is too old for"),
        (lambda r: r.update(nwe=1), "p: not a valid plan: object contains unknown field `nwe`"),
        (
            lambda r: r["models"][0].update(layers="two"),
            "p: not a valid plan: expected `int`, got `str` at `models[0].layers`",
        ),
        (
            lambda r: r["programs"][0]["nodes"][0].update(op="signl"),
            "invalid value 'signl' at `programs[0].nodes[0].op`",
        ),
        (
            lambda r: r["memory"].pop("page_size"),
            "p: not a valid plan: object missing required field `page_size` at `memory`",
        ),
        (lambda r: r.pop("plan_version"), "p: not a plan: object missing required field"),
        (
            lambda r: r["windows"].update(max_wait_ms=-1),
            "p: the plan does not hold together: `windows.max_wait_ms` is not a positive time",
        ),
    ],
)
def test_a_damaged_plan_is_refused_in_one_line(plan, change, message):
    with pytest.raises(PlanError) as caught:
        decode(damaged(plan, change), "p")

    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"route 1\n", b"\xff\xfe", b"[]", b"null", b'{"plan_version": 1e400}']
)
def test_what_is_no_plan_is_refused_in_one_line(data):
    with pytest.raises(PlanError) as caught:
        decode(data, "p")

    assert str(caught.value).startswith("p: not ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["route 1\n", "\ufeff# mine\n\nroute 1\n", "from tokenrouter.lang import model\n"]
)
def test_a_policy_is_told_from_a_plan(text):
    with pytest.raises(PlanError) as caught:
        decode(text.encode(), "p.route")

    assert str(caught.value) == (
        "p.route: not a plan but a policy; `trc compile p.route -o plan.json` makes a plan of it"
    )


def test_a_missing_file_and_a_directory_are_told_apart(tmp_path):
    with pytest.raises(PlanError, match="no such plan; `trc compile` writes one"):
        read(tmp_path / "plan.json")
    with pytest.raises(PlanError, match="is a directory, not a plan"):
        read(tmp_path)


def test_a_plan_that_cannot_be_written_leaves_nothing_behind(plan, tmp_path):
    (tmp_path / "plan.json").mkdir()
    (tmp_path / "plan.json" / "full").touch()

    with pytest.raises(PlanError, match="cannot be written"):
        write(plan, tmp_path / "plan.json")
    with pytest.raises(PlanError, match="cannot be written"):
        write(plan, tmp_path / "missing" / "plan.json")

    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]


def test_the_shipped_schema_is_made_from_the_structs():
    assert schema.FILE.read_text(encoding="utf-8") == schema.text()


def test_the_schema_accepts_a_plan_and_refuses_what_the_reader_refuses(plan):
    validator = jsonschema.Draft202012Validator(schema.schema())
    record = json.loads(encode(plan))

    assert list(validator.iter_errors(record)) == []
    assert list(validator.iter_errors(record | {"nwe": 1})) != []
    assert verify(plan) == []
