"""Rules that never fire, rules that always do, and thresholds that make them so: each found, and its neighbour left alone."""

from dataclasses import replace
from math import log

import pytest

from tests.compiler.irs import (
    COMMIT,
    ENTROPY,
    MARGIN,
    MAXPROB,
    POSITION,
    at,
    automaton,
    borrow,
    both,
    cmp,
    either,
    num,
    param,
    plus,
    retry,
    then,
)
from tokenrouter.compiler import ir, pipeline
from tokenrouter.compiler.expr import (
    Aggregate,
    Arithmetic,
    ClassOf,
    Negation,
    SignalOf,
    TokenIs,
    VarOf,
)
from tokenrouter.compiler.laws import least_entropy, most_entropy
from tokenrouter.compiler.passes.coverage import coverage


def found(*guards, params=(), vocabulary=1000):
    rules = [(guard, retry("large")) for guard in guards]
    auto = automaton(
        ("small", *rules, (None, COMMIT)),
        ("large", (None, then("small"))),
        params=params,
        vocabulary=vocabulary,
    )
    return [(d.code, d.message) for d in coverage(auto)]


def codes(*guards, **more):
    return [code for code, _ in found(*guards, **more)]


def mass(k):
    return SignalOf("mass", (k,))


def count(model):
    return SignalOf("count", (model,))


def times(x, y):
    return Arithmetic("*", *(num(z) if isinstance(z, (int, float)) else z for z in (x, y)))


def over(x, k):
    return Arithmetic("/", x, num(k))


def minus(c, x):
    return Arithmetic("-", num(c), x)


DRAW, OWN = SignalOf("chance"), SignalOf("share", ("large",))  # two numbers that no law ties

LOGPROB, RANK = SignalOf("logprob"), SignalOf("rank")
SMALLS = SignalOf("share", ("small",))

