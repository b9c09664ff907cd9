"""What is expected of a policy, from assumed probabilities: worked by hand on small cases."""

import random
from dataclasses import replace

import pytest

from tests.compiler.irs import (
    COMMIT,
    ENTROPY,
    MAXPROB,
    POSITION,
    STOP,
    automaton,
    borrow,
    both,
    cmp,
    mix,
    num,
    param,
    plus,
    r2r,
    retry,
    share,
    then,
)
from tests.compiler.walk import Walk, kept_tokens
from tokenrouter.compiler.assume import holds, rule_shares
from tokenrouter.compiler.chain import flow
from tokenrouter.compiler.expr import Arithmetic, Every, Negation, SignalOf, Some, VarOf
from tokenrouter.compiler.passes.enforce import enforce
from tokenrouter.profile.priors import MEAN_TOKENS

RARELY = cmp(SignalOf("chance"), "<", 0.2)


def test_one_model_writes_everything():
    found = flow(automaton(("small", (None, COMMIT))))

    assert found.shares == pytest.approx([1.0])
    assert found.handoffs == pytest.approx([0.0])
    assert found.reached == pytest.approx([1.0])


def test_a_borrow_that_drops_gives_the_lender_its_share_of_decisions():
    found = flow(automaton(("small", (RARELY, borrow("large", 1)), (None, COMMIT)), ("large",)))

    assert found.shares == pytest.approx([0.8, 0.2])
    assert found.handoffs == pytest.approx([0.2, 0.2])
    assert found.reached == pytest.approx([1.0, 0.985], abs=0.001)


def test_a_longer_stay_weighs_more():
    found = flow(automaton(("small", (RARELY, borrow("large", 4)), (None, COMMIT)), ("large",)))

    assert found.shares == pytest.approx([0.5, 0.5])
    assert found.handoffs == pytest.approx([0.125, 0.125])


def test_a_ping_pong_settles_at_its_stationary_shares():
    back = cmp(SignalOf("chance"), "<", 0.5)
    found = flow(
        automaton(
            ("small", (RARELY, retry("large")), (None, COMMIT)),
            ("large", (back, then("small")), (None, COMMIT)),
        )
    )
    # Of ten decisions at small two go to large, where they keep two tokens each on average: 8 and 4.
    assert found.shares == pytest.approx([2 / 3, 1 / 3], abs=0.005)


def test_a_mixture_has_the_shares_of_its_weights():
    weights = {"a": 0.5, "b": 0.3, "c": 0.2}
    found = flow(
        automaton(*((name, (None, mix(**weights))) for name in "abc"), start=mix(**weights)[1])
    )

    assert found.shares == pytest.approx([0.5, 0.3, 0.2])
    assert found.handoffs == pytest.approx([0.25, 0.21, 0.16], abs=0.003)


LIVES = 1 - 1 / MEAN_TOKENS  # the probability that a kept token is not the last
DIAL, N = param("n", 16, 0, 256, unit="count")


@pytest.mark.parametrize(
    "last",
    [
        cmp(plus(POSITION, num(1)), ">=", N),
        cmp(POSITION, ">=", Arithmetic("-", N, num(1))),
        cmp(N, "<", plus(POSITION, num(2))),
        cmp(Arithmetic("*", num(2), POSITION), ">", 29),
        both(cmp(POSITION, "<", 4000), cmp(POSITION, ">=", 15)),
        cmp(Arithmetic("*", POSITION, POSITION), ">=", 256 - 31),
    ],
    ids=str,
)
def test_a_model_that_a_request_leaves_for_good_has_the_head_of_the_output(last):
    found = flow(
        automaton(
            ("large", (last, then("small")), (None, COMMIT)),
            ("small", (None, COMMIT)),
            params=[DIAL],
        )
    )
    slack = 0.05 if "position * position" in str(last) else 1e-4  # looked at where it doubles

    assert found.shares[0] == pytest.approx(1 - LIVES**16, abs=slack)
    assert found.reached == pytest.approx([1.0, LIVES**16], abs=slack)


