"""What a case of a `test` block supposes must be able to hold of one step."""

import pytest

from tokenrouter.compiler.analyse import complete
from tokenrouter.dsl.load import examine

POLICY = """\
route 1
model small {{ use "org/small" }}
model large {{ use "org/large" }}
param tau: nats = 2 in [0, 6]
policy p {{
  start small
  at small {{
    when entropy > tau -> retry large
    otherwise -> commit
  }}
  at large {{ otherwise -> commit then small }}
}}
test "supposed" for p {{
  at small given {given} -> commit
}}
"""


def found(given):
    text = POLICY.format(given=given)
    return complete(examine(text)).diagnostics, text


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("maxprob = 2", "`maxprob` is at most 1"),
        ("entropy = -1", "`entropy` is at least 0"),
        ("rank = 0.5", "`rank` is at least 1"),
        ("rank = 2.5", "`rank` is a whole number"),
        ("position = 1.5", "`position` is a whole number"),
        ("share(large) = 120%", "`share(large)` is at most 1"),
        ("chance = 1", "`chance` is below 1"),
        ("tau = 7", "`tau` is at most 6"),
        ("max(maxprob, 8) = 2", "`max(maxprob, 8)` is at most 1"),
    ],
)
def test_a_value_that_a_signal_never_has_is_refused(given, why):
    [told], text = found(f"entropy_norm = 0.2, {given}")

    assert (told.code, told.severity) == ("TR2701", "error")
    assert told.message == f"the test supposes what cannot be: {why}"
    assert text[told.span.start : told.span.end] == given


@pytest.mark.parametrize(
    ("earlier", "later", "why"),
    [
        ("maxprob = 0.2", "margin = 0.9", "`margin` is at most `maxprob`"),
        ("position = 3", "count(large) = 10", "`count(large)` is at most `position`"),
        ("max(entropy, 8) = 1", "entropy = 2", "`max(entropy, 8)` is at least `entropy`"),
        ("mass(2) = 0.4", "mass(3) = 0.2", "`mass(2)` is at most `mass(3)`"),
        (
            "share(large) = 70%",
            "share(small) = 50%",
            "shares sum to 1 at most",
        ),
    ],
)
def test_two_values_that_a_law_keeps_apart_are_refused_by_the_law(earlier, later, why):
    [told], text = found(f"{earlier}, entropy_norm = 0.2, {later}")

    assert told.message == f"the test supposes what cannot be: {why}"
    assert text[told.span.start : told.span.end] == later
    assert [text[label.span.start : label.span.end] for label in told.labels] == [earlier]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("entropy = 12, maxprob = 0.99", "`maxprob` above 0.9801 keeps `entropy` below 0.429 nats"),
        ("position = 10, count(large) = 9, share(large) = 45%", "`share(large)` is `count(large)` / `position`"),
        ("position = 1000, count(large) = 360, share(large) = 35%", "`share(large)` is `count(large)` / `position`"),
        ("position = 10, count(large) = 9, count(small) = 4", "counts sum to `position` at most"),
        ("position = 10, count(large) = 7, count(small) = 4", "counts sum to `position` at most"),
        ("position = 10, count(large) = 5, count(small) = 4", "the counts of all models sum to `position`"),
        ("position = 10, count(large) = 0, share(small) = 80%, share(large) = 20%", "`share(large)` is at most `count(large)`"),
    ],
)  # fmt: skip
def test_values_that_only_together_cannot_be_are_refused(given, why):
    [told], _ = found(given)

    assert told.code == "TR2701"
    assert told.message == f"the test supposes what cannot be: {why}"


def test_a_case_of_the_start_supposes_no_more_than_can_be_either():
    text = POLICY.format(given="entropy_norm = 0.2").replace(
        "at small given entropy_norm = 0.2 -> commit", "start given prompt_tokens = -1 -> small"
    )
    [told] = complete(examine(text)).diagnostics

    assert told.message == "the test supposes what cannot be: `prompt_tokens` is at least 0"


@pytest.mark.parametrize(
    "given",
    [
        "entropy = 2, maxprob = 0.5, margin = 0.3",
        "entropy = 0.69, maxprob = 0.5",  # ln 2, rounded
        "position = 10, count(large) = 4, share(large) = 45%",
        "position = 3, count(large) = 3, count(small) = 0, share(large) = 100%",
        "position = 10, count(large) = 4, count(small) = 6",
        "position = 10, count(large) = 4",
        "position = 1000, count(large) = 352, share(large) = 35%",
        "share(large) = 33.5%, share(small) = 66.7%",
        "rank = 1, logprob = -0.7, maxprob = 0.5, entropy = 1",
        "tau = 6, entropy = 6, mean(entropy, 4) = 2.5",
        "chance = 0",
        "margin = 1, maxprob = 1, entropy = 0",
    ],
)
def test_values_that_can_be_are_supposed_even_where_they_are_rounded(given):
    assert found(given)[0] == ()


ODD = """\
route 1
model small {{ use "org/small" }}
signal odd = entropy > 5 or margin > 0.5
policy p {{ start small at small {{ when odd -> stop otherwise -> commit }} }}
test "supposed" for p {{ at small given {given} -> commit }}
"""


@pytest.mark.parametrize(
    ("given", "codes"),
    [
        ("odd = true, entropy = 1, margin = 0.6", []),
        ("odd = true, entropy = 6, margin = 0.1", []),
        ("odd = true, entropy = 1", []),
        ("odd = true, entropy = 1, margin = 0.4", ["TR2701"]),
        ("odd = false, entropy = 6", ["TR2701"]),
        ("odd = false, margin = 0.4", []),
    ],
)
def test_a_derived_signal_is_supposed_to_hold_in_one_of_its_ways_or_in_none(given, codes):
    assert [d.code for d in complete(examine(ODD.format(given=given))).diagnostics] == codes