NEVER = [
    (both(ClassOf("word"), ClassOf("number")), "a token has one class"),
    (both(TokenIs(("12",)), ClassOf("word")), '"12" is of class number'),
    (both(ClassOf("word"), TokenIs(("12", "7")), cmp(ENTROPY, ">", 1)), "is of class number"),
    (both(TokenIs(("12", "so")), ClassOf("word"), Negation(TokenIs(("so",)))), ""),
    (cmp(mass(1), ">", MAXPROB), "`mass(1)` is `maxprob`"),
    (both(cmp(SignalOf("entropy_norm"), ">", 0.081), cmp(MAXPROB, ">", 0.99)), "`maxprob` above 0.99 keeps `entropy_norm` below"),
    (both(cmp(RANK, "==", 1), cmp(LOGPROB, "<", -3), cmp(MAXPROB, ">", 0.5)), "`logprob` at `rank` 1 is that of `maxprob`"),
    (both(cmp(RANK, ">=", 1), cmp(LOGPROB, ">", -0.5), cmp(LOGPROB, "<", -0.2), cmp(MAXPROB, ">", 0.9)), "`logprob` at `rank` 1 is that of `maxprob`"),
    (both(cmp(RANK, ">", 1), cmp(LOGPROB, ">", -0.5)), "`rank`"),
    (both(cmp(RANK, ">", 7), cmp(LOGPROB, ">", -2)), "`rank` of 8 or more keeps `logprob` below -2.08"),
    (both(cmp(RANK, ">", 1), cmp(LOGPROB, ">", -1.2), cmp(MAXPROB, ">", 0.9)), "`maxprob`"),
    (both(cmp(OWN, ">", 0.7), cmp(SMALLS, ">", 0.6)), "shares sum to 1 at most"),
    (both(cmp(count("large"), ">", 6), cmp(count("small"), ">=", 4), cmp(POSITION, "<=", 10)), "counts sum to `position` at most"),
    (both(cmp(count("large"), "<", 6), cmp(count("small"), "<=", 4), cmp(POSITION, ">=", 10)), "the counts of all models sum to `position`"),
    (both(cmp(OWN, ">", 0.5), cmp(POSITION, ">=", 10), cmp(count("large"), "<", 5)), "`share(large)` is `count(large)` / `position`"),
    (both(cmp(OWN, "<", 0.5), cmp(POSITION, "<=", 10), cmp(count("large"), ">", 5)), "`share(large)` is `count(large)` / `position`"),
    (both(cmp(OWN, ">", 0), cmp(count("large"), "==", 0)), "`share(large)` is at most `count(large)`"),
    (both(cmp(OWN, "==", 0), cmp(count("large"), ">", 0)), "where `share(large)` is 0 so is `count(large)`"),
    (both(cmp(OWN, "==", 1), cmp(count("small"), ">=", 1)), "where `share(large)` is 1 `count(small)` is 0"),
    (cmp(DRAW, ">=", 1), "`chance` is below 1"),
    (both(cmp(MAXPROB, ">", 0.9), cmp(ENTROPY, ">", 3)), "`maxprob` above 0.9 keeps `entropy` below"),
    (both(cmp(MAXPROB, "<", 0.3), cmp(ENTROPY, "<", 1)), "`maxprob` below 0.3 keeps `entropy` above"),
    (cmp(MARGIN, ">", MAXPROB), "`margin` is at most `maxprob`"),
    (both(cmp(MAXPROB, ">", 0.8), cmp(MARGIN, "<", 0.5)), "`maxprob` above 0.8 keeps `margin` above 0.6"),
    (cmp(mass(3), "<", mass(2)), "`mass(2)` is at most `mass(3)`"),
    (cmp(mass(2), "<", MAXPROB), "`maxprob` is at most `mass(2)`"),
    (both(cmp(mass(3), ">", 0.9), cmp(MAXPROB, "<", 0.29)), "`mass(3)` is at most 3 times `maxprob`"),
    (cmp(SignalOf("share", ("large",)), ">", 1), "`share(large)` lies in [0, 1]"),
    (cmp(ENTROPY, ">", 7), "`entropy` lies in [0, 6.908]"),
    (cmp(ENTROPY, "<", 0), "`entropy` lies in"),
    (both(cmp(ENTROPY, ">", 2), cmp(ENTROPY, "<=", 2)), "its parts exclude each other"),
    (both(cmp(POSITION, ">", 3), cmp(POSITION, "<", 4)), "its parts exclude each other"),
    (both(cmp(DRAW, "<=", 0.5), cmp(DRAW, "<", OWN), cmp(OWN, "<=", 0.5), cmp(DRAW, ">=", 0.5)), "its parts exclude each other"),
    (cmp(count("large"), ">", POSITION), "`count(large)` is at most `position`"),
    (cmp(Aggregate("mean", MAXPROB, 4), ">", 1), "`mean(maxprob, 4)` lies in [0.001, 1]"),
    (cmp(Aggregate("max", ENTROPY, 4), "<", ENTROPY), "`max(entropy, 4)` is at least `entropy`"),
    (both(TokenIs(("a",)), TokenIs(("b", "c"))), "exclude each other"),
    (both(TokenIs(("a",)), Negation(TokenIs(("a", "b")))), "its parts exclude each other"),
    (both(cmp(SignalOf("logprob"), ">", log(0.5)), cmp(MAXPROB, "<", 0.4)), "`maxprob` below 0.4 keeps `logprob` below -0.916"),
    (both(cmp(SignalOf("logprob"), ">", -0.35), cmp(mass(2), "<", 0.2)), "`logprob` above -0.35 keeps `maxprob` above 0.705; `mass(2)` below 0.2"),
    (both(cmp(MARGIN, ">", 0.9), cmp(ENTROPY, ">", 3)), "`margin` above 0.9 keeps `maxprob` above 0.9; that keeps `entropy` below"),
    (both(cmp(MARGIN, "<", 0.5), cmp(ENTROPY, "<", 0.3)), "`margin` below 0.5 keeps `maxprob` below 0.75; that keeps `entropy` above"),
    (both(cmp(mass(4), ">", 0.99), cmp(ENTROPY, ">", 6)), "`mass(4)` above 0.99 keeps `maxprob` above 0.247; that keeps"),
    (both(cmp(mass(4), "<", 0.2), cmp(ENTROPY, "<", 1)), "`mass(4)` below 0.2 keeps `maxprob` below 0.2; that keeps"),
    (both(cmp(mass(3), ">", 0.9), cmp(MARGIN, "<", -0.45)), "`margin` lies in [0, 1]"),
    (both(cmp(SignalOf("logprob"), ">", -0.1), cmp(MARGIN, "<", 0.7)), "`logprob` above -0.1 keeps `maxprob` above 0.905; `margin` below 0.7"),
    (cmp(times(2, ENTROPY), ">", 14), "`entropy` lies in [0, 6.908]"),
    (cmp(times(3, ENTROPY), ">", 21), "`3 * entropy` lies in [0, 20.72]"),
    (cmp(over(ENTROPY, 2), ">", 3.5), "`entropy` lies in [0, 6.908]"),
    (cmp(minus(0, ENTROPY), ">", 1), "`entropy` lies in"),
    (cmp(minus(8, ENTROPY), "<", 1), "`entropy` lies in"),
    (cmp(over(ENTROPY, 0), ">", 1), "its parts exclude each other"),
    (cmp(times(2, DRAW), ">=", 2), "`chance` is below 1"),
    (both(cmp(times(ENTROPY, 2), ">", 3), cmp(ENTROPY, "<", 1)), "its parts exclude each other"),
    (both(cmp(times(3, POSITION), ">", 9), cmp(POSITION, "<=", 3)), "its parts exclude each other"),
    (both(cmp(times(3, ENTROPY), ">", 9), cmp(ENTROPY, "<", 2)), "`3 * entropy > 9` bounds `entropy`"),
    (cmp(times(2, POSITION), "==", 5), "its parts exclude each other"),
    (cmp(times(2, MARGIN), ">", times(2, MAXPROB)), "`margin` is at most `maxprob`"),
    (cmp(times(0.5, POSITION), ">", POSITION), "`position` is at least 0"),
    (both(cmp(count("large"), "<=", times(0.4, POSITION)), cmp(times(0.5, POSITION), "<", count("large"))), "`position` is at least 0"),
    (both(cmp(Aggregate("max", MAXPROB, 4), "<", 0.5), cmp(MARGIN, ">", 0.5)), "`margin` is at most `maxprob`; `max(maxprob, 4)` is at least `maxprob`"),
]  # fmt: skip


