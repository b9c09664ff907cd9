"""Passes over the transition graph: what is dropped, what is refused, and the neighbours that are not."""

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
    either,
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
from tokenrouter.compiler import ir, pipeline
from tokenrouter.compiler.expr import (
    Aggregate,
    Arithmetic,
    ClassOf,
    FieldOf,
    HeadOf,
    Lit,
    SignalOf,
    TokenIs,
    VarOf,
)
from tokenrouter.compiler.passes.coverage import coverage
from tokenrouter.compiler.passes.drop_unreached import drop_unreached
from tokenrouter.compiler.passes.livelock import livelock
from tokenrouter.compiler.passes.never_left import never_left
from tokenrouter.compiler.passes.stays import stays
from tokenrouter.compiler.passes.trust import trust
from tokenrouter.compiler.passes.variables import variables
from tokenrouter.signals import SIGNALS

UNSURE = cmp(ENTROPY, ">", 2)


def told(diagnostics):
    return [(d.code, d.message) for d in diagnostics]


def test_a_model_that_is_never_reached_is_dropped_and_named(golden):
    auto = automaton(
        ("small", (cmp(SignalOf("share", ("lost",)), ">", 0.5), retry("large")), (None, COMMIT)),
        ("lost", (None, then("small"))),
        ("large", (None, then("small"))),
    )

    out, found = drop_unreached(auto)

    golden(str(out))
    assert told(found) == [("TR2101", "model `lost` is never reached from the start")]


def test_a_model_that_nothing_mentions_is_left_to_the_front_end():
    auto = automaton(("small", (None, COMMIT)), ("lost",))
    silent = replace(auto, states=(auto.states[0], replace(auto.states[1], own=False)))

    out, found = drop_unreached(silent)

    assert [decl.name for decl in out.unreached] == ["lost"]
    assert found == []


def test_rules_of_a_model_that_requests_only_borrow_from_are_told():
    lends = automaton(
        ("small", (UNSURE, borrow("large", 1)), (None, COMMIT)),
        ("large", (UNSURE, retry("small")), (None, then("small"))),
    )

    same, found = drop_unreached(lends)
    assert same is lends
    assert told(found) == [
        ("TR2101", "no rule of `large` is ever asked: requests only borrow from it")
    ]
    shared = replace(lends, states=(lends.states[0], replace(lends.states[1], own=False)))
    assert drop_unreached(shared) == (shared, [])  # `at any` is for whom it may concern


@pytest.mark.parametrize(
    "more",
    [
        {"start": "large"},
        {"start": ir.Mix((("small", 0.5), ("large", 0.5)))},
        {"fallback": "large", "claims": [share("enforce", "small", 0.5)]},
    ],
    ids=["start", "mixture", "fallback"],
)
def test_rules_of_a_model_that_lends_and_decides_are_asked(more):
    lends = automaton(
        ("small", (UNSURE, borrow("large", 1)), (None, COMMIT)),
        ("large", (None, then("small"))),
        **more,
    )

    assert drop_unreached(lends) == (lends, [])


def test_a_lender_and_every_part_of_a_mixture_are_reached():
    lender = r2r()
    mixed = automaton(
        ("a", (None, mix(b=0.5, c=0.5))), ("b", (None, COMMIT)), ("c", (None, then("a")))
    )

    assert drop_unreached(lender) == (lender, [])
    assert drop_unreached(mixed) == (mixed, [])


def test_retries_that_form_a_cycle_are_named_rule_by_rule():
    auto = automaton(
        ("small", (UNSURE, retry("large")), (None, COMMIT)),
        ("large", (cmp(MARGIN, "<", 0.1), retry("mid")), (None, COMMIT)),
        ("mid", (cmp(MAXPROB, "<", 0.5), retry("small")), (None, COMMIT)),
    )

    [found] = livelock(auto)

    assert told([found]) == [
        (
            "TR2201",
            "livelock: one position can go round `large` -> `mid` -> `small` -> `large` and no token is ever kept",
        )
    ]
    assert found.span.line == 12
    assert [label.span.line for label in found.labels] == [14, 10]


