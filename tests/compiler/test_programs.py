"""Route programs and task graphs: only what is needed, once, and visible."""

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
    mix,
    num,
    param,
    plus,
    r2r,
    r_stitch,
    retry,
    then,
)
from tokenrouter.compiler import ir, programs, tasks
from tokenrouter.compiler.expr import (
    Aggregate,
    Arithmetic,
    Comparison,
    Every,
    HeadOf,
    Lit,
    Negation,
    SignalOf,
    Some,
)
from tokenrouter.compiler.fold import FALSE, TRUE, fold
from tokenrouter.plan import structs as s

UNSURE = cmp(ENTROPY, ">", 2)
HEAD = ir.HeadDecl("diverge", "linear", "diverge.safetensors", "small", ("hidden",), at(1))


def graphs(auto):
    heads = [
        s.Head(name=h.name, kind=h.kind, file=h.file, digest="", model=0, reads=list(h.reads))
        for h in auto.heads
    ]
    return [
        tasks.subserver(auto, state, program, heads, "eager")
        for state, program in zip(auto.states, programs.programs(auto), strict=True)
    ]


def ids(graph):
    return [task.id for task in graph.tasks]


def ways(graph):
    return {f"{edge.source} {edge.label} {edge.target}" for edge in graph.edges}


def test_a_subexpression_is_evaluated_once_however_often_it_is_asked():
    mean = Aggregate("mean", ENTROPY, 8)
    auto = automaton(
        (
            "small",
            (both(cmp(mean, ">", 1), cmp(ENTROPY, ">", 2)), retry("large")),
            (cmp(mean, ">", 1), then("large")),
            (None, COMMIT),
        ),
        ("large", (None, then("small"))),
    )

    small, large = programs.programs(auto)

    assert small.nodes == [
        s.Signal(name="entropy"),
        s.Window(kind="mean", of=0, n=8),
        s.Const(value=1.0, unit="number"),
        s.Compare(sign=">", left=1, right=2),
        s.Const(value=2.0, unit="number"),
        s.Compare(sign=">", left=0, right=4),
        s.AllOf(of=[3, 5]),
    ]
    assert [rule.when for rule in small.rules] == [6, 3, None]
    assert large.nodes == []


def test_a_program_holds_what_others_wait_for_and_no_more():
    sure, surer = cmp(MAXPROB, ">", 0.5), cmp(MAXPROB, ">", 0.9)
    auto = automaton(
        (
            "small",
            (UNSURE, borrow("large", 4, sure)),
            (cmp(MARGIN, "<", 0.1), borrow("large", 8, surer)),
            (cmp(MARGIN, "<", 0.2), borrow("large", 2, sure)),
            (None, COMMIT),
        ),
        ("large",),
    )

    small, large = programs.programs(auto)

    assert [rule.go.until for rule in small.rules[:3]] == [0, 1, 0]
    assert len(large.untils) == 2 and large.rules == []
    assert [node for node in large.nodes if isinstance(node, s.Signal)] == [
        s.Signal(name="maxprob")
    ]
    assert s.Signal(name="maxprob") not in small.nodes


def test_models_become_indices_in_signals_and_moves():
    auto = automaton(
        (
            "small",
            (cmp(SignalOf("count", ("large",)), "<", 3), mix(small=0.25, large=0.75)),
            (None, COMMIT),
        ),
        ("large", (None, then("small"))),
    )

    small, large = programs.programs(auto)

    assert small.nodes[0] == s.Signal(name="count", args=[1])
    assert small.rules[0].go == s.Mix(
        weights=[s.Share(model=0, weight=0.25), s.Share(model=1, weight=0.75)]
    )
    assert large.rules[0].go == s.To(model=0)


def test_a_model_that_is_only_borrowed_from_neither_looks_nor_decides():
    small, large = graphs(r2r())

    assert ids(large) == [
        "admit", "resume", "gate", "extend", "sample", "count_down", "commit", "park", "send", "finish",
    ]  # fmt: skip
    assert {"sample borrowed count_down", "count_down next commit", "commit leave park"} <= ways(
        large
    )
    assert {"sample own signals", "signals next route", "route drop park"} <= ways(small)
    assert "commit leave park" not in ways(small)