def test_a_multiple_that_floats_round_covers_itself_and_what_is_narrower():
    wide, narrow = cmp(times(3, ENTROPY), ">", 3), cmp(times(3, ENTROPY), ">", 4)

    assert [code for code, _ in found(wide, wide)] == ["TR2302"]
    assert [code for code, _ in found(wide, narrow)] == ["TR2302"]
    assert [code for code, _ in found(wide, cmp(ENTROPY, ">", 1.01))] == ["TR2302"]
    assert found(narrow, wide) == found(wide, cmp(ENTROPY, ">", 0.99)) == []


@pytest.mark.parametrize(("guard", "reason"), NEVER, ids=lambda value: str(value)[:50])
def test_a_guard_that_no_step_satisfies_is_named_with_its_reason(guard, reason):
    [(code, message)] = found(guard)

    assert code == "TR2301"
    assert reason in message


@pytest.mark.parametrize(
    "guard",
    [
        both(cmp(MAXPROB, ">", 0.5), cmp(ENTROPY, ">", 3)),
        both(cmp(MAXPROB, "<", 0.3), cmp(ENTROPY, "<", 1.4)),
        cmp(MARGIN, ">=", MAXPROB),
        both(cmp(MAXPROB, ">", 0.8), cmp(MARGIN, "<", 0.7)),
        cmp(mass(2), "<", mass(3)),
        both(cmp(mass(3), ">", 0.9), cmp(MAXPROB, "<", 0.31)),
        cmp(ENTROPY, ">", 6.9),
        both(cmp(POSITION, ">", 3), cmp(POSITION, "<", 5)),
        cmp(count("large"), ">=", POSITION),
        cmp(Aggregate("max", ENTROPY, 4), ">", ENTROPY),
        both(TokenIs(("a", "b")), TokenIs(("b", "c"))),
        both(cmp(SignalOf("logprob"), ">", log(0.5)), cmp(MAXPROB, "<", 0.6)),
        both(cmp(SignalOf("logprob"), ">", -0.35), cmp(mass(2), "<", 0.8)),
        both(cmp(SignalOf("logprob"), "<", -5), cmp(mass(2), "<", 0.2)),
        both(cmp(MARGIN, ">", 0.9), cmp(ENTROPY, ">", 0.5)),
        both(cmp(MARGIN, "<", 0.5), cmp(ENTROPY, "<", 0.7)),
        both(cmp(mass(4), ">", 0.99), cmp(ENTROPY, ">", 1.3)),
        both(cmp(mass(4), "<", 0.2), cmp(ENTROPY, "<", 4)),
        both(cmp(SignalOf("logprob"), ">", -0.1), cmp(MARGIN, "<", 0.9)),
        cmp(SignalOf("chance"), "<", 0.5),
        both(cmp(count("large"), ">", 6), cmp(count("small"), ">=", 3), cmp(POSITION, "<=", 10)),
        both(cmp(count("large"), "<=", 6), cmp(count("small"), "<=", 4), cmp(POSITION, ">=", 10)),
        both(cmp(count("large"), "<", 6), cmp(POSITION, ">=", 10)),
        both(cmp(OWN, ">=", 0.5), cmp(POSITION, ">=", 10), cmp(count("large"), "<=", 5)),
        both(cmp(OWN, "<=", 0.5), cmp(POSITION, "<=", 10), cmp(count("large"), ">=", 5)),
        both(cmp(OWN, "<", 0.4), cmp(SMALLS, "<", 0.4)),  # at position 0
        both(ClassOf("word"), Negation(ClassOf("number"))),
        both(TokenIs(("12",)), ClassOf("number")),
        both(TokenIs(("12", "so")), ClassOf("word")),
        cmp(mass(2), ">", MAXPROB),
        both(cmp(SignalOf("entropy_norm"), ">", 0.08), cmp(MAXPROB, ">", 0.99)),
        both(cmp(SignalOf("entropy_norm"), ">", 0.999), cmp(MAXPROB, ">=", 0.5)),
        both(TokenIs(("<|end|>",)), ClassOf("special")),
        both(cmp(RANK, "==", 1), cmp(LOGPROB, "<", -0.6), cmp(MAXPROB, ">", 0.5)),
        both(cmp(RANK, "==", 2), cmp(LOGPROB, "<", -3), cmp(MAXPROB, ">", 0.5)),
        both(cmp(RANK, ">=", 1), cmp(LOGPROB, ">", -0.7), cmp(LOGPROB, "<", -0.2)),
        both(
            cmp(RANK, ">=", 1),
            cmp(LOGPROB, ">", -0.5),
            cmp(LOGPROB, "<", -0.2),
            cmp(MAXPROB, ">", 0.7),
        ),
        both(cmp(RANK, ">", 1), cmp(LOGPROB, ">", -0.7)),
        both(cmp(RANK, ">", 7), cmp(LOGPROB, ">", -2.08)),
        both(cmp(RANK, ">", 1), cmp(LOGPROB, ">", -2.4), cmp(MAXPROB, ">", 0.9)),
        both(cmp(OWN, ">", 0.7), cmp(SMALLS, ">", 0.29)),
        both(cmp(OWN, ">", 0), cmp(count("large"), "==", 1)),
        both(cmp(OWN, "==", 0), cmp(count("small"), ">", 0)),
        both(cmp(OWN, ">", 0.99), cmp(count("small"), ">=", 1)),
        both(cmp(OWN, "==", 1), cmp(count("large"), ">=", 1), cmp(count("small"), "<", 1)),
        cmp(DRAW, ">=", 0.99),
        cmp(times(2, ENTROPY), ">", 13),
        cmp(times(3, ENTROPY), ">", 20),
        cmp(minus(0, ENTROPY), ">", -1),
        both(cmp(times(ENTROPY, 2), ">", 3), cmp(ENTROPY, "<", 2)),
        both(cmp(times(0.1, POSITION), ">", 0.3), cmp(POSITION, "<=", 3)),  # as floats have it
        both(cmp(times(3, ENTROPY), ">", 9), cmp(ENTROPY, "<", 3.1)),
        cmp(times(2, POSITION), "==", 6),
        cmp(times(2, POSITION), ">", POSITION),
        both(
            cmp(count("large"), "<=", times(0.5, POSITION)),
            cmp(times(0.4, POSITION), "<", count("large")),
        ),
        both(cmp(Aggregate("max", MAXPROB, 4), "<", 0.5), cmp(MARGIN, ">", 0.4)),
        cmp(minus(0, SignalOf("logprob")), ">", 1),
    ],
    ids=str,
)
def test_a_guard_that_some_step_satisfies_is_left_alone(guard):
    assert found(guard) == []


