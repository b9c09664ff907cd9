"""What the reference says a plan means, on models whose logits are written down: one test a sentence of the language.

Vocabulary: ids 0..7, end of sequence 7. A scripted model writes what its function says for the ids so far.
"""

from collections.abc import Callable
from itertools import pairwise
from math import exp, log

import numpy as np
import pytest

from tokenrouter.plan import structs as s
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.reference import Reference, Trace
from tokenrouter.runtime.reference.draws import CHANCE, MIX, SAMPLE, philox, uniform

SIZE, EOS = 8, 7
A, B, C = 0, 1, 2
STAY = s.Rule(when=None, keep=True, go=s.Stay())


def says(token: int, logit: float = 5.0) -> np.ndarray:
    """Logits that prefer one token, in a head with two rows of padding that would win."""
    row = np.zeros(SIZE + 2)
    row[token] = logit
    row[SIZE:] = 50.0
    return row


def model(name: str, context: int) -> s.Model:
    return s.Model(
        name=name,
        use=name,
        fingerprint=name,
        family="llama",
        dtype="float32",
        stop_ids=[EOS],
        prefill="lazy",
        vocab_size=SIZE + 2,
        context=context,
        layers=1,
        hidden_size=1,
        kv_bytes_per_token=1,
        weight_bytes=1,
    )


def make(programs: list[s.Program], start: s.Start | int = A, context: int = 99, **more) -> s.Plan:
    if isinstance(start, int):
        start = s.Start(rules=[s.StartRule(when=None, go=s.To(model=start))])
    n = len(programs)
    return s.Plan(
        plan_version=1,
        min_reader=1,
        producer="by hand",
        policy="test",
        program_hash="",
        tuning_hash="",
        models=[model("abc"[i], context) for i in range(n)],
        tokenizer=s.Tokenizer(digest="", size=SIZE, eos_ids=[EOS], template_from=0),
        start=start,
        programs=programs,
        subservers=[],
        windows=s.Windows(
            max_active=1, table=[[1]] * n, max_wait_ms=1.0, objective="throughput", source="none"
        ),
        memory=s.Memory(page_size=16, budget_bytes=1, capacity_tokens=1024),
        estimates=s.Estimates(source="assumed", by_model=[], cost_per_token=1.0),
        provenance=s.Provenance(source="", digest="", created=""),
        surface=s.Surface(),
        **more,
    )


def run(plan: s.Plan, *models: Callable[[list[int]], np.ndarray], prompt=(1, 2), **more) -> Trace:
    """The trace of one request; a model that is an int always says that token."""
    functions = [(lambda ids, m=m: says(m)) if isinstance(m, int) else m for m in models]
    metadata, params = more.pop("metadata", None), more.pop("params", None)
    sampling = Sampling(**({"max_tokens": 6} | more))
    return Reference(plan, models=functions).generate(list(prompt), sampling, params, metadata)


def const(value: float, unit: str = "count") -> s.Const:
    return s.Const(value=value, unit=unit)


def compare(left: s.Node, sign: str, right: float) -> list[s.Node]:
    return [left, const(right), s.Compare(sign=sign, left=0, right=1)]


def position(sign: str, n: float) -> list[s.Node]:
    return compare(s.Signal(name="position"), sign, n)


def borrow(model: int, n: float, keep: bool = False, until: int | None = None) -> s.Program:
    """Borrow at every position; n is node 0."""
    rules = [s.Rule(when=None, keep=keep, go=s.Borrow(model=model, most=0, until=until))]
    return s.Program(nodes=[const(n)], rules=rules)


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


def test_a_mixture_draws_each_model_from_the_request_s_own_stream():
    mix = s.Mix(weights=[s.Share(model=A, weight=0.25), s.Share(model=B, weight=0.75)])
    program = s.Program(rules=[s.Rule(when=None, keep=True, go=mix)])
    plan = make([program, program], s.Start(rules=[s.StartRule(when=None, go=mix)]), context=999)

    trace = run(plan, 3, 4, max_tokens=400, seed=5)

    expected = [A if uniform(5, 0, 0, MIX) < 0.25 else B]
    for at in range(1, 400):
        expected.append(A if uniform(5, at, expected[-1], MIX) < 0.25 else B)
    assert trace.models == expected
    assert 0.18 < trace.models.count(A) / 400 < 0.32
    assert trace.switches == sum(a != b for a, b in pairwise(expected))
    assert run(plan, 3, 4, max_tokens=400, seed=6).models != trace.models


def test_chance_is_drawn_by_seed_position_and_model():
    program = s.Program(
        nodes=compare(s.Signal(name="chance"), "<", 0.5),
        rules=[s.Rule(when=2, keep=True, go=s.To(model=B)), STAY],
    )
    other = s.Program(
        nodes=compare(s.Signal(name="chance"), "<", 0.5),
        rules=[s.Rule(when=2, keep=True, go=s.To(model=A)), STAY],
    )

    trace = run(make([program, other]), 3, 4, max_tokens=50, seed=9)

    for at in range(49):
        moves = uniform(9, at, trace.models[at], CHANCE) < 0.5
        assert (trace.models[at + 1] != trace.models[at]) == moves
    assert all(step.slack.threshold == np.inf for step in trace.steps)


