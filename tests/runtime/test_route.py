"""Route programs over a batch: nodes, rules, windows, draws, and the fine print on retries and stays."""

import pytest
import tokenrouter_kernels as kernels
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.runtime.toy import above, plan, rule
from tokenrouter.plan import structs as s
from tokenrouter.runtime.messages import RouteState, Sampling
from tokenrouter.runtime.random import CHANCE, MIX, SAMPLE, uniform
from tokenrouter.runtime.route import Router
from tokenrouter.runtime.row import Output, Row
from tokenrouter.runtime.scheduler import Chunk
from tokenrouter.runtime.sequence import Sequence
from tokenrouter.runtime.start import first_owner
from tokenrouter.runtime.state import Decision
from tokenrouter.runtime.vocabulary import Vocabulary
from tokenrouter.signals import lexical_class

FLAT, SHARP = [0.0] * 24, [9.0] + [0.0] * 23  # entropies ln 24 and nearly 0


def rows(*logits, states=None, tokens=None, **fields):
    """A batch of requests with these logits, one a row."""
    output = Output(torch.tensor(logits, dtype=torch.float64), None, fields.pop("deferred", []))
    output.tokens = torch.tensor(tokens or [0] * len(logits))
    made = []
    for at in range(len(logits)):
        sequence = Sequence(
            request=at + 1,
            n_prompt=5,
            tokens=[1] * 6,
            sampling=Sampling(seed=at),
            params=fields.get("params", []),
            metadata=fields.get("metadata", {}),
            state=states[at] if states else state(),
            epochs=[1, 1, 1],
            seen=[6, 6, 6],
            traced=fields.get("traced", False),
        )
        row = Row(Chunk(sequence, 5, 1, True))
        row.output, row.at, row.token = output, at, int(output.tokens[at])
        made.append(row)
    return made


def state(**fields):
    return RouteState(**{"owner": 0, "counts": [0, 0, 0], **fields})


def router(program, *, model=0, vocabulary=None, **fields):
    programs = [s.Program(rules=[rule()])] * 3
    programs[model] = program
    made = plan(*programs, **fields)
    return Router(made, model, vocabulary or Vocabulary(24))


def decide(program, batch, **fields):
    made = router(program, **fields)
    made.evaluate(batch)
    made.decide(batch)
    return [row.decision for row in batch]


def value(nodes, batch, **fields):
    """The last node's value, by row."""
    program = s.Program(
        nodes=[*nodes, s.Const(value=0.0, unit="count")], rules=[], untils=[len(nodes) - 1]
    )
    made = router(program, **fields)
    values = made.evaluator.evaluate(list(range(len(nodes))), batch)
    return values.numbers(len(nodes) - 1).tolist()


def test_the_first_rule_that_holds_decides_row_by_row():
    nodes = [*above("entropy", 1.0), *above("entropy", 3.0, first=3)]
    program = s.Program(
        nodes=nodes, rules=[rule(s.To(model=2), 5, keep=False), rule(s.To(model=1), 2), rule()]
    )

    decisions = decide(program, rows(FLAT, SHARP, [*FLAT[:1], 2.0, *FLAT[2:]]))

    assert decisions == [Decision(False, 2, 0), Decision(True, 0, 2), Decision(True, 1, 1)]


def test_a_signal_in_bfloat16_is_a_number_like_others():
    batch = rows(FLAT, SHARP)
    batch[0].output.figures["entropy", ()] = torch.tensor([1.5, 0.25], dtype=torch.bfloat16)

    assert value([s.Signal(name="entropy")], batch) == [1.5, 0.25]


def test_a_guard_that_nobody_evaluated_does_not_hold():
    program = s.Program(nodes=above("entropy", 1.0), rules=[rule(s.To(model=1), 2), rule()])
    batch = rows(FLAT)

    router(program).decide(batch)

    assert batch[0].decision == Decision(True, 0, 1)


def test_a_retry_of_a_model_that_had_its_turn_commits_and_stays():
    program = s.Program(rules=[rule(s.To(model=1), keep=False)])

    first, again = decide(program, rows(FLAT, FLAT, states=[state(), state(tried=0b010)]))

    assert first == Decision(False, 1, 0)
    assert again == Decision(True, 0, 0)


@pytest.mark.parametrize(("most", "fired"), [(0.5, 1), (1.0, 0), (2.9, 0), (-1.0, 1)])
def test_a_stay_of_less_than_a_token_is_passed_over(most, fired):
    program = s.Program(
        nodes=[s.Const(value=most, unit="count")],
        rules=[rule(s.Borrow(model=1, most=0), keep=False), rule(s.To(model=2))],
    )

    (decision,) = decide(program, rows(FLAT))

    assert decision.rule == fired
    assert decision.borrowed == (int(most) if fired == 0 else 0)