def test_a_narrower_rule_after_a_wider_one_is_covered_by_it():
    [(code, message)] = found(cmp(ENTROPY, ">", 1), cmp(ENTROPY, ">", 2))

    assert code == "TR2302"
    assert message.endswith("can never fire, because an earlier rule covers it")
    assert codes(cmp(ENTROPY, ">", 2), cmp(ENTROPY, ">", 1)) == []


def test_rules_can_cover_another_only_together():
    below, above = cmp(ENTROPY, "<", 1), cmp(ENTROPY, ">", 2)
    between = both(cmp(ENTROPY, ">", 1.2), cmp(ENTROPY, "<", 1.8))
    middle = both(cmp(ENTROPY, ">=", 0.9), cmp(ENTROPY, "<=", 2.1))

    assert codes(below, above, between) == []
    [first, second] = found(below, above, middle, between)
    assert first[0] == "TR2302" or second[0] == "TR2302"
    assert any("an earlier rule covers it" in message for _, message in (first, second))


def test_the_rules_above_can_leave_nothing_for_the_next():
    message = dict(found(cmp(MARGIN, "<", 0.5), cmp(MARGIN, ">=", 0.4), cmp(ENTROPY, ">", 1)))

    assert "the rules above cover it together" in message["TR2302"]
    assert "leave nothing for `otherwise`" in message["TR2305"]