def test_a_position_is_a_place_in_the_answer_and_no_draw_on_each_step():
    auto = automaton(
        ("small", (cmp(POSITION, "<", 16), COMMIT), (None, then("large"))),
        ("large", (cmp(POSITION, "==", 40), then("small")), (None, COMMIT)),
    )
    # All of the first 17 tokens, and one at position 41.
    assert flow(auto).shares[0] == pytest.approx(1 - LIVES**17 + LIVES**41 / 256, abs=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_what_the_chain_expects_at_each_position_is_what_random_route_programs_do(seed):
    rng = random.Random(seed)
    names = ("a", "b", "c")

    def rules(here):
        others = [name for name in names if name != here]
        for _ in range(rng.randint(1, 3)):
            place = cmp(POSITION, rng.choice(["<", ">=", "=="]), rng.choice([3, 20, 60, 200]))
            draw = cmp(SignalOf("chance"), "<", rng.choice([0.1, 0.5]))
            move = rng.choice([then(rng.choice(others)), borrow(rng.choice(others), 5), COMMIT])
            yield (rng.choice([place, draw, both(place, draw)]), move)
        yield (None, COMMIT)

    auto = automaton(*((name, *rules(name)) for name in names))
    tokens, came = [], []
    for n in range(500):
        walk = Walk(auto, random.Random(1000 * seed + n))
        length = walk.rng.expovariate(1 / MEAN_TOKENS)
        while len(walk.written) < length and walk.step():
            pass
        tokens += walk.written
        came.append({*walk.written, *(model for model, _ in walk.asked)})

    seen = [tokens.count(model) / len(tokens) for model in range(3)]
    reached = [sum(model in who for who in came) / len(came) for model in range(3)]
    assert flow(auto).shares == pytest.approx(seen, abs=0.03), str(auto)
    assert flow(auto).reached == pytest.approx(reached, abs=0.06), str(auto)


def test_a_rule_that_fires_once_for_every_request_reaches_its_model_for_certain():
    first = (cmp(POSITION, "==", 0), borrow("large", 50, keep=True))
    found = flow(automaton(("small", first, (None, COMMIT)), ("large",)))

    assert found.reached == pytest.approx([1.0, LIVES])


@pytest.mark.parametrize(
    ("until", "most", "length"),
    [
        (cmp(SignalOf("chance"), "<", 0.5), 100, 2.0),
        (cmp(SignalOf("chance"), "<", 0.25), 2, 1.75),
        (cmp(MAXPROB, ">", 0.9), 100, 4 / 3),
        (cmp(SignalOf("chance"), "<", 0), 12, 12.0),
        (cmp(MAXPROB, ">", 1), 12, 12.0),
        (cmp(MAXPROB, ">=", 0), 12, 1.0),
        (None, N, 16.0),
        (None, plus(N, num(4)), 20.0),
        (None, VarOf("t", "count"), 8.0),
    ],
    ids=str,
)
def test_a_stay_lasts_until_its_condition_holds_on_one_of_its_steps(until, most, length):
    found = flow(
        automaton(
            ("small", (RARELY, borrow("large", most, until)), (None, COMMIT)),
            ("large",),
            params=[DIAL],
        )
    )

    assert found.shares[1] == pytest.approx(0.2 * length / (0.2 * length + 0.8))


def test_a_stay_of_no_token_at_the_value_of_its_dial_is_passed_over():
    none, k = param("k", 0, 0, 5, unit="count")
    states = ("small", (RARELY, borrow("large", k)), (RARELY, then("large")), (None, COMMIT))
    found = flow(automaton(states, ("large", (None, then("small"))), params=[none]))
    last = flow(automaton(("small", (None, borrow("large", k))), ("large",), params=[none]))

    assert found.shares == pytest.approx([1 / 1.2, 0.2 / 1.2], abs=1e-3)
    assert last.shares == pytest.approx([1.0, 0.0])


def test_a_model_behind_a_rare_rule_is_reached_less_often():
    never = cmp(SignalOf("chance"), "<", 0.001)
    found = flow(
        automaton(("small", (never, then("large")), (None, COMMIT)), ("large", (None, COMMIT)))
    )

    assert found.reached == pytest.approx([1.0, 0.2], abs=0.03)


@pytest.mark.parametrize("seed", range(3))
def test_expected_shares_are_those_of_walks_where_the_probabilities_are_known(seed):
    half = cmp(SignalOf("chance"), "<", 0.5)
    auto = automaton(
        ("a", (RARELY, borrow("b", 3, keep=True)), (half, then("c")), (None, COMMIT)),
        ("b",),
        ("c", (half, retry("a")), (None, COMMIT)),
    )

    kept = [
        name
        for walk in range(40)
        for name in kept_tokens(auto, random.Random(100 * seed + walk), 256)
    ]

    assert [kept.count(name) / len(kept) for name in "abc"] == pytest.approx(
        flow(auto).shares, abs=0.03
    )


def test_what_is_assumed_of_entropy_is_one_unsure_step_in_four():
    assert flow(r2r()).shares == pytest.approx([0.75, 0.25])


def test_chance_is_one_draw_a_step_however_many_rules_ask_for_it():
    draw = SignalOf("chance")
    auto = automaton(
        (
            "a",
            (cmp(draw, "<", 0.2), STOP),
            (cmp(draw, ">", 0.9), STOP),
            (cmp(draw, "<", 0.5), STOP),
            (None, COMMIT),
        )
    )

    assert rule_shares(auto, auto.states[0].rules) == pytest.approx([0.2, 0.1, 0.3, 0.4])


DRAW = SignalOf("chance")
SELDOM, OFTEN = cmp(DRAW, "<", 0.25), cmp(DRAW, ">", 0.3)


@pytest.mark.parametrize(
    ("guards", "expected"),
    [
        ([Every((cmp(DRAW, "<", 0.5), cmp(DRAW, ">", 0.2)))], [0.3, 0.7]),
        ([Some((OFTEN, cmp(DRAW, "<", 0.1)))], [0.8, 0.2]),
        ([Every((cmp(DRAW, "<", 0.2), OFTEN))], [0.0, 1.0]),
        ([Negation(SELDOM), cmp(DRAW, "<", 0.05)], [0.75, 0.05, 0.2]),
        ([Every((SELDOM, cmp(ENTROPY, ">", 2))), SELDOM], [0.0625, 0.1875, 0.75]),
        ([cmp(Arithmetic("*", num(2), DRAW), ">", 1.5), cmp(0.5, ">", DRAW)], [0.25, 0.5, 0.25]),
        ([cmp(DRAW, "<", 1), SELDOM], [1.0, 0.0, 0.0]),
        ([cmp(DRAW, ">", 1)], [0.0, 1.0]),
    ],
)
def test_what_one_condition_or_several_ask_of_a_draw_is_asked_of_the_same_draw(guards, expected):
    auto = automaton(("a", *((guard, STOP) for guard in guards), (None, COMMIT)))

    assert rule_shares(auto, auto.states[0].rules) == pytest.approx(expected)
    assert holds(auto, guards[0]) == pytest.approx(expected[0])


def test_shares_of_very_many_draws_sum_to_1():
    rules = [(cmp(DRAW, "<", n / 300), STOP) for n in range(1, 200)]
    shares = rule_shares((auto := automaton(("a", *rules, (None, COMMIT)))), auto.states[0].rules)

    assert sum(shares) == pytest.approx(1.0)
    assert shares[-1] == pytest.approx(1 / 3 + 1 / 300, abs=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_what_the_chain_expects_is_what_random_route_programs_do(seed):
    """Policies whose guards are draws, drawn themselves: shares, hand-offs and reach against simulated requests.

    Every kind of move; retries go one way round only, as the livelock check demands.
    """
    rng = random.Random(seed)
    names = ("a", "b", "c")

    def move(here, others):
        later = [name for name in others if name > here]
        kinds = ["then", "borrow", "commit", "mix", *(["retry"] if later else [])]
        match rng.choice(kinds):
            case "then":
                return then(rng.choice(others))
            case "borrow":
                return borrow(rng.choice(others), rng.randint(1, 4), keep=rng.random() < 0.5)
            case "mix":
                return mix(a=0.5, b=0.2, c=0.3)
            case "retry":
                return retry(rng.choice(later))
            case _:
                return COMMIT

    def rules(here):
        others = [name for name in names if name != here]
        yield (cmp(SignalOf("chance"), "<", 0.01), STOP)
        for cut in sorted(rng.sample((0.1, 0.25, 0.4, 0.6, 0.8), rng.randint(1, 3))):
            yield (cmp(SignalOf("chance"), "<", cut), move(here, others))
        yield (None, COMMIT)

    auto = automaton(*((name, *rules(name)) for name in names))
    walks = [Walk(auto, random.Random(1000 * seed + n)) for n in range(300)]
    for walk in walks:
        length = walk.rng.expovariate(1 / MEAN_TOKENS)
        while len(walk.written) < length and walk.step():
            pass
    tokens = [token for walk in walks for token in walk.written]
    shares = [tokens.count(model) / len(tokens) for model in range(3)]
    switches = sum(walk.switches for walk in walks) / len(tokens)
    seen = [{walk.owner, *walk.written, *(model for model, _ in walk.asked)} for walk in walks]
    reached = [sum(model in came for came in seen) / len(walks) for model in range(3)]

    found = flow(auto)

    assert found.shares == pytest.approx(shares, abs=0.03)
    assert sum(found.handoffs) == pytest.approx(switches, abs=0.02)
    assert found.reached == pytest.approx(reached, abs=0.08)


@pytest.mark.parametrize("bound", [0.1, 0.4, 0.9])
def test_the_expected_share_of_a_bounded_model_is_its_bound_where_it_would_be_more(bound):
    auto, found = enforce(
        automaton(
            ("small", (None, then("large"))),
            ("large", (None, COMMIT)),
            claims=[share("enforce", "large", bound)],
        )
    )

    assert found == []
    assert flow(auto).shares == pytest.approx([1 - bound, bound], abs=1e-5)
    assert flow(auto).shares[1] <= bound + 1e-9


def test_a_bound_on_a_count_limits_the_tokens_that_a_request_is_expected_to_have_of_a_model():
    auto, _ = enforce(
        automaton(
            ("small", (None, then("large"))),
            ("large", (None, COMMIT)),
            claims=[share("enforce", "large", 5, "count")],
        )
    )

    assert flow(auto).shares[1] == pytest.approx(5 / MEAN_TOKENS, abs=1e-3)


def test_a_count_is_bounded_by_what_a_request_writes_before_it_stops():
    auto, _ = enforce(
        automaton(
            ("small", (cmp(SignalOf("chance"), "<", 0.1), STOP), (None, borrow("large", 1))),
            ("large",),
            claims=[share("enforce", "large", 5, "count")],
        )
    )
    # A request ends after some ten decisions, of which the bound lets five be large's.
    assert flow(auto).shares[1] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize(("measure", "bound"), [("share", 0.6), ("count", 200)])
def test_a_bound_that_is_not_reached_changes_no_estimate(measure, bound):
    free = automaton(("small", (RARELY, borrow("large", 1)), (None, COMMIT)), ("large",))
    claimed = replace(free, claims=(share("enforce", "large", bound, measure),))
    auto, _ = enforce(claimed)

    assert auto is not claimed
    assert flow(auto).shares == pytest.approx(flow(free).shares)


def test_what_one_bound_refuses_breaks_no_other_that_it_goes_to():
    auto, _ = enforce(
        automaton(
            (
                "small",
                (cmp(SignalOf("chance"), "<", 0.5), borrow("large", 4)),
                (cmp(SignalOf("chance"), "<", 0.9), borrow("huge", 8, keep=True)),
                (None, COMMIT),
            ),
            ("large",),
            ("huge",),
            claims=[share("enforce", "large", 0.2), share("enforce", "huge", 0.3)],
        )
    )

    _, large, huge = flow(auto).shares

    assert large == pytest.approx(0.2, abs=1e-3)
    assert huge == pytest.approx(0.3, abs=1e-3)
    assert max(large - 0.2, huge - 0.3) <= 1e-9


@pytest.mark.parametrize("seed", range(12))
def test_no_expected_share_is_above_an_enforced_one_in_random_policies(seed):
    rng = random.Random(seed)
    names = ("a", "b", "c")

    def rules(here):
        others = [name for name in names if name != here]
        for _ in range(rng.randint(0, 3)):
            guard = cmp(SignalOf(rng.choice(["chance", "entropy"])), "<", rng.random())
            other = rng.choice(others)
            yield guard, rng.choice([then(other), borrow(other, rng.randint(1, 9)), COMMIT])
        yield None, rng.choice([COMMIT, then(rng.choice(others)), mix(a=0.2, b=0.5, c=0.3)])

    bounds = {"b": rng.choice([0.05, 0.3, 0.7]), "c": rng.choice([0.1, 0.5])}
    auto, found = enforce(
        automaton(
            *((name, *rules(name)) for name in names),
            claims=[share("enforce", name, bound) for name, bound in bounds.items()],
        )
    )

    assert found == []
    shares = dict(zip(names, flow(auto).shares, strict=True))
    assert all(shares[name] <= bound + 1e-9 for name, bound in bounds.items())