def test_a_candidate_is_kept_where_even_the_last_rule_is_passed_over():
    program = s.Program(
        nodes=[s.Const(value=0.0, unit="count")],
        rules=[rule(s.Borrow(model=1, most=0), keep=False)],
    )

    (decision,) = decide(program, rows(FLAT))

    assert (decision.keep, decision.target, decision.borrowed) == (True, 0, 0)


def test_the_length_of_a_stay_is_read_for_each_request():
    program = s.Program(nodes=[s.VarRef(var=0)], rules=[rule(s.Borrow(model=1, most=0)), rule()])
    batch = rows(FLAT, FLAT, states=[state(vars=[3.0]), state(vars=[0.0])])

    decisions = decide(program, batch, vars_=[s.Var(name="n", unit="count", value=1.0)])

    assert decisions == [Decision(True, 1, 0, borrowed=3), Decision(True, 0, 1)]


def test_sets_read_the_old_values_and_only_the_fired_rule_sets():
    nodes = [*above("entropy", 1.0), s.VarRef(var=0), s.VarRef(var=1)]
    swap = [s.Assign(var=0, value=4), s.Assign(var=1, value=3)]
    program = s.Program(nodes=nodes, rules=[rule(when=2, sets=swap), rule()])
    batch = rows(FLAT, SHARP, states=[state(vars=[1.0, 2.0])] * 2)
    two = [s.Var(name=name, unit="count", value=0.0) for name in "ab"]

    decisions = decide(program, batch, vars_=two)

    assert [d.vars for d in decisions] == [[2.0, 1.0], None]


def test_stop_ends_the_request():
    assert decide(s.Program(rules=[rule(s.Stop())]), rows(FLAT)) == [Decision(True, None, 0)]


def test_a_mixture_is_drawn_for_the_position_that_it_decides():
    mix = s.Mix(weights=[s.Share(model=at, weight=w) for at, w in ((0, 0.5), (1, 0.3), (2, 0.2))])
    states = [state(position=position) for position in range(40)]

    decisions = decide(s.Program(rules=[rule(mix)]), rows(*[FLAT] * 40, states=states))

    for at, decision in enumerate(decisions):
        u = uniform(at, at + 1, 0, MIX)
        assert decision.target == (0 if u < 0.5 else 1 if u < 0.8 else 2)
    assert {d.target for d in decisions} == {0, 1, 2}


def test_windows_look_at_the_last_values_of_this_model_and_leave_the_old_state_alone():
    nodes = [
        s.Signal(name="position"),
        s.Window(kind="mean", of=0, n=2),
        s.Window(kind="max", of=0, n=3),
        s.Window(kind="ewma", of=0, n=3),
    ]
    made = router(s.Program(nodes=nodes, untils=[]))
    windows: list = []
    seen = []
    for position in (5, 3, 1, 2):
        before = state(position=position, windows=windows)
        (row,) = rows(FLAT, states=[before])
        values = made.evaluator.evaluate([0, 1, 2, 3], [row])
        seen.append([values.numbers(at).item() for at in (1, 2, 3)])
        assert before.windows is windows
        windows = row.windows

    assert seen == [[5, 5, 5], [4, 5, 4], [2, 5, 2.5], [1.5, 3, 2]]
    assert windows == [[[1, 2], [3, 1, 2], [3, 1, 2]], [], []]


def test_only_the_until_of_a_borrowed_stay_is_evaluated():
    nodes = [
        *above("entropy", 1.0),
        s.Signal(name="position"),
        s.Window(kind="max", of=3, n=4),
        s.Const(value=2.0, unit="count"),
        s.Compare(sign=">", left=4, right=5),
    ]
    program = s.Program(nodes=nodes, rules=[rule(s.To(model=0), 2), rule()], untils=[6])
    made = router(program, model=1)
    stay = {"owner": 1, "home": 0, "remaining": 5, "position": 3}
    batch = rows(
        FLAT, FLAT, FLAT, states=[state(**stay, until=0), state(**stay), state(owner=1, position=3)]
    )

    made.evaluate(batch)

    assert [made.reached(row) for row in batch] == [True, False, False]
    assert [row.windows for row in batch] == [[[], [[3.0]], []], [], []]