def test_a_guard_that_always_holds_ends_the_list_and_is_told_once():
    assert codes(cmp(MAXPROB, ">=", 0), cmp(ENTROPY, ">", 1), cmp(ENTROPY, ">", 2)) == ["TR2303"]
    assert codes(cmp(MAXPROB, ">", 0.5), cmp(ENTROPY, ">", 1)) == []


def test_a_threshold_that_no_step_passes_is_told_with_the_params_value():
    decl, tau = param("tau", 7, 0, 10)
    [(code, message)] = found(cmp(ENTROPY, ">", tau), params=[decl])

    assert code == "TR2304"
    assert message.startswith("with `tau` = 7 rule")
    assert "`entropy` lies in [0, 6.908]" in message

    near, tau = param("tau", 6, 0, 10)
    assert found(cmp(ENTROPY, ">", tau), params=[near]) == []


def test_a_threshold_that_every_step_passes_is_told_too():
    decl, n = param("n", 0, 0, 10, unit="count")
    [(code, message)] = found(cmp(POSITION, ">=", n), params=[decl])

    assert code == "TR2304"
    assert "fires on every step" in message
    assert codes(cmp(plus(POSITION, n), ">=", n), params=[decl]) == ["TR2304"]
    # What such a rule leaves nothing of is no news.
    assert codes(cmp(POSITION, ">=", n), cmp(ENTROPY, ">", 1), params=[decl]) == ["TR2304"]


def any_model(*rules, models=("small", "large")):
    """Return the codes of a policy whose rules stand at any model, each dropping those that name itself."""

    def at_model(name):
        for guard, (keep, go) in rules:
            if isinstance(go, ir.To) and go.model == name:
                if keep:
                    yield guard, COMMIT
            else:
                yield guard, (keep, go)

    made = automaton(*((name, *at_model(name)) for name in models), params=[LOW[0], HIGH[0]])
    states = tuple(
        replace(
            state,
            own=False,
            rules=tuple(
                replace(rule, span=at(50 + [str(g) for g, _ in rules].index(str(rule.when))))
                for rule in state.rules
            ),
        )
        for state in made.states
    )
    return sorted({d.code for d in coverage(replace(made, states=states))})


WIDE, NARROW = cmp(ENTROPY, ">", 1), cmp(ENTROPY, ">", 2)


def test_a_rule_of_any_model_is_dead_where_it_is_at_each():
    to_large, to_small = (WIDE, retry("large")), (NARROW, then("small"))

    assert any_model(to_large, to_small, (None, COMMIT)) == []
    assert any_model(to_large, (NARROW, COMMIT), (None, COMMIT), models=("small", "mid")) == [
        "TR2302"
    ]
    assert any_model((WIDE, COMMIT), to_small, (None, COMMIT)) == ["TR2302"]
    assert any_model((cmp(MARGIN, ">", MAXPROB), then("small")), (None, COMMIT)) == ["TR2301"]


