"""What the reference says a plan means: one test a sentence of the language."""

from math import exp, log

import numpy as np
import pytest

from tests.e2e.scripted import EOS, STAY, A, B, borrow, compare, const, make, position, run, says
from tokenrouter.plan import structs as s


def test_a_model_that_only_commits_writes_alone():
    trace = run(make([s.Program(rules=[STAY])]), 3)

    assert trace.tokens == [3] * 6
    assert trace.rules == [0] * 6
    assert (trace.finish, trace.switches, trace.forwards) == ("length", 0, [6])


def test_padding_rows_are_never_sampled_and_equal_logits_go_to_the_lowest_id():
    trace = run(
        make([s.Program(rules=[STAY])]), lambda ids: np.array([0, 2, 2, 0, 0, 0, 0, 0, 9.0])
    )

    assert trace.tokens == [1] * 6
    assert trace.steps[0].slack.gap == 0


def test_the_logprob_is_that_of_the_real_vocabulary_before_temperature():
    trace = run(make([s.Program(rules=[STAY])]), 3, temperature=0.01)

    assert trace.steps[0].logprob == pytest.approx(5 - log(exp(5) + 7))


def test_commit_then_hands_the_next_position_over():
    to_b = s.Program(rules=[s.Rule(when=None, keep=True, go=s.To(model=B))])
    to_a = s.Program(rules=[s.Rule(when=None, keep=True, go=s.To(model=A))])

    trace = run(make([to_b, to_a]), 3, 4)

    assert trace.tokens == [3, 4, 3, 4, 3, 4]
    assert trace.models == [A, B, A, B, A, B]
    assert trace.switches == 5


def test_a_model_reads_what_the_others_wrote():
    to_b = s.Program(rules=[s.Rule(when=None, keep=True, go=s.To(model=B))])
    to_a = s.Program(rules=[s.Rule(when=None, keep=True, go=s.To(model=A))])

    trace = run(make([to_b, to_a]), lambda ids: says(len(ids)), lambda ids: says(ids[-1]))

    assert trace.tokens[:4] == [2, 2, 4, 4]


def test_retry_drops_the_candidate_and_the_other_model_decides_this_position():
    program = s.Program(
        nodes=position("==", 1), rules=[s.Rule(when=2, keep=False, go=s.To(model=B)), STAY]
    )
    back = s.Program(rules=[s.Rule(when=None, keep=True, go=s.To(model=A))])

    trace = run(make([program, back]), 3, 4)

    assert trace.tokens == [3, 4, 3, 3, 3, 3]
    assert trace.models == [A, B, A, A, A, A]
    assert trace.forwards == [6, 1]


def test_a_model_that_had_its_turn_is_not_asked_again_and_the_last_candidate_is_kept():
    retry_b = s.Program(rules=[s.Rule(when=None, keep=False, go=s.To(model=B))])
    retry_a = s.Program(rules=[s.Rule(when=None, keep=False, go=s.To(model=A))])

    trace = run(make([retry_b, retry_a]), 3, 4)

    # B keeps position 0 and stays; at position 1 it may ask A again, which keeps it.
    assert trace.tokens == [4, 3, 4, 3, 4, 3]
    assert trace.rules == [0] * 6
    assert trace.forwards == [6, 6]


def test_the_dropped_candidate_may_be_an_end_of_sequence():
    program = s.Program(rules=[s.Rule(when=None, keep=False, go=s.To(model=B))])

    trace = run(make([program, s.Program(rules=[STAY])]), EOS, 4)

    assert trace.tokens == [4] * 6


@pytest.mark.parametrize("keep", [False, True])
def test_borrow_lets_the_other_model_write_n_tokens_without_its_rules(keep):
    own = s.Program(rules=[s.Rule(when=None, keep=True, go=s.Stop())])

    trace = run(make([borrow(B, 2, keep), own]), 3, 4, max_tokens=7)

    assert trace.models == ([A, B, B, A, B, B, A] if keep else [B] * 7)
    assert trace.rules == ([0, None, None, 0, None, None, 0] if keep else [None] * 7)
    assert trace.forwards == ([3, 4] if keep else [4, 7])
    assert trace.switches == (4 if keep else 7)


@pytest.mark.parametrize(("n", "models"), [(0.99, [A, A, A]), (1, [B, B, B]), (-3, [A, A, A])])
def test_a_borrow_of_less_than_one_token_is_passed_over(n, models):
    program = borrow(B, n)
    program = s.Program(nodes=program.nodes, rules=[*program.rules, STAY])

    trace = run(make([program, s.Program()]), 3, 4, max_tokens=3)

    assert trace.models == models


def test_a_borrow_of_a_fraction_is_rounded_down():
    trace = run(make([borrow(B, 2.9, keep=True), s.Program()]), 3, 4)

    assert trace.models == [A, B, B, A, B, B]


def test_borrow_until_keeps_the_token_that_the_condition_holds_on():
    lender = s.Program(nodes=compare(s.Signal(name="since_switch"), ">=", 1), untils=[2])

    trace = run(make([borrow(B, 5, True, until=0), lender]), 3, 4, max_tokens=7)

    assert trace.models == [A, B, B, A, B, B, A]


def test_borrow_until_ends_at_the_latest_after_n_tokens():
    lender = s.Program(nodes=position("<", 0), untils=[2])

    trace = run(make([borrow(B, 3, True, until=0), lender]), 3, 4, max_tokens=5)

    assert trace.models == [A, B, B, B, A]


def test_stop_ends_the_request_with_the_candidate_kept():
    program = s.Program(
        nodes=position("==", 2), rules=[s.Rule(when=2, keep=True, go=s.Stop()), STAY]
    )

    trace = run(make([program]), 3)

    assert (trace.tokens, trace.finish) == ([3, 3, 3], "stop")
    assert trace.rules == [1, 1, 0]