@pytest.mark.parametrize(
    "auto",
    [
        r_stitch(),
        r2r(),
        automaton(  # each borrows from the other: a stay keeps a token
            ("small", (UNSURE, borrow("large", 1)), (None, COMMIT)),
            ("large", (UNSURE, borrow("small", 1)), (None, then("small"))),
        ),
        automaton(  # the same position cannot be early and late
            ("small", (cmp(POSITION, "<", 8), retry("large")), (None, COMMIT)),
            ("large", (both(cmp(POSITION, ">=", 8), UNSURE), retry("small")), (None, COMMIT)),
        ),
    ],
)
def test_a_cycle_that_keeps_a_token_or_cannot_close_is_none(auto):
    assert livelock(auto) == []


def test_what_differs_from_step_to_step_does_not_break_a_cycle():
    auto = automaton(
        ("small", (cmp(ENTROPY, "<", 1), retry("large")), (None, COMMIT)),
        ("large", (cmp(ENTROPY, ">", 2), retry("small")), (None, COMMIT)),
    )

    assert [d.code for d in livelock(auto)] == ["TR2201"]


def setting(auto, *sets):
    """Return a policy whose first rule of each state sets a var, by state."""
    states = (
        replace(state, rules=(replace(state.rules[0], sets=given), *state.rules[1:]))
        for state, given in zip(auto.states, sets, strict=True)
    )
    return replace(auto, states=tuple(states), vars=(ir.VarDecl("t", "count", 5.0, at(4)),))


T, U = VarOf("t", "count"), VarOf("u", "count")
SWITCHES, ELAPSED = SignalOf("switches"), SignalOf("elapsed")
SINCE = SignalOf("since_switch")


def becomes(value):
    return (ir.Assign("t", num(value, "count") if isinstance(value, int) else value),)


def ring(small, large, *sets):
    """Return two models that retry each other under guards, each setting `t`."""
    auto = automaton(
        ("small", (small, retry("large")), (None, COMMIT)),
        ("large", (large, retry("small")), (None, COMMIT)),
    )
    return setting(auto, *sets) if sets else auto


@pytest.mark.parametrize(
    "auto",
    [
        ring(cmp(T, ">", 3), cmp(T, "==", 0), becomes(0), becomes(5)),
        ring(cmp(T, "==", 5), cmp(T, "==", 6), becomes(plus(T, num(1))), becomes(5)),
        ring(cmp(T, ">", 3), UNSURE, becomes(plus(T, num(1))), becomes(plus(T, num(1)))),
        ring(either(cmp(T, "==", 0), cmp(T, ">", 8)), cmp(T, "==", 9), becomes(9), becomes(9)),
        ring(UNSURE, UNSURE, becomes(1), becomes(2)),
        ring(cmp(SWITCHES, ">", 3), cmp(SWITCHES, ">=", 1)),
        ring(cmp(ELAPSED, "<", 5), cmp(ELAPSED, "<", 6)),
        ring(cmp(ELAPSED, ">", 6), cmp(ELAPSED, ">", 5)),
        ring(cmp(T, "<", 9), UNSURE, becomes(plus(U, num(1))), becomes(T)),
        ring(
            cmp(U, "<", 9),
            UNSURE,
            (*becomes(plus(U, num(1))), ir.Assign("u", Arithmetic("-", T, num(1)))),
            (),
        ),
        ring(cmp(T, "==", 1), UNSURE, becomes(1), (ir.Assign("u", num(0)),)),
        ring(cmp(SWITCHES, "==", T), cmp(SWITCHES, ">", T), becomes(T), becomes(plus(T, num(2)))),
        ring(cmp(ELAPSED, ">", T), cmp(ELAPSED, ">", T), becomes(ELAPSED), becomes(ELAPSED)),
        ring(cmp(SINCE, "==", 0), cmp(SINCE, "<", 1)),
        ring(UNSURE, cmp(SINCE, "<=", T), becomes(SINCE), becomes(SINCE)),
    ],
    ids=str,
)
def test_a_cycle_that_its_own_sets_and_hand_offs_keep_closed_is_told(auto):
    assert [d.code for d in livelock(auto)] == ["TR2201"]