def test_a_sample_is_the_first_id_in_order_of_likelihood_whose_running_sum_exceeds_the_draw():
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3, 1e-300, 1e-300, 1e-300, 1e-300]))
    plan = make([s.Program(rules=[STAY])], context=999)

    trace = run(plan, lambda ids: logits, temperature=1.0, max_tokens=300, seed=3)

    edges = [(0.4, 1), (0.7, 3), (0.9, 2), (1.0, 0)]
    for at, step in enumerate(trace.steps):
        draw = uniform(3, at, A, SAMPLE)
        assert step.token == next(token for edge, token in edges if draw < edge)
        nearest = min(abs(draw - edge) for edge, _ in edges[:3])
        assert step.slack.boundary == pytest.approx(nearest, abs=1e-7)
    assert set(trace.tokens) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("shape", "kept"),
    [
        ({"top_k": 2}, {1, 3}),
        ({"top_p": 0.65}, {1, 3}),
        ({"top_p": 0.7001}, {1, 3, 2}),
        ({"top_p": 0.01}, {1}),
        ({"min_p": 0.6}, {1, 3}),
        ({"top_k": 3, "top_p": 0.75}, {1, 3}),  # of 0.9 that is left, 0.7 is more than 75 %
        ({"top_k": 1, "min_p": 0.01}, {1}),
        ({"temperature": 0.1}, {1, 3}),
    ],
)
def test_truncation_keeps_a_prefix_of_the_order(shape, kept):
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3, 1e-300, 1e-300, 1e-300, 1e-300]))
    plan = make([s.Program(rules=[STAY])], context=999)

    trace = run(plan, lambda ids: logits, max_tokens=300, **({"temperature": 1.0} | shape))

    assert set(trace.tokens) == kept


def test_a_deferral_column_is_never_sampled_and_left_out_of_the_softmax():
    program = s.Program(
        nodes=compare(s.Signal(name="column", args=[5]), ">", 0.5),
        rules=[s.Rule(when=2, keep=False, go=s.To(model=B)), STAY],
    )

    def first(ids):
        row = says(3)
        row[5] = 9.0 if len(ids) == 3 else -9.0
        return row

    trace = run(make([program, s.Program(rules=[STAY])]), first, 5, max_tokens=3)

    assert trace.tokens == [3, 5, 5]
    assert trace.steps[0].logprob == pytest.approx(5 - log(exp(5) + 6))


SIGNALS = {
    "entropy": lambda p: -sum(x * log(x) for x in p),
    "entropy_norm": lambda p: -sum(x * log(x) for x in p) / log(8),
    "varentropy": lambda p: sum(x * log(x) ** 2 for x in p) - sum(x * log(x) for x in p) ** 2,
    "maxprob": max,
    "margin": lambda p: sorted(p)[-1] - sorted(p)[-2],
    "mass": lambda p: sum(sorted(p)[-3:]),
    "rank": lambda p: 1,
    "logprob": lambda p: log(max(p)),
}


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_of_the_logits_is_its_formula(name):
    logits = np.array([0.3, -1.2, 2.5, 0.0, 1.1, -0.7, 0.9, 0.2])
    p = [exp(x) / sum(map(exp, logits)) for x in logits]
    want = SIGNALS[name](p)
    args = [3] if name == "mass" else []

    def stops(threshold):
        program = s.Program(
            nodes=compare(s.Signal(name=name, args=args), ">", threshold),
            rules=[s.Rule(when=2, keep=True, go=s.Stop()), STAY],
        )
        trace = run(make([program]), lambda ids: logits)
        distance = abs(want - threshold)
        assert trace.steps[0].slack.threshold == pytest.approx(distance, abs=1e-9)
        return len(trace.tokens) == 1

    assert stops(want - 1e-6)
    assert not stops(want + 1e-6)


def test_slack_covers_the_dropped_candidates_of_its_position():
    program = s.Program(
        nodes=compare(s.Signal(name="maxprob"), ">", 0.1),
        rules=[s.Rule(when=2, keep=False, go=s.To(model=B)), STAY],
    )

    trace = run(make([program, s.Program(rules=[STAY])]), lambda ids: says(3, 0.001), 4)

    assert trace.steps[0].slack.gap == pytest.approx(0.001)
    assert trace.steps[0].slack.threshold == pytest.approx(0.025, abs=1e-3)
    assert trace.steps[1].slack.gap == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (
            (0xFFFFFFFF,) * 2,
            (0xFFFFFFFF,) * 4,
            (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
        ),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(key, counter, words):
    assert philox(key, counter) == words