def test_end_of_sequence_ends_a_request_also_inside_a_borrowed_stay():
    trace = run(make([borrow(B, 5, keep=True), s.Program()]), 3, EOS)

    assert (trace.tokens, trace.models, trace.finish) == ([3, EOS], [A, B], "stop")


def test_ignore_eos_lets_it_pass_and_a_stop_id_ends_all_the_same():
    plan = make([s.Program(rules=[STAY])])

    assert run(plan, EOS, ignore_eos=True).tokens == [EOS] * 6
    assert run(plan, 3, ignore_eos=True, stop_ids=[3]).finish == "stop"


def test_the_smallest_context_ends_a_request():
    trace = run(make([s.Program(rules=[STAY])], context=5), 3, prompt=(1, 2))

    assert (len(trace.tokens), trace.finish) == (3, "length")


def test_since_switch_counts_steps_since_arrival_and_a_return_is_an_arrival():
    nodes = compare(s.Signal(name="since_switch"), ">=", 2)
    nodes.append(const(1))
    program = s.Program(
        nodes=nodes, rules=[s.Rule(when=2, keep=True, go=s.Borrow(model=B, most=3)), STAY]
    )

    trace = run(make([program, s.Program()]), 3, 4, max_tokens=9)

    assert trace.models == [A, A, A, B, A, A, A, B, A]


def test_count_and_share_speak_of_committed_tokens_without_the_candidate():
    nodes = compare(s.Signal(name="share", args=[A]), ">", 0.5)
    program = s.Program(nodes=nodes, rules=[s.Rule(when=2, keep=False, go=s.To(model=B)), STAY])
    back = s.Program(rules=[s.Rule(when=None, keep=True, go=s.To(model=A))])

    # 0/0 is 0; then 1/1, 1/2, 2/3, ...
    assert run(make([program, back]), 3, 4).models == [A, B, A, B, A, B]


def test_a_window_looks_at_the_last_steps_at_its_own_model_dropped_candidates_included():
    # A sees positions 0, 1, 2 and drops the last, whose mean with the one before is 1.5.
    nodes = [s.Signal(name="position"), s.Window(kind="mean", of=0, n=2), const(1)]
    nodes.append(s.Compare(sign=">", left=1, right=2))
    program = s.Program(nodes=nodes, rules=[s.Rule(when=3, keep=False, go=s.To(model=B)), STAY])
    twice = s.Program(
        nodes=position("==", 4), rules=[s.Rule(when=2, keep=True, go=s.To(model=A)), STAY]
    )

    trace = run(make([program, twice]), 3, 4, max_tokens=9)

    # Back at A for position 5: the last two that it saw are 2 and 5.
    assert trace.models == [A, A, B, B, B, B, B, B, B]
    assert trace.forwards == [4, 7]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("max", [0, 1, 2, 3]),
        ("mean", [0, 0.5, 1, 2]),
        ("ewma", [0, 0.5, 1.25, 2.25]),  # weight 2 / (3 + 1)
    ],
)
def test_a_window_joins_the_last_n_values_and_fewer_at_the_start(kind, values):
    for at, value in enumerate(values):
        nodes = [s.Signal(name="position"), s.Window(kind=kind, of=0, n=3), const(value)]
        nodes.append(s.Compare(sign="==", left=1, right=2))
        program = s.Program(nodes=nodes, rules=[s.Rule(when=3, keep=True, go=s.Stop()), STAY])

        assert len(run(make([program]), 3).tokens) == at + 1


def test_sets_read_the_old_values_and_happen_only_on_the_rule_that_fired():
    # a, b = b, a + 1 while position < 4; then B is borrowed for a tokens.
    nodes = [*position("<", 3), s.VarRef(var=0), s.VarRef(var=1), const(1)]
    nodes.append(s.Arith(sign="+", left=3, right=5))
    swap = [s.Assign(var=0, value=4), s.Assign(var=1, value=6)]
    program = s.Program(
        nodes=nodes,
        rules=[
            s.Rule(when=2, keep=True, go=s.Stay(), sets=swap),
            s.Rule(when=None, keep=True, go=s.Borrow(model=B, most=3)),
        ],
    )
    variables = [
        s.Var(name=name, unit="count", value=value) for name, value in (("a", 0.0), ("b", 2.0))
    ]

    # (0, 2) -> (2, 1) -> (1, 3) -> (3, 2)
    trace = run(make([program, s.Program()], vars=variables), 3, 4, max_tokens=9)

    assert trace.models == [A, A, A, A, B, B, B, A, B]


def test_params_and_metadata_decide_where_a_request_starts():
    start = s.Start(
        nodes=[
            s.Signal(name="prompt_tokens"),
            s.ParamRef(param=0),
            s.Compare(sign=">", left=0, right=1),
            s.RequestField(name="tier", default="free"),
            s.Const(value="paid", unit="text"),
            s.Compare(sign="==", left=3, right=4),
            s.AnyOf(of=[2, 5]),
        ],
        rules=[
            s.StartRule(when=6, go=s.To(model=B)),
            s.StartRule(when=None, go=s.To(model=A)),
        ],
    )
    limit = s.Param(name="limit", unit="count", value=3.0)
    plan = make([s.Program(rules=[STAY])] * 2, start, params=[limit])

    def first(**more):
        return run(plan, 3, 4, **more).models[0]

    assert first() == A
    assert first(prompt=(1,) * 4) == B
    assert first(params={"limit": 1.0}) == B
    assert first(metadata={"tier": "paid"}) == B
    assert first(metadata={"tier": 7}) == A
