"""Bounds on what a model writes: proved, enforced, refuted or not proved, and never broken where they are said to hold."""

import random
from dataclasses import replace

import pytest

from tests.compiler.irs import (
    COMMIT,
    ENTROPY,
    MARGIN,
    MAXPROB,
    POSITION,
    STOP,
    at,
    automaton,
    borrow,
    both,
    cmp,
    mix,
    num,
    param,
    plus,
    r2r,
    r_stitch,
    retry,
    share,
    then,
)
from tests.compiler.walk import kept_tokens
from tokenrouter.compiler import ir
from tokenrouter.compiler.claims import decide
from tokenrouter.compiler.expr import ClassOf, Negation, ParamOf, SignalOf, TokenIs, VarOf
from tokenrouter.compiler.passes.enforce import enforce
from tokenrouter.compiler.passes.guarantees import guarantees

UNSURE = cmp(ENTROPY, ">", 2)


def verdict(auto, claim):
    found = decide(auto, claim)
    return found.status, found.evidence


BACK = (None, then("small"))


def limited(*small_rules, large=(BACK,), **more):
    return automaton(("small", *small_rules, (None, COMMIT)), ("large", *large), **more)


@pytest.mark.parametrize(
    ("auto", "bound", "expected"),
    [
        (r2r(), 0.4, "refuted"),
        (r2r(), 1.0, "proved"),
        (r_stitch(), 0.4, "refuted"),
        (limited((UNSURE, borrow("large", 1, keep=True))), 0.5, "proved"),
        (limited((UNSURE, borrow("large", 1, keep=True))), 0.49, "refuted"),
        (limited((UNSURE, borrow("large", 3, keep=True))), 0.75, "proved"),
        (limited((UNSURE, borrow("large", 3, keep=True))), 0.74, "refuted"),
        (limited((UNSURE, then("large"))), 0.5, "proved"),
        (limited((UNSURE, retry("large"))), 0.5, "refuted"),
        (limited((cmp(POSITION, "<", 9), borrow("large", 1))), 0.4, "not proved"),
        (limited((cmp(ENTROPY, ">", 9), borrow("large", 1))), 0.4, "not proved"),
        (limited((UNSURE, mix(small=0.99, large=0.01)), large=((None, COMMIT),)), 0.4, "refuted"),
        (automaton(("small", (None, COMMIT)), ("large", (None, COMMIT))), 0.0, "proved"),
    ],
)
def test_a_share_is_decided_on_the_transition_graph(auto, bound, expected):
    assert verdict(auto, share("guarantee", "large", bound))[0] == expected


@pytest.mark.parametrize(
    ("until", "much", "little"),
    [
        (cmp(MAXPROB, ">", 0.9), "refuted", "refuted"),
        (cmp(MAXPROB, ">=", 0), "proved", "refuted"),  # it ends each stay after one token
        (cmp(MAXPROB, ">", 1), "refuted", "proved"),  # it ends none early
        (cmp(POSITION, ">", 9), "not proved", "not proved"),
    ],
)
def test_a_stay_with_until_refutes_where_a_condition_on_its_steps_may_let_it_last(
    until, much, little
):
    lends = limited((UNSURE, borrow("large", 4, until, keep=True)))
    borrows = automaton(("large", (None, borrow("small", 4, until, keep=True))), ("small",))

    assert verdict(lends, share("guarantee", "large", 0.6))[0] == much
    assert verdict(borrows, share("guarantee", "large", 0.4))[0] == little


def test_what_is_not_proved_is_not_said_to_repeat_but_to_depend_on_the_past():
    late = limited((cmp(POSITION, "<", 9), borrow("large", 1)))
    above = automaton(
        ("large", (cmp(POSITION, ">=", 9), then("small")), (None, COMMIT)),
        ("small", (None, COMMIT)),
    )

    [problem] = guarantees(replace(late, claims=(share("guarantee", "large", 0.4),)))
    assert (
        "is not proved from the rules alone: as far as the rules alone tell, this can repeat for ever: at small"
        in problem.message
    )
    assert problem.message.endswith("; whether it does depends on `position`")
    _, evidence = verdict(above, share("guarantee", "large", 0.4))
    assert evidence.endswith("; whether it does depends on `position`")