def test_nothing_is_left_for_otherwise_of_any_model_where_nothing_is_at_each():
    under = (cmp(ENTROPY, "<=", 1), then("large"))

    assert any_model((WIDE, retry("large")), under, (None, then("small"))) == []
    assert any_model((WIDE, then("large")), under, (None, then("small"))) == ["TR2305"]


LENGTH = VarOf("t", "count")
DIAL, LENDS = param("k", 1, 0, 4, "count")


@pytest.mark.parametrize("most", [LENGTH, LENDS])
def test_a_stay_that_may_be_below_one_token_covers_nothing(most):
    lends = (WIDE, borrow("large", most))
    back = ("large", (None, then("small")))
    always = (cmp(POSITION, ">=", 0), borrow("large", most))

    def codes(*rules, params=(DIAL,)):
        auto = automaton(("small", *rules, (None, COMMIT)), back, params=params)
        return [d.code for d in coverage(auto)]

    assert codes(lends, (NARROW, then("large"))) == []
    assert codes(lends, (cmp(ENTROPY, "<=", 1), then("large"))) == []
    assert codes(always) == []
    assert codes((WIDE, COMMIT), (NARROW, borrow("large", most))) == ["TR2302"]
    assert codes((cmp(ENTROPY, ">", 1), borrow("large", plus(num(1), num(0))))) == []
    assert codes((WIDE, borrow("large", 1)), (NARROW, then("large"))) == ["TR2302"]


def test_a_dial_below_one_token_covers_nothing_at_its_value_and_one_above_does():
    back = ("large", (None, then("small")))
    low, tau = param("tau", 1, 0, 5)
    for value, told in ((0, []), (2, ["TR2304"])):
        dial, most = param("k", value, 0, 4, "count")
        rules = ((cmp(ENTROPY, ">", tau), borrow("large", most)), (NARROW, then("large")))
        auto = automaton(("small", *rules, (None, COMMIT)), back, params=(dial, low))
        assert [d.code for d in coverage(auto)] == told


LOW, HIGH = param("low", 3, 0, 5), param("high", 2, 0, 5)


def test_dials_in_the_wrong_order_are_told_with_their_values():
    rules = [cmp(ENTROPY, ">", dial) for _, dial in (HIGH, LOW)]
    [(code, message)] = found(*rules, params=[LOW[0], HIGH[0]])

    assert code == "TR2304"
    assert message.startswith("with `high` = 2, `low` = 3 rule `when entropy > low -> ")
    assert message.endswith("can never fire: an earlier rule covers it")
    assert found(*reversed(rules), params=[LOW[0], HIGH[0]]) == []


def test_of_a_model_that_is_never_left_its_own_warning_tells():
    rules = ((cmp(ENTROPY, ">", HIGH[1]), COMMIT), (cmp(ENTROPY, ">", LOW[1]), retry("large")))
    auto = automaton(
        ("small", *rules, (None, COMMIT)),
        ("large", (None, then("small"))),
        params=[LOW[0], HIGH[0]],
    )

    assert [d.code for d in pipeline.run(auto)[1]] == ["TR2102"]


def test_rules_that_cover_another_together_at_the_values_of_dials_are_told_of():
    below, above = cmp(ENTROPY, "<", LOW[1]), cmp(ENTROPY, ">", HIGH[1])
    [(code, message)] = found(below, above, cmp(MARGIN, ">", 0.5), params=[LOW[0], HIGH[0]])

    assert code == "TR2304"
    assert message.endswith("can never fire: the rules above cover it together")
    apart, near = param("low", 2, 0, 5), cmp(MARGIN, ">", 0.5)
    assert found(below, above, near, params=[apart[0], HIGH[0]]) == []


def test_a_rule_that_is_covered_whatever_the_dials_are_is_told_of_once():
    rules = [cmp(ENTROPY, ">", LOW[1]), cmp(ENTROPY, ">", plus(LOW[1], num(1)))]

    assert codes(*rules, params=[LOW[0]]) == ["TR2302"]
    past = param("low", 8, 0, 9)
    assert codes(cmp(ENTROPY, ">", past[1]), cmp(MARGIN, ">", 0.5), params=[past[0]]) == ["TR2304"]