@pytest.mark.parametrize(
    "auto",
    [
        ring(cmp(T, ">", 3), cmp(T, "==", 0), becomes(1), becomes(5)),
        ring(cmp(T, ">", 3), UNSURE, becomes(0), becomes(plus(T, num(1)))),
        ring(cmp(T, "<", 3), UNSURE, becomes(plus(T, num(1))), becomes(T)),
        ring(cmp(T, "==", 3), UNSURE, becomes(plus(T, num(1))), becomes(T)),
        ring(cmp(T, ">", 3), UNSURE, becomes(Arithmetic("-", T, num(1))), becomes(T)),
        ring(cmp(T, "<=", POSITION), UNSURE, becomes(plus(T, num(1))), becomes(T)),
        ring(either(cmp(T, "==", 0), cmp(T, "==", 1)), cmp(T, "==", 7), becomes(3), becomes(0)),
        ring(cmp(SWITCHES, "==", 0), cmp(SWITCHES, "==", 1)),
        ring(cmp(SWITCHES, "<", 100), UNSURE),
        ring(UNSURE, cmp(POSITION, ">", SWITCHES)),
        ring(cmp(ELAPSED, "<", 5), cmp(ELAPSED, ">", 6)),
        ring(cmp(T, "==", 0), UNSURE, becomes(1), (ir.Assign("u", num(0)),)),
        ring(cmp(SWITCHES, "==", T), cmp(SWITCHES, "==", T), becomes(T), becomes(plus(T, num(2)))),
        ring(cmp(ELAPSED, "<", T), cmp(ELAPSED, "<", T), becomes(ELAPSED), becomes(ELAPSED)),
        ring(cmp(ELAPSED, ">", 6), cmp(ELAPSED, "<", 5)),
        ring(cmp(SINCE, "==", 0), cmp(SINCE, ">", 0)),
        ring(cmp(SINCE, ">", 2), UNSURE),
        ring(UNSURE, cmp(T, ">", 0), becomes(SINCE), ()),
    ],
    ids=str,
)
def test_a_cycle_that_its_own_sets_or_hand_offs_break_is_none(auto):
    assert livelock(auto) == []


def behind(first, *rest):
    """Return two models that retry each other, the first of which has a rule above that."""
    return automaton(
        ("small", first, (None, retry("large"))),
        ("large", *rest, (None, retry("small"))),
    )


@pytest.mark.parametrize(
    "above",
    [
        (cmp(SINCE, "==", 0), COMMIT),
        (either(cmp(POSITION, ">", 3), cmp(POSITION, "<=", 3)), then("large")),
        (cmp(SWITCHES, ">", 40), STOP),
        (cmp(SINCE, "==", 0), borrow("large", 1)),
        (either(UNSURE, cmp(SINCE, "==", 0)), COMMIT),
    ],
    ids=str,
)
def test_a_rule_above_that_always_keeps_the_position_breaks_a_cycle(above):
    assert livelock(behind(above)) == []


def test_rules_above_break_a_cycle_together():
    early, late = (cmp(POSITION, "<", 9), COMMIT), (cmp(POSITION, ">=", 9), COMMIT)

    assert livelock(behind(early, late)) == []


@pytest.mark.parametrize(
    "above",
    [
        (cmp(SINCE, ">", 0), COMMIT),
        (both(cmp(SINCE, "==", 0), UNSURE), COMMIT),
        (cmp(POSITION, "<", 9), COMMIT),
        (cmp(SWITCHES, "<", 40), STOP),
        (cmp(SINCE, "==", 0), borrow("large", T)),
    ],
    ids=str,
)
def test_a_rule_above_that_may_pass_the_position_on_breaks_none(above):
    assert [d.code for d in livelock(behind(above))] == ["TR2201"]