def test_a_param_that_is_true_or_false_is_the_same_on_every_step_of_a_request():
    on = ParamOf("on", "bool")
    flag = ir.ParamDecl("on", "bool", False, at(1))
    large = ((Negation(on), COMMIT), BACK)
    auto = limited((on, then("large")), large=large, params=(flag,))
    other = limited((Negation(on), then("large")), large=large, params=(flag,))

    assert verdict(auto, share("guarantee", "large", 0.5))[0] == "not proved"
    assert verdict(other, share("guarantee", "large", 0.5))[0] == "refuted"


MASS2 = SignalOf("mass", (2,))
CHANCE, RANK, LOGPROB = SignalOf("chance"), SignalOf("rank"), SignalOf("logprob")


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        (both(cmp(ENTROPY, ">", 1), cmp(MAXPROB, ">=", MASS2)), "not proved"),  # p is one-hot
        (cmp(MAXPROB, ">=", MASS2), "refuted"),
        (both(cmp(ENTROPY, ">", 1), cmp(MAXPROB, ">", 0.8)), "refuted"),
        (both(cmp(ENTROPY, ">", 2.9), cmp(ENTROPY, "<", 3), cmp(MARGIN, ">", 0.6)), "refuted"),
        (both(cmp(RANK, ">", 3), cmp(LOGPROB, ">", -1.5), cmp(CHANCE, "<", 0.001)), "refuted"),
        (both(cmp(RANK, ">", 3), cmp(LOGPROB, ">", -1.3)), "not proved"),
        (both(TokenIs(("Wait",)), Negation(ClassOf("code"))), "refuted"),
        (both(ClassOf("special"), cmp(SignalOf("varentropy"), ">", 5)), "refuted"),
        (cmp(SignalOf("column", (7,)), ">", 0.99), "refuted"),
        (cmp(SignalOf("epistemic", (8,)), "<", 0.1), "refuted"),
        (cmp(SignalOf("aleatoric", (8,)), ">", 0.1), "not proved"),  # it is not tried
    ],
)
def test_a_rule_refutes_only_where_a_step_that_takes_it_was_found(guard, expected):
    auto = limited((UNSURE, then("large")), large=((guard, COMMIT), BACK))

    assert verdict(auto, share("guarantee", "large", 0.5))[0] == expected


@pytest.mark.parametrize(
    ("measure", "bound", "expected"),
    [
        ("share", 0.3, "enforced"),
        ("share", 0.5, "enforced"),
        ("share", 0.2, "not proved"),
        ("count", 9, "not proved"),
    ],
)
def test_a_guarantee_of_a_bound_that_is_enforced_is_kept_by_it(measure, bound, expected):
    claims = [share("enforce", "large", 0.3), share("guarantee", "large", bound, measure)]
    auto, _ = enforce(limited((UNSURE, borrow("large", 1)), claims=claims))

    assert verdict(auto, claims[1])[0] == expected
    assert (guarantees(auto) == []) == (expected == "enforced")


T = VarOf("t", "count")
TURNS = (ir.VarDecl("t", "count", 0.0, at(4)),)


def test_a_retry_that_is_refused_keeps_its_candidate_in_a_proof():
    auto = automaton(
        ("small", (None, retry("large"))),
        ("large", (None, retry("mid"))),
        ("mid", (cmp(T, "<", 2), retry("large")), (None, then("small"))),
        vars=TURNS,
    )
    once = automaton(
        ("small", (None, retry("large"))), ("large", (None, retry("mid"))), ("mid", (None, COMMIT))
    )

    assert "large" in kept_tokens(auto, random.Random(1), 30)
    assert verdict(auto, share("guarantee", "large", 0, "count"))[0] == "not proved"
    assert verdict(once, share("guarantee", "large", 0, "count"))[0] == "proved"


@pytest.mark.parametrize(
    "claim", [share("enforce", "large", 1, "count"), share("enforce", "large", 0.3)], ids=str
)
def test_a_retry_that_is_refused_is_charged_to_a_bound(claim):
    auto = automaton(
        ("small", (cmp(T, "<", 9), retry("large")), (None, COMMIT)),
        ("large", (UNSURE, retry("small")), (None, then("small"))),
        vars=TURNS,
        claims=[claim],
    )
    made, problems = enforce(auto)
    assert not problems

    for seed in range(20):
        kept = kept_tokens(made, random.Random(seed), 40)
        for n in range(1, len(kept) + 1):
            most = claim.bound if claim.measure == "count" else claim.bound * n
            assert kept[:n].count("large") <= most + 1e-9, kept[:n]