def test_params_stay_symbols_so_that_one_dial_covers_itself():
    decl, tau = param("tau", 2, 0, 6)

    assert codes(cmp(ENTROPY, ">", tau), cmp(ENTROPY, ">=", tau), params=[decl]) == []
    assert codes(cmp(ENTROPY, ">=", tau), cmp(ENTROPY, ">", tau), params=[decl]) == ["TR2302"]
    assert codes(cmp(ENTROPY, ">", tau), cmp(ENTROPY, ">", plus(tau, tau)), params=[decl]) == [
        "TR2304"
    ]


def test_what_rules_leave_is_bent_by_laws_on_signals_that_no_rule_names():
    sure, flat = cmp(MARGIN, ">", 0.5), cmp(ENTROPY, "<", 0.5)

    assert codes(sure, flat) == ["TR2302"]  # margin <= 0.5 keeps entropy above 0.56
    assert codes(cmp(MARGIN, ">", 0.7), flat) == []


def test_an_or_is_dead_only_where_all_its_ways_are():
    dead = both(cmp(MAXPROB, ">", 0.9), cmp(ENTROPY, ">", 3))

    assert codes(either(dead, cmp(MARGIN, ">", MAXPROB))) == ["TR2301"]
    assert codes(either(dead, cmp(MARGIN, ">", 0.1))) == []


def test_a_guard_with_too_many_ways_is_held_for_alive():
    wide = both(*(either(cmp(mass(k), ">", 0.5), cmp(mass(k), "<", 0.4)) for k in range(2, 14)))

    assert codes(wide, cmp(MARGIN, ">", MAXPROB)) == ["TR2301"]


@pytest.mark.parametrize("v", [2, 3, 50, 1000])
def test_the_bounds_of_entropy_hold_for_every_distribution(v):
    import numpy as np

    rng = np.random.default_rng(v)
    for alpha in (0.01, 0.1, 1.0, 10.0):
        for p in rng.dirichlet(np.full(v, alpha), size=200):
            p = p[p > 0]
            entropy, top = float(-(p * np.log(p)).sum()), float(p.max())
            assert least_entropy(top) - 1e-9 <= entropy <= most_entropy(top, v) + 1e-9


@pytest.mark.parametrize("top", [0.05, 0.3, 0.5, 0.7, 0.99])
def test_the_bounds_of_entropy_are_reached(top):
    v = 100
    spread = [top] + [(1 - top) / (v - 1)] * (v - 1)
    packed = [top] * int(1 / top)
    packed += [1 - sum(packed)] if sum(packed) < 1 - 1e-12 else []

    assert -sum(p * log(p) for p in spread) == pytest.approx(most_entropy(top, v))
    assert -sum(p * log(p) for p in packed) == pytest.approx(least_entropy(top))


def stairs(n):
    """Return n rules, each of which takes a corner that no other does."""
    return [
        (both(cmp(ENTROPY, ">", i / 100), cmp(MARGIN, "<", (i + 1) / 1000)), retry("large"))
        for i in range(n)
    ]


def test_what_a_long_staircase_leaves_is_known_exactly():
    rules = stairs(200)
    inside = (both(cmp(ENTROPY, ">", 1.0), cmp(MARGIN, "<", 0.1005)), retry("large"))
    beside = (both(cmp(ENTROPY, ">", 1.0), cmp(MARGIN, "<", 0.1015)), retry("large"))

    def told(rule):
        auto = automaton(("small", *rules, rule, (None, COMMIT)), ("large", (None, then("small"))))
        return [d.code for d in coverage(auto)]

    assert told(inside) == ["TR2302"]
    assert told(beside) == []


def test_a_rule_is_covered_by_one_of_a_thousand():
    rules = [(TokenIs((f"w{i}",)), retry("large")) for i in range(900)]
    again = (TokenIs(("w17", "w800")), retry("large"))
    auto = automaton(("small", *rules, again, (None, COMMIT)), ("large", (None, then("small"))))

    assert [d.code for d in coverage(auto)] == ["TR2302"]


def test_what_a_word_leaves_is_not_taken_for_part_of_what_a_number_leaves():
    word = TokenIs(("a",))

    assert found(both(word, cmp(ENTROPY, ">", 1.0)), both(word, cmp(ENTROPY, "<", 0.5))) == []
    assert (
        found(both(cmp(ENTROPY, ">", 1.0), word), both(cmp(ENTROPY, ">", 2.0), either(word))) != []
    )