def test_a_stay_that_ends_until_something_is_watched():
    auto = automaton(
        ("small", (UNSURE, borrow("large", 4, cmp(MAXPROB, ">", 0.9))), (None, COMMIT)), ("large",)
    )

    _, large = graphs(auto)

    assert {"sample borrowed watch", "watch next count_down"} <= ways(large)
    assert s.Signals(id="watch") in large.tasks


def test_rules_that_read_nothing_need_no_signals():
    auto = automaton(("small", (None, mix(small=0.5, large=0.5))), ("large", (None, then("small"))))

    for graph in graphs(auto):
        assert "signals" not in ids(graph)
        assert "sample own route" in ways(graph)


def test_a_policy_of_one_model_sends_nothing():
    [graph] = graphs(automaton(("small", (None, COMMIT))))

    assert ids(graph) == [
        "admit", "resume", "gate", "extend", "sample", "route", "commit", "finish",
    ]  # fmt: skip
    assert {"commit stay gate", "commit ended finish"} <= ways(graph)


def test_the_hidden_state_is_returned_only_where_a_head_reads_it():
    def auto(guard):
        return automaton(
            ("small", (guard, retry("large")), (None, COMMIT)), ("large", (None, then("small")))
        )

    from dataclasses import replace

    with_head = replace(auto(cmp(HeadOf("diverge"), ">", 0.5)), heads=(HEAD,))
    unread = replace(auto(UNSURE), heads=(HEAD,))

    assert [graph.tasks[3].hidden for graph in graphs(with_head)] == [True, False]
    assert [graph.tasks[3].hidden for graph in graphs(unread)] == [False, False]


def test_only_a_move_that_drops_needs_a_way_past_the_commit():
    small, large = graphs(r_stitch())

    assert "route drop park" in ways(small) and "commit leave park" not in ways(small)
    assert "route drop park" not in ways(large) and "commit leave park" in ways(large)
    assert [task.peers for g in (small, large) for task in g.tasks if isinstance(task, s.Send)] == [
        [1],
        [0],
    ]


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (Arithmetic("+", num(1), num(2)), num(3)),
        (Arithmetic("/", num(1), num(0)), num(0)),
        (cmp(plus(num(1), num(1)), "<", 3), TRUE),
        (Comparison("==", Lit("a", "text"), Lit("b", "text")), FALSE),
        (Negation(Negation(UNSURE)), UNSURE),
        (Every((UNSURE, TRUE)), UNSURE),
        (Every((UNSURE, FALSE)), FALSE),
        (Some((UNSURE, FALSE)), UNSURE),
        (Some((UNSURE, TRUE)), TRUE),
        (
            Every((UNSURE, Every((cmp(POSITION, ">", 1), UNSURE)))),
            Every((UNSURE, cmp(POSITION, ">", 1))),
        ),
        (Every(()), TRUE),
    ],
    ids=str,
)
def test_constants_fold(expr, expected):
    assert fold(expr) == expected


def test_the_order_of_operands_is_kept():
    first, second = cmp(POSITION, ">", 1), UNSURE

    assert fold(Every((first, second))).of == (first, second)
    assert fold(Some((second, first))).of == (second, first)


def test_true_and_one_stay_apart():
    _, flag = param("flag", 1)
    auto = automaton(
        (
            "small",
            (
                both(cmp(flag, "==", 1), Comparison("==", HeadOf("h"), Lit(True, "bool"))),
                retry("large"),
            ),
            (None, COMMIT),
        ),
        ("large", (None, then("small"))),
        params=(param("flag", 1)[0],),
    )
    from dataclasses import replace

    auto = replace(auto, heads=(ir.HeadDecl("h", "linear", "h", "small", (), at(1)),))

    constants = [
        node.value for node in programs.programs(auto)[0].nodes if isinstance(node, s.Const)
    ]
    assert [type(value) for value in constants] == [float, bool]


def test_the_ir_reads_as_text(golden):
    decl, tau = param("tau", 2, 0, 6)
    auto = automaton(
        (
            "small",
            (
                both(cmp(ENTROPY, ">", tau), Some((UNSURE, Negation(cmp(POSITION, "<", 3))))),
                retry("large"),
            ),
            (
                cmp(MARGIN, "<", 0.1),
                borrow("large", plus(num(1), SignalOf("count", ("large",))), UNSURE, keep=True),
            ),
            (None, COMMIT),
        ),
        ("large", (None, mix(small=0.5, large=0.5))),
        params=(decl,),
    )

    golden(str(auto))