def test_what_is_not_proved_for_another_reason_than_the_past_names_none():
    wide = limited((cmp(ENTROPY, ">", 9), borrow("large", 1)))

    _, evidence = verdict(wide, share("guarantee", "large", 0.4))
    assert evidence.startswith("as far as the rules alone tell, ")
    assert "depends" not in evidence


def test_the_constant_of_a_proof_is_what_a_start_can_cost():
    stay = limited((UNSURE, borrow("large", 3, keep=True)))
    claim = share("guarantee", "large", 0.75)

    assert verdict(stay, claim)[1] == "count(large) <= 0.75 * kept + 0"
    late = automaton(
        ("large", (None, then("small"))),
        ("small", (UNSURE, borrow("large", 3, keep=True)), (None, COMMIT)),
    )
    assert verdict(late, claim)[1] == "count(large) <= 0.75 * kept + 0.25"


def test_a_constant_counts_what_is_kept_before_a_stay_of_another_model():
    auto = automaton(
        ("large", (None, borrow("small", 4, keep=True))),
        ("small",),
    )

    assert verdict(auto, share("guarantee", "large", 0.5))[1] == "count(large) <= 0.5 * kept + 0.5"


def test_a_count_is_proved_where_no_cycle_keeps_a_token_of_the_model():
    auto = automaton(("large", (None, then("small"))), ("small", (UNSURE, STOP), (None, COMMIT)))

    assert verdict(auto, share("guarantee", "large", 1, "count")) == (
        "proved",
        "at most 1 on every way",
    )
    assert verdict(auto, share("guarantee", "large", 0, "count"))[0] == "not proved"
    assert verdict(auto, share("guarantee", "small", 99, "count"))[0] == "refuted"


def test_a_stay_without_a_bound_is_not_proved():
    turns = ir.VarDecl("turns", "count", 1.0, at(1))
    auto = limited((UNSURE, borrow("large", VarOf("turns", "count"), keep=True)), vars=(turns,))

    assert verdict(auto, share("guarantee", "large", 0.9))[0] == "not proved"


def test_a_param_is_bounded_by_its_dial_in_a_proof_and_by_its_value_in_a_refutation():
    decl, n = param("n", 1, 1, 9, unit="count")
    auto = limited((UNSURE, borrow("large", n, keep=True)), params=(decl,))

    assert verdict(auto, share("guarantee", "large", 0.9))[0] == "proved"
    assert verdict(auto, share("guarantee", "large", 0.5))[0] == "not proved"
    assert verdict(auto, share("guarantee", "large", 0.4))[0] == "refuted"


def test_an_unproved_guarantee_is_an_error_that_names_its_rules_and_offers_to_enforce():
    [problem] = guarantees(r2r(claims=[share("guarantee", "large", 0.4)]))

    assert problem.code == "TR3101"
    assert (
        "`share(large) <= 0.4` does not hold: this can repeat for ever: at small" in problem.message
    )
    assert [label.span.line for label in problem.labels] == [10]
    assert problem.fix is not None and not problem.fix.safe
    assert guarantees(r2r(claims=[share("guarantee", "large", 1.0)])) == []


@pytest.mark.parametrize(
    ("model", "more", "why"),
    [
        ("small", {}, "requests start at it"),
        ("large", {"start": mix(small=0.5, large=0.5)[1]}, "requests start at it"),
        ("large", {"fallback": "large"}, "it is the fallback"),
        ("small", {"start": "large", "fallback": "small"}, "it is the fallback"),
        ("large", {}, ""),
        ("small", {"start": "large", "fallback": "large"}, ""),
    ],
)
def test_to_enforce_is_offered_only_where_the_bound_can_be_enforced(model, more, why):
    auto = automaton(
        ("small", (UNSURE, then("large")), (None, COMMIT)),
        ("large", (UNSURE, then("small")), (None, COMMIT)),
        **more,
    )
    claim = share("guarantee", model, 0.1)
    [problem] = guarantees(replace(auto, claims=(claim,)))
    _, refused = enforce(replace(auto, claims=(replace(claim, kind="enforce"),)))

    assert (problem.fix is None) == bool(refused) == bool(why)
    assert why in problem.help


