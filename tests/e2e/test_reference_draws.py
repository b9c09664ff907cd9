"""What the reference draws and reads from logits: mixtures, chance, samples, signals, and how near each choice was."""

from itertools import pairwise
from math import exp, log

import numpy as np
import pytest

from tests.e2e.scripted import STAY, A, B, compare, make, run, says
from tokenrouter.plan import structs as s
from tokenrouter.runtime.reference.draws import CHANCE, MIX, SAMPLE, philox, uniform


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
