"""Specifications: what is refused, in which words, and that nothing else can go wrong with them."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenrouter.throughput.spec import Spec, SpecError, decode, read

GOOD = {
    "n": 4,
    "step_ms": [6.0, 27.9],
    "p": [[0.65, 0.35], [1, 0]],
    "c": [[1, 0], [1, 0]],
    "delta_ms": 0.1,
    "windows": [1, 3],
    "solver": "auto",
    "objective": "throughput",
    "entry": [1, 0],
    "mean_output_tokens": None,
}


def encoded(**changes):
    return json.dumps(GOOD | changes).encode()


def test_the_specification_of_the_manual_is_read():
    assert decode(encoded()).windows == [1, 3]
    assert decode(encoded(objective={"speed_at_least": 20})).objective.speed_at_least == 20
    assert decode(encoded(objective="latency", windows=None)).windows is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": 0}, "`n` is 0; at least 1 request must be active"),
        ({"n": 5000}, "`n` is 5000; the solvers take at most 1024 requests"),
        ({"p": [[0.65, 0.3], [1, 0]]}, "row 0 of `p` sums to 0.95; it must sum to 1"),
        ({"p": [[1.5, -0.5], [1, 0]]}, "row 0 of `p` holds -0.5; no entry may be negative"),
        ({"p": [[1]]}, "`p` has 1 rows, but there are 2 models"),
        ({"p": [[0.65, 0.35], [1]]}, "row 1 of `p` has 1 entries, but there are 2 models"),
        ({"c": [[1, 0], [-1, 0]]}, "row 1 of `c` holds -1; no entry may be negative"),
        ({"step_ms": []}, "`step_ms` is empty; give one entry for each model"),
        ({"step_ms": [6.0, -1]}, "`step_ms[1]` is -1; it must be above 0"),
        (
            {"step_ms": [6.0, [20.0, 21.0]]},
            "`step_ms[1]` has 2 entries; a batch can hold up to 4, so give one for each size",
        ),
        (
            {"step_ms": [0.01, 27.9]},
            "`step_ms[0]` is 0.01 ms, which rounds to no quantum of `delta_ms` = 0.1; make `delta_ms` smaller",
        ),
        (
            {"delta_ms": 1e-9},
            "`step_ms[0]` is 6 ms, 6e+09 quanta; make `delta_ms` larger",
        ),
        (
            {"step_ms": [1e308, 6.0], "delta_ms": 1e-310},
            "`step_ms[0]` is 1e+308 ms, more quanta than are counted; make `delta_ms` larger",
        ),
        (
            {"delta_ms": 1e-310},
            "`step_ms[0]` is 6 ms, more quanta than are counted; make `delta_ms` larger",
        ),
        ({"delta_ms": 0}, "`delta_ms` is 0; it must be above 0"),
        (
            {"after_ms": [6.0, 30.0]},
            "`after_ms` is of models that step in turn; set `in_turn`, or leave it out",
        ),
        (
            {"in_turn": True, "after_ms": [6.0]},
            "`after_ms` has 1 entries, but there are 2 models",
        ),
        (
            {"in_turn": True, "after_ms": [6.0, [30.0]]},
            "`after_ms[1]` has 1 entries; a batch can hold up to 4, so give one for each size",
        ),
        (
            {"in_turn": True, "after_ms": [6.0, 0.0]},
            "`after_ms[1]` is 0; it must be above 0",
        ),
        (
            {"in_turn": True, "busy": [{"models": [0, 1], "rates": [0.5, 0.5]}]},
            "`busy` gives rates of models that are busy at once, and with `in_turn` none ever are; leave it out",
        ),
        (
            {"windows": [2, 4]},
            "`windows` [2, 4] can stop for ever with 4 active: B - 1 over the models sums to 4, and must stay below 4",
        ),
        ({"windows": [1]}, "`windows` has 1 entries, but there are 2 models"),
        ({"windows": [0, 1]}, "`windows[0]` is 0; a window is at least 1"),
        (
            {"p": [[1, 0], [1, 0]]},
            "model 1 cannot be reached from the entry; give a way there in `p`, or leave it out",
        ),
        (
            {"p": [[1, 0], [0, 1]], "entry": [0.5, 0.5]},
            "requests end up for ever in the models {0} or {1}, so there is no one steady state; "
            "give `mean_output_tokens`, after which requests end and others start",
        ),
        (
            {"c": [[0, 0], [0, 0]]},
            "no step commits a token in the long run; give a positive entry in `c` on a way that is taken for ever",
        ),
        ({"entry": [0.5, 0.4]}, "`entry` sums to 0.9; it must sum to 1"),
        ({"entry": [1]}, "`entry` has 1 entries, but there are 2 models"),
        (
            {"mean_output_tokens": 0.5},
            "`mean_output_tokens` is 0.5; it cannot be less than the 1 tokens of one step",
        ),
        (
            {"objective": {"speed_at_least": 0}},
            "`objective.speed_at_least` is 0; it must be above 0",
        ),
        ({"model_of": [0, 0]}, "model 1 has no station in `model_of`"),
        ({"model_of": [0, 2]}, "`model_of[1]` is 2; models go from 0 to 1"),
        (
            {"busy": [{"models": [0, 1], "rates": [1]}]},
            "`busy[0]` has 2 models and 1 rates; give one rate for each model",
        ),
        (
            {"busy": [{"models": [0, 0], "rates": [1, 1]}]},
            "`busy[0].models` must name each busy model once",
        ),
        (
            {"busy": [{"models": [3], "rates": [1]}]},
            "`busy[0].models` holds 3; models go from 0 to 1",
        ),
        ({"busy": [{"models": [0], "rates": [0]}]}, "`busy[0].rates` is 0; it must be above 0"),
        (
            {
                "busy": [
                    {"models": [0, 1], "rates": [1, 1]},
                    {"models": [1, 0], "rates": [0.5, 0.5]},
                ]
            },
            "`busy[0]` and `busy[1]` give rates of the same models; give each busy set once",
        ),
        ({"p": [[0.65, 0.350002], [1, 0]]}, "row 0 of `p` sums to 1.000002; it must sum to 1"),
        ({"n": "four"}, "`n`: expected `int`, got `str`"),
        ({"colour": 1}, "object contains unknown field `colour`"),
        ({"solver": "guess"}, "`solver`: invalid enum value 'guess'"),
    ],
    ids=lambda value: None if isinstance(value, str) else json.dumps(value),
)
def test_what_is_wrong_is_told_in_one_line(changes, message):
    with pytest.raises(SpecError) as caught:
        decode(encoded(**changes), "spec.json")

    assert str(caught.value) == f"spec.json: {message}"


def test_text_that_is_no_json_is_told():
    with pytest.raises(SpecError, match=r"^spec: not JSON: "):
        decode(b'{"n": 4,')


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(SpecError, match=r"none\.json: no such file$"):
        read(tmp_path / "none.json")


def test_query_level_policies_have_a_steady_state_once_requests_end():
    spec = decode(
        encoded(p=[[1, 0], [0, 1]], c=[[1, 0], [0, 1]], entry=[0.5, 0.5], mean_output_tokens=10)
    )

    assert spec.mean_output_tokens == 10


numbers = st.one_of(
    st.integers(-2, 6),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)
anything = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=3)),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(
    changes=st.dictionaries(
        st.sampled_from(sorted(Spec.__struct_fields__)),
        st.one_of(anything, numbers, st.lists(st.lists(numbers, max_size=2), max_size=2)),
        max_size=3,
    )
)
def test_whatever_is_given_is_taken_or_refused_in_one_line(changes):
    refused = ""
    try:
        spec = decode(json.dumps(GOOD | changes).encode())
    except SpecError as error:
        refused = str(error)
    else:
        assert decode(msgspec.json.encode(spec)) == spec

    assert "\n" not in refused
    assert not refused or refused.startswith("spec: ")