def test_an_enforced_bound_becomes_guards_and_a_fallback(golden):
    auto, found = enforce(r_stitch(claims=[share("enforce", "large", 0.4)]))

    assert found == []
    golden(str(auto))


def test_a_stay_is_charged_whole_when_it_begins(golden):
    auto, _ = enforce(r2r(n=4, claims=[share("enforce", "large", 0.4)]))

    golden(str(auto))


@pytest.mark.parametrize(
    ("auto", "code"),
    [
        (r_stitch(claims=[share("enforce", "small", 0.4)]), "TR3201"),
        (r_stitch(claims=[share("enforce", "large", 0.4)], fallback="large"), "TR3201"),
        (
            r_stitch(claims=[share("enforce", "large", 0.4)], start="large", fallback="small"),
            "TR3202",
        ),
        (r2r(claims=[share("enforce", "small", 0.4)], fallback="large"), "TR3202"),
        (r_stitch(claims=[share("enforce", "large", 0.4)], start="small"), None),
    ],
)
def test_a_bound_that_leaves_requests_nowhere_to_go_is_refused(auto, code):
    assert [d.code for d in enforce(auto)[1]][:1] == ([code] if code else [])


def guard(rng):
    kind = rng.randrange(6)
    sign = rng.choice(["<", "<=", ">", ">="])
    if kind == 0:
        return cmp(POSITION, sign, rng.randrange(6))
    if kind == 1:
        return cmp(SignalOf("since_switch"), sign, rng.randrange(4))
    if kind == 2:
        return cmp(SignalOf("count", (rng.choice("abc"),)), sign, rng.randrange(5))
    if kind == 3:
        return cmp(plus(SignalOf("switches"), POSITION), sign, rng.randrange(8))
    return cmp(SignalOf("chance"), sign, rng.random())


def action(rng, model):
    others = [name for name in "abc" if name != model]
    match rng.randrange(8):
        case 0 | 1:
            return COMMIT
        case 2 | 3:
            return then(rng.choice(others))
        case 4:
            n = rng.choice([1, 2, 4, plus(SignalOf("switches"), num(-1, "count"))])
            return borrow(rng.choice(others), n, keep=rng.random() < 0.5)
        case 5:
            return retry(
                rng.choice(others)
            )  # also round: a model that had its turn is not asked again
        case 6:
            return mix(**dict.fromkeys(rng.sample("abc", 2), 0.5))
        case _:
            return borrow(
                rng.choice(others), rng.randrange(1, 4), cmp(SignalOf("chance"), "<", 0.5)
            )


def random_policy(rng, claims):
    def state(name):
        rules = [(guard(rng), action(rng, name)) for _ in range(rng.randrange(3))]
        last = action(rng, name)
        # A last rule that drops for a stay would be a livelock only if the stay could be empty; it never is here.
        return (name, *rules, (None, last))

    return automaton(*map(state, "abc"), start=rng.choice("abc"), claims=claims)


@pytest.mark.parametrize("seed", range(60))
def test_no_walk_breaks_a_bound_that_is_proved_or_enforced(seed):
    rng = random.Random(seed)
    decided = set()
    for _ in range(20):
        measure = rng.choice(["share", "count"])
        bound = rng.choice([0.3, 0.5, 0.75, 0.9]) if measure == "share" else rng.randrange(1, 6)
        claim = share(rng.choice(["enforce", "guarantee"]), rng.choice("abc"), bound, measure)
        auto = random_policy(rng, [claim])
        auto, problems = enforce(auto)
        found = decide(auto, claim)
        if problems or found.status not in ("proved", "enforced"):
            continue
        decided.add(found.status)
        constant = float(found.evidence.rsplit("+", 1)[1]) if "kept +" in found.evidence else 0.0
        for walk in range(4):
            kept = kept_tokens(auto, random.Random(1000 * seed + walk), 60)
            for n in range(1, len(kept) + 1):
                own = kept[:n].count(claim.model)
                most = bound * n + constant if measure == "share" else bound
                assert own <= most + 1e-9, (str(auto), kept[:n])
    assert decided