@pytest.mark.parametrize(
    ("sign", "result"), [("+", [3.0, 1.0]), ("-", [1.0, 1.0]), ("*", [2.0, 0.0]), ("/", [2.0, 0.0])]
)
def test_arithmetic_is_total(sign, result):
    nodes = [
        s.Signal(name="switches"),
        s.Signal(name="since_switch"),
        s.Arith(sign=sign, left=0, right=1),
    ]
    states = [state(switches=2, since_switch=1), state(switches=1, since_switch=0)]

    assert value(nodes, rows(FLAT, FLAT, states=states)) == result


def test_shares_count_what_was_committed_and_nothing_of_nothing_is_zero():
    nodes = [s.Signal(name="share", args=[1])]
    states = [state(), state(position=4, counts=[1, 3, 0])]

    assert value(nodes, rows(FLAT, FLAT, states=states)) == [0.0, 0.75]


def test_request_fields_fall_back_where_the_client_sent_another_type():
    nodes = [
        s.RequestField(name="tier", default="free"),
        s.Const(value="pro", unit="text"),
        s.Compare(sign="==", left=0, right=1),
    ]

    assert value(nodes, rows(FLAT, metadata={"tier": "pro"})) == [True]
    assert value(nodes, rows(FLAT, metadata={"tier": 3.0})) == [False]
    assert value(nodes, rows(FLAT)) == [False]


def test_a_param_is_the_requests_own():
    nodes = [s.ParamRef(param=0)]
    tau = s.Param(name="tau", unit="nats", value=1.0)

    assert value(nodes, rows(FLAT, params=[0.5]), params=[tau]) == [0.5]


def test_a_deferral_column_speaks_through_its_signal_only():
    nodes = [s.Signal(name="column", args=[3]), s.Signal(name="maxprob")]
    logits = [0.0, 0.0, 0.0, 50.0] + [0.0] * 20
    made = router(s.Program(nodes=nodes, rules=[rule()]))
    (row,) = rows(logits, deferred=made.deferred)

    values = made.evaluator.evaluate([0, 1], [row])

    assert made.deferred == [3]
    assert values.numbers(0).item() == pytest.approx(1.0)
    assert values.numbers(1).item() == pytest.approx(1 / 23)


def test_the_candidates_text_is_looked_up():
    vocabulary = Vocabulary(
        24, lambda id_: [b"\n\n", b" 42", b"word", b"\xff"][min(id_, 3)], frozenset({2})
    )
    batch = rows(FLAT, FLAT, FLAT, tokens=[0, 1, 2])

    assert value([s.TokenIn(texts=["\n\n", "x"])], batch, vocabulary=vocabulary) == [1, 0, 0]
    assert value([s.ClassIs(name="number")], batch, vocabulary=vocabulary) == [0, 1, 0]
    assert value([s.ClassIs(name="special")], batch, vocabulary=vocabulary) == [0, 0, 1]
    assert value([s.ClassIs(name="word")], batch, vocabulary=vocabulary) == [0, 0, 0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("\n", "newline"),
        ("  \n ", "newline"),
        ("  ", "space"),
        (" the", "word"),
        ("naïve", "word"),
        ("3.14", "number"),
        (" 42", "number"),
        ("():", "code"),
        ("==", "code"),
        ("?", "punct"),
        (".", "punct"),
        ("a1", ""),
        ("", ""),
        ("\ufffd", ""),
    ],
)
def test_each_text_has_one_class(text, name):
    assert lexical_class(text) == name


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**31),
    st.integers(0, 7),
    st.sampled_from([SAMPLE, MIX, CHANCE]),
)
def test_the_front_end_draws_what_the_kernels_draw(seed, position, model, purpose):
    drawn = kernels.uniform(
        kernels.seeds([seed], "cpu"), torch.tensor([position]), model, purpose
    ).item()

    assert uniform(seed, position, model, purpose) == drawn
    assert (SAMPLE, MIX, CHANCE) == (kernels.SAMPLE, kernels.MIX, kernels.CHANCE)


@pytest.mark.parametrize(("n_prompt", "tier", "owner"), [(10, "free", 0), (30, "free", 1)])
def test_the_start_may_depend_on_the_prompt(n_prompt, tier, owner):
    start = s.Start(
        nodes=above("prompt_tokens", 20),
        rules=[
            s.StartRule(when=2, go=s.To(model=1)),
            s.StartRule(when=None, go=s.To(model=0)),
        ],
    )
    made = plan(*[s.Program(rules=[rule()])] * 2, start=start)

    assert first_owner(made, 0, n_prompt, [], {"tier": tier}) == owner