STEADY = [
    POSITION,
    SignalOf("prompt_tokens"),
    SignalOf("count", ("large",)),
    SignalOf("share", ("large",)),
    VarOf("t", "count"),
    FieldOf("level", 0.0, "count"),
]


@pytest.mark.parametrize("term", STEADY, ids=str)
def test_what_stays_the_same_at_one_position_is_asked_one_thing_only(term):
    over, under = cmp(term, ">", 0.5), cmp(term, "<=", 0.5)

    assert livelock(ring(over, under)) == []
    assert [d.code for d in livelock(ring(over, over))] == ["TR2201"]


WORD, NUMBER = ClassOf("word"), ClassOf("number")
NEW = {  # at each step
    "a signal": (cmp(ENTROPY, ">", 2), cmp(ENTROPY, "<", 1)),
    "a draw": (cmp(SignalOf("chance"), ">", 0.5), cmp(SignalOf("chance"), "<", 0.5)),
    "a load": (cmp(SignalOf("queue", ("large",)), ">", 2), cmp(SignalOf("queue", ("large",)), "<", 1)),
    "a head": (cmp(HeadOf("sure"), ">", 0.5), cmp(HeadOf("sure"), "<", 0.5)),
    "a window": (cmp(Aggregate("mean", POSITION, 4), ">", 2), cmp(Aggregate("mean", POSITION, 4), "<", 1)),
    "a text": (TokenIs(("a",)), TokenIs(("b",))),
    "a class": (WORD, NUMBER),
}  # fmt: skip


@pytest.mark.parametrize("asked", NEW.values(), ids=NEW)
def test_what_is_another_at_each_step_may_be_asked_two_things(asked):
    assert [d.code for d in livelock(ring(*asked))] == ["TR2201"]


def test_rounds_that_take_turns_go_on_for_ever():
    auto = automaton(
        (
            "small",
            (cmp(T, "==", 0), retry("large")),
            (cmp(T, "==", 1), retry("large")),
            (None, COMMIT),
        ),
        ("large", (None, retry("small"))),
    )
    small, large = auto.states
    one, two, last = small.rules
    rules = (replace(one, sets=becomes(1)), replace(two, sets=becomes(0)), last)
    auto = replace(auto, states=(replace(small, rules=rules), large))

    assert [d.code for d in livelock(auto)] == ["TR2201"]


def test_a_model_that_is_never_left_by_accident_is_told():
    def auto(*large):
        return automaton(("small", (UNSURE, retry("large")), (None, COMMIT)), ("large", *large))

    accident = auto((cmp(MARGIN, ">", MAXPROB), then("small")), (None, COMMIT))
    choice = auto((None, COMMIT))
    near = auto((cmp(MARGIN, ">=", MAXPROB), then("small")), (None, COMMIT))

    assert told(never_left(accident)) == [
        ("TR2102", "no request ever leaves `large`, although its rules mean to")
    ]
    assert [d.span.line for d in never_left(accident)[0].labels] == [12]
    assert never_left(choice) == never_left(near) == []


def test_a_rule_that_would_end_requests_is_not_said_to_hand_them_on():
    never = cmp(MARGIN, ">", MAXPROB)
    ends = automaton(("small", (never, STOP), (None, COMMIT)))
    moves = automaton(
        ("small", (never, STOP), (never, then("large")), (None, COMMIT)),
        ("large", (None, COMMIT)),
    )

    [(_, message)] = told(never_left(ends))
    assert message == "no rule ever ends a request at `small`, although one means to"
    [found] = never_left(moves)
    assert found.message.startswith("no request ever leaves `small`")
    assert [label.text.split(",")[0] for label in found.labels] == [
        "this rule would end it",
        "this rule would hand it on",
    ]


def test_start_rules_are_covered_like_any_other():
    decl = SignalOf("prompt_tokens")
    base = r_stitch()
    start = tuple(
        replace(base.start[0], when=when) for when in (cmp(decl, ">", 10), cmp(decl, ">", 20), None)
    )

    assert [d.code for d in coverage(replace(base, start=start))] == ["TR2302"]


