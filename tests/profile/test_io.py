"""A profile that cannot be used is refused in one line that says what, where and how to mend it."""

import json

import jsonschema
import msgspec
import pytest

from tests.compiler.irs import r_stitch
from tests.compiler.plans import plan_of
from tests.profile.profiles import figure, in_turn, profile_of, replace
from tokenrouter.profile import schema
from tokenrouter.profile.io import ProfileError, check_fits, decode, encode, read, verify, write
from tokenrouter.profile.prompts import read_prompts, shipped

PLAN = plan_of(r_stitch())
PROFILE = profile_of(PLAN)


def test_what_is_written_reads_back(tmp_path):
    write(PROFILE, tmp_path / "p.json")

    assert read(tmp_path / "p.json") == PROFILE
    assert list(verify(PROFILE)) == []


def test_what_was_measured_in_turn_reads_back_and_an_older_profile_was_not():
    measured = in_turn(PROFILE)

    assert decode(encode(measured).encode()) == measured
    older = (
        msgspec.json.encode(PROFILE)
        .replace(b',"in_turn":false', b"")
        .replace(b',"after":null', b"")
    )
    assert b"in_turn" not in older and b"after" not in older
    assert decode(older) == PROFILE


def test_steps_of_one_kind_of_machine_are_refused_on_the_other():
    measured = in_turn(PROFILE)
    first = measured.models[0]
    busy = replace(first, steps=[replace(first.steps[0], busy=figure(5.0)), *first.steps[1:]])
    wrong = replace(first, steps=[replace(first.steps[0], after=figure(-1.0)), *first.steps[1:]])

    def told(models, machine=measured.machine):
        [problem] = verify(replace(measured, models=models, machine=machine))
        return problem

    beside = "`small` was measured beside another model, but models step in turn"
    assert told([busy, measured.models[1]]) == beside
    assert told([replace(first, slowed=PROFILE.models[0].slowed), measured.models[1]]) == beside
    assert told([wrong, measured.models[1]]) == "`small` has a time that is none"
    assert (
        told([first, PROFILE.models[1]], PROFILE.machine)
        == "`small` has steps after another model's, but models do not step in turn"
    )


def test_the_published_schema_is_that_of_the_structs_and_takes_a_profile():
    assert schema.FILE.read_text(encoding="utf-8") == schema.text()
    jsonschema.validate(json.loads(encode(PROFILE)), json.loads(schema.text()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: b"{", "not JSON: "),
        (lambda d: b"{}", "not a profile, since it has no `profile_version`"),
        (lambda d: d.replace(b'"profile_version":2', b'"profile_version":9'), "profile version 9; "),
        (lambda d: d.replace(b'"cores":2', b'"cores":"two"'), "not a valid profile: expected `int`, got `str` at `machine.cores`"),
        (lambda d: d.replace(b'"mean":4.0', b'"mean":-4.0', 1), "`small` has a time that is none; run `trc profile` again"),
        (lambda d: d.replace(b'"by":1', b'"by":7', 1), "`small` is slowed by a model that is none"),
        (lambda d: d.replace(b'"by":1,"batch":1,', b'"by":1,"batch":3,', 1), "`small` is slowed at a size of batch at which it was not measured alone"),
        (lambda d: d.replace(b'"requests":10', b'"requests":0'), "`ways` counts no request"),
        (lambda d: d.replace(b'"to":1', b'"to":5', 1), "`ways.moves` has an entry that is none"),
        (lambda d: d.replace(b'"first":[]', b'"first":[{"model":7,"rule":0,"keep":false,"to":1,"n":1}]'), "`ways.first` has an entry that is none"),
        (lambda d: d.replace(b'"first":[]', b'"first":[{"model":0,"rule":0,"keep":true,"to":1,"n":1}]'), "`ways.first` counts a way that `ways.moves` does not: model 0 to 1"),
    ],
)  # fmt: skip
def test_a_broken_profile_is_told(change, message):
    data = change(msgspec.json.encode(PROFILE))

    with pytest.raises(ProfileError) as caught:
        decode(data, "p.json")

    assert str(caught.value).startswith("p.json: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"program_hash": "0" * 64}, "measured program 0000000000000000, but this policy"),
        (
            {"models": PROFILE.models[:1]},
            "measured the models small, but the policy has small, large",
        ),
        (
            {"models": [replace(PROFILE.models[0], fingerprint="x"), PROFILE.models[1]]},
            "measured another model as `small`",
        ),
    ],
)
def test_a_profile_of_something_else_is_told(change, message):
    with pytest.raises(ProfileError, match=r"^p\.json: ") as caught:
        check_fits(replace(PROFILE, **change), PLAN, "p.json")

    assert message in str(caught.value)
    assert str(caught.value).endswith("run `trc profile` again")


def test_a_profile_that_is_not_there_is_told_with_what_makes_it(tmp_path):
    with pytest.raises(ProfileError, match="no such file; `trc profile PLAN -o"):
        read(tmp_path / "p.json")


def test_the_shipped_prompts_are_several_and_differ():
    assert len(set(shipped())) == len(shipped()) >= 16


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no prompt"),
        ('{"prompt": "a"}\nb\n', "line 2: not a prompt"),
        ('{"text": "a"}\n', "line 1: not a prompt"),
    ],
)
def test_a_file_of_prompts_that_holds_none_is_told(tmp_path, text, message):
    path = tmp_path / "p.jsonl"
    path.write_text(text)

    with pytest.raises(ProfileError, match=message):
        read_prompts(path)


def test_a_file_of_prompts_is_read_line_by_line(tmp_path):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "one"}\n\n{"prompt": "zwei\\nü"}\n', encoding="utf-8")

    assert read_prompts(path) == ["one", "zwei\nü"]
