"""Which rules fired, found from kept tokens alone, against walks that know."""

import random
from collections import Counter

import pytest

from tests.compiler.irs import COMMIT, automaton, borrow, cmp, mix, r2r, r_stitch, retry, then
from tests.compiler.plans import plan_of
from tests.compiler.walk import Walk
from tokenrouter.compiler.expr import SignalOf
from tokenrouter.plan.fired import fired

DRAW = SignalOf("chance")
POLICIES = {
    "retries": r_stitch(),
    "borrows of one": r2r(),
    "borrows of three": r2r(3),
    "a borrow that keeps": automaton(
        ("a", (cmp(DRAW, "<", 0.3), borrow("b", 2, keep=True)), (None, COMMIT)), ("b",)
    ),
    "retries of retries": automaton(
        ("a", (cmp(DRAW, "<", 0.4), retry("b")), (None, COMMIT)),
        ("b", (cmp(DRAW, "<", 0.4), retry("c")), (None, then("a"))),
        ("c", (None, then("a"))),
    ),
    "retries through four models": automaton(
        ("a", (cmp(DRAW, "<", 0.5), retry("b")), (None, COMMIT)),
        ("b", (cmp(DRAW, "<", 0.5), retry("c")), (None, then("a"))),
        ("c", (cmp(DRAW, "<", 0.5), retry("d")), (None, then("a"))),
        ("d", (None, then("a"))),
    ),
    "a retry that borrows": automaton(
        ("a", (cmp(DRAW, "<", 0.4), retry("b")), (None, COMMIT)),
        ("b", (cmp(DRAW, "<", 0.4), borrow("c", 2)), (None, then("a"))),
        ("c",),
    ),
    "mixtures": automaton(
        ("a", (None, mix(a=0.5, b=0.5))),
        ("b", (None, mix(a=0.5, b=0.5))),
        start=mix(a=0.5, b=0.5)[1],
    ),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_rule_that_fired_is_found(policy):
    auto = POLICIES[policy]
    walks = [Walk(auto, random.Random(seed)) for seed in range(20)]
    for walk in walks:
        # To the end of a stay, and past a drop: what no kept token shows cannot be found.
        while len(walk.written) < 60 or walk.home is not None or walk.tried:
            walk.step()

    found = fired(plan_of(auto), [walk.trace for walk in walks])

    assert found.rules == Counter(pair for walk in walks for pair in walk.asked)
    assert not found.unsure
    assert found.borrowed.total() == sum(rule is None for walk in walks for _, rule in walk.trace)


def test_a_drop_that_two_rules_could_have_made_is_unsure():
    auto = automaton(
        ("a", (cmp(DRAW, "<", 0.2), retry("b")), (cmp(DRAW, ">", 0.8), retry("b")), (None, COMMIT)),
        ("b", (None, then("a"))),
    )

    found = fired(plan_of(auto), [[(0, 2), (1, 0), (0, 2), (1, 0)]])

    assert found.rules == Counter({(0, 2): 2, (1, 0): 2})
    assert found.unsure == Counter({(0, (0, 1)): 2})
    assert (found.decisions(0), found.decisions(1)) == (4, 2)


def test_a_stay_until_ends_where_its_home_writes_again():
    auto = automaton(
        ("a", (cmp(DRAW, "<", 0.2), borrow("b", 9, until=cmp(SignalOf("entropy"), "<", 1))), (None, COMMIT)),
        ("b",),
    )  # fmt: skip

    found = fired(plan_of(auto), [[(0, 1), (1, None), (1, None), (0, 1), (1, None)]])

    assert found.rules == Counter({(0, 1): 2, (0, 0): 2})
    assert found.borrowed == Counter({1: 3})