def test_a_stay_that_can_never_begin_is_refused():
    decl, n = param("n", 0, 0, 0.5, unit="count")
    near, m = param("n", 0, 0, 1, unit="count")

    assert [d.code for d in stays(r2r(n=0))] == ["TR2401"]
    dial = automaton(
        ("small", (UNSURE, borrow("large", n)), (None, COMMIT)), ("large",), params=(decl,)
    )
    near_dial = automaton(
        ("small", (UNSURE, borrow("large", m)), (None, COMMIT)), ("large",), params=(near,)
    )
    assert [d.code for d in stays(dial)] == ["TR2401"]
    assert stays(near_dial) == []


@pytest.mark.parametrize(
    ("until", "codes"),
    [
        (cmp(MAXPROB, ">", 1), ["TR2402"]),
        (cmp(MAXPROB, ">=", 0), ["TR2403"]),
        (cmp(MAXPROB, ">", 0.9), []),
    ],
)
def test_an_until_that_never_or_always_holds_is_told(until, codes):
    auto = automaton(("small", (UNSURE, borrow("large", 4, until)), (None, COMMIT)), ("large",))

    assert [d.code for d in stays(auto)] == codes


def steered(guard):
    return automaton(
        ("small", (guard, retry("large")), (both(guard, UNSURE), retry("large")), (None, COMMIT)),
        ("large", (None, then("small"))),
    )


@pytest.mark.parametrize("name", [name for name, kind in SIGNALS.items() if not kind.args])
def test_a_signal_is_pointed_at_once_where_the_catalogue_says_that_it_is_a_load(name):
    told = ["TR2501"] if SIGNALS[name].needs == "load" else []

    assert [d.code for d in trust(steered(cmp(SignalOf(name), ">", 0.5)))] == told


@pytest.mark.parametrize("name", ["prompt", "system_prompt", "user_message", "tier"])
@pytest.mark.parametrize(
    ("value", "codes"),
    [(Lit("<big>", "text"), ["TR2502"]), (Lit(2.0, "count"), []), (Lit(True, "bool"), [])],
    ids=["text", "number", "condition"],
)
def test_a_text_of_the_client_is_pointed_at_whatever_it_is_called(name, value, codes):
    default = type(value.value)()

    guard = cmp(FieldOf(name, default, value.unit), "==", value)

    assert [d.code for d in trust(steered(guard))] == codes


def test_a_stay_that_lasts_as_long_as_a_queue_depends_on_load():
    made = r2r(n=SignalOf("queue", ("large",)))

    assert [d.code for d in trust(made)] == ["TR2501"]


TEXT = cmp(FieldOf("note", "", "text"), "==", Lit("x", "text"))


@pytest.mark.parametrize("steer", ["start", "until", "set"])
def test_a_text_that_decides_anything_else_than_a_guard_is_pointed_at_too(steer):
    base = automaton(
        ("small", (UNSURE, borrow("large", 4, TEXT if steer == "until" else None)), (None, COMMIT)),
        ("large",),
    )
    small, large = base.states
    first, last = small.rules
    if steer == "set":
        first = replace(first, sets=(ir.Assign("asked", TEXT),))
    start = replace(base.start[0], when=TEXT if steer == "start" else None)
    made = replace(base, start=(start,), states=(replace(small, rules=(first, last)), large))

    assert [d.code for d in trust(made)] == ["TR2502"]


def test_the_pipeline_tells_everything_at_once_in_source_order_and_shows_each_step():
    auto = automaton(
        ("small", (UNSURE, retry("large")), (cmp(ENTROPY, ">", 3), retry("large")), (None, COMMIT)),
        ("lost", (None, COMMIT)),
        (
            "large",
            (cmp(MARGIN, ">", MAXPROB), COMMIT),
            (cmp(MARGIN, "<", 0.1), retry("small")),
            (None, COMMIT),
        ),
    )
    seen = []

    _, found = pipeline.run(auto, trace=lambda name, text: seen.append(name))

    assert [d.code for d in found] == ["TR2101", "TR2302", "TR2301", "TR2201"]
    assert [d.span.start for d in found] == sorted(d.span.start for d in found)
    assert seen == [step.__name__ for step in pipeline.PASSES]


def test_a_livelock_is_told_of_rules_that_fire_and_not_of_dead_ones():
    impossible = both(cmp(MAXPROB, ">", 0.9), cmp(ENTROPY, ">", 3))
    back = ("large", (UNSURE, retry("small")), (None, COMMIT))
    both_ways = automaton(
        ("small", (impossible, retry("large")), (UNSURE, retry("large")), (None, COMMIT)), back
    )
    dead = automaton(("small", (impossible, retry("large")), (None, then("large"))), back)

    _, found = pipeline.run(both_ways)
    lines = {d.code: [d.span.line, *(label.span.line for label in d.labels)] for d in found}
    assert lines["TR2201"] == [13, 11]
    assert [d.code for d in pipeline.run(dead)[1]] == ["TR2301"]


@pytest.mark.parametrize(
    ("above", "code"),
    [
        (((UNSURE, COMMIT), (cmp(ENTROPY, "<=", 2), then("large"))), "TR2305"),
        (((cmp(POSITION, ">=", 0), COMMIT),), "TR2303"),
        (((either(UNSURE, cmp(ENTROPY, "<=", 2)), then("large")),), "TR2303"),
    ],
)
def test_rules_below_what_always_fires_make_no_livelock(above, code):
    auto = automaton(("small", *above, (None, retry("large"))), ("large", (None, retry("small"))))

    assert code in {d.code for d in pipeline.run(auto)[1]}
    assert "TR2201" not in {d.code for d in pipeline.run(auto)[1]}


def test_a_share_is_0_at_the_first_position():
    much = both(cmp(POSITION, "==", 0), cmp(SignalOf("share", ("large",)), ">", 0.5))
    auto = automaton(
        ("small", (much, retry("large")), (None, then("large"))),
        ("large", (UNSURE, retry("small")), (None, COMMIT)),
    )

    assert [d.code for d in pipeline.run(auto)[1]] == ["TR2301"]


def test_a_var_that_nothing_sets_keeps_its_first_value_in_a_cycle():
    asks = ring(cmp(T, "==", 1), UNSURE)
    first = (ir.VarDecl("t", "count", 0.0, at(1)),)

    assert livelock(replace(asks, vars=first)) == []
    assert [d.code for d in livelock(replace(asks, vars=(replace(first[0], value=1.0),)))]
    assert [
        d.code for d in livelock(replace(ring(cmp(T, ">=", 1), UNSURE, becomes(1), ()), vars=first))
    ] == ["TR2201"]


def test_what_only_follows_from_another_finding_is_not_told():
    decl, tau = param("tau", 0.1, 0, 1, unit="prob")
    auto = automaton(
        ("small", (UNSURE, retry("large")), (None, COMMIT)),
        (
            "large",
            (cmp(MARGIN, "<", tau), COMMIT),
            (cmp(MARGIN, "<", 0.05), then("small")),
            (None, COMMIT),
        ),
        params=(decl,),
    )

    _, found = pipeline.run(auto)

    assert [d.code for d in found] == ["TR2102"]  # no rule is dead by itself, only after the first


def test_variables_that_decide_nothing_or_never_change_are_told():
    turns = ir.VarDecl("turns", "count", 0.0, at(7))
    read = VarOf("turns", "count")
    bump = ir.Assign("turns", plus(read, num(1, "count")))

    def auto(guard, *sets):
        made = automaton(
            ("small", (guard, retry("large")), (None, COMMIT)),
            ("large", (None, then("small"))),
            vars=(turns,),
        )
        first, last = made.states[0].rules
        small = replace(made.states[0], rules=(replace(first, sets=sets), last))
        return replace(made, states=(small, made.states[1]))

    assert [d.code for d in variables(auto(UNSURE, bump))] == ["TR2601"]
    assert [d.code for d in variables(auto(cmp(read, "<", 4)))] == ["TR2602"]
    assert variables(auto(cmp(read, "<", 4), bump)) == []
