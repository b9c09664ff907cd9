"""Sampling against the definition written out in Python, and its independence of the batch."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenrouter_kernels import SamplingParams, greedy, sample, sampling, seeds, uniform
from tokenrouter_kernels.sampling import HEAD

INF = math.inf


def by_definition(logits, temperature, top_k, top_p, min_p, u):
    order = sorted(range(len(logits)), key=lambda i: (-logits[i], i))
    if temperature == 0:
        return order[0]
    top = logits[order[0]]
    weight = [math.exp((logits[i] - top) / temperature) for i in order]
    kept = [i for i, w in enumerate(weight) if w > 0]
    if top_k:
        kept = kept[:top_k]
    if top_p < 1:
        total, running, n = sum(weight[i] for i in kept), 0.0, 0
        for i in kept:
            running, n = running + weight[i], n + 1
            if running >= top_p * total:
                break
        kept = kept[:n]
    kept = [i for i in kept if weight[i] >= min_p * weight[0]]
    total, running = sum(weight[i] for i in kept), 0.0
    for i in kept:
        running += weight[i]
        if running > u * total:
            return order[i]
    return order[kept[-1]]


row = st.tuples(
    st.lists(
        st.sampled_from([-INF, -30.0, -2.0, -0.5, 0.0, 0.25, 1.0, 1.5, 3.0]), min_size=7, max_size=7
    ),
    st.sampled_from([0.0, 0.3, 0.8, 1.0, 2.0]),
    st.integers(0, 9),
    st.sampled_from([0.05, 0.35, 0.77, 0.9, 1.0]),
    st.sampled_from([0.0, 0.0, 0.03, 0.4, 1.0]),
    st.floats(0, 1, exclude_max=True),
).filter(lambda r: max(r[0]) > -INF)


@settings(max_examples=300, deadline=None)
@given(st.lists(row, min_size=1, max_size=5))
def test_each_row_is_sampled_as_defined_whatever_its_neighbours_ask_for(rows):
    logits = torch.tensor([r[0] for r in rows])
    params = SamplingParams.of([r[1:5] for r in rows])
    uniforms = torch.tensor([r[5] for r in rows], dtype=torch.float64)

    got = sample(logits, params, uniforms)

    assert got.tolist() == [by_definition(*r) for r in rows]


def test_greedy_takes_the_lowest_of_equal_ids():
    logits = torch.tensor([[1.0, 5.0, 5.0, -INF], [2.0, 2.0, 2.0, 2.0]])

    assert greedy(logits).tolist() == [1, 0]


@pytest.mark.parametrize("vocabulary", [323, 49152, 50001])
def test_a_row_alone_gives_the_token_that_it_gives_in_a_crowd(vocabulary, two_threads):
    torch.manual_seed(0)
    n = 8
    logits = 3 * torch.randn(n, vocabulary)
    params = SamplingParams.of(
        [
            ((i % 4) / 2, (0, 50)[i % 2], (1.0, 0.9)[i % 3 > 0], (0.0, 0.02)[i % 5 > 2])
            for i in range(n)
        ]
    )
    uniforms = uniform(seeds(list(range(n))), torch.arange(n), 0, 0)

    crowd = sample(logits, params, uniforms)
    alone = [
        sample(
            logits[i : i + 1], SamplingParams(*(p[i : i + 1] for p in params)), uniforms[i : i + 1]
        )
        for i in range(n)
    ]

    assert crowd.tolist() == torch.cat(alone).tolist()


def test_a_banned_id_is_never_drawn_not_even_by_the_last_draw():
    logits = torch.tensor([[0.0, -INF, 1.0, -INF]]).repeat(2, 1)
    params = SamplingParams.of([(1.0, 0, 1.0, 0.0), (1.0, 4, 1.0, 0.0)])

    got = sample(logits, params, torch.tensor([1 - 2**-53, 1 - 2**-53], dtype=torch.float64))

    assert got.tolist() == [0, 0]


def test_sampled_frequencies_follow_the_distribution():
    n = 40_000
    p = torch.tensor([0.5, 0.3, 0.15, 0.05])
    logits = (p.log() * 0.7).repeat(n, 1)
    uniforms = uniform(seeds([9] * n), torch.arange(n), 0, 0)

    got = sample(logits, SamplingParams.of([(0.7, 0, 1.0, 0.0)] * n), uniforms)

    counts = torch.bincount(got, minlength=4)
    chi_square = float(((counts - n * p) ** 2 / (n * p)).sum())
    assert chi_square < 14  # 3 degrees of freedom; the draws never change


def test_no_rows_give_no_tokens():
    got = sample(torch.empty(0, 5), SamplingParams.of([]), torch.empty(0, dtype=torch.float64))

    assert got.tolist() == []


@pytest.mark.parametrize("spread", [0.2, 3.0, 12.0])
@pytest.mark.parametrize("ties", [False, True])
def test_the_likeliest_ids_decide_as_the_whole_vocabulary_does(spread, ties):
    generator = torch.Generator().manual_seed(7)
    rows = [
        (temperature, top_k, top_p, min_p)
        for temperature in (0.3, 1.0, 2.5)
        for top_k in (0, 1, 40, HEAD, HEAD + 1, 2999, 5000)
        for top_p in (1.0, 0.5, 0.95)
        for min_p in (0.0, 0.03, 1e-6)
    ]
    logits = spread * torch.randn(len(rows), 3000, generator=generator)
    if ties:
        logits = (logits / spread).round() * spread
    logits[::5, 100:] = float("-inf")
    params = SamplingParams.of(rows)
    uniforms = torch.rand(len(rows), generator=generator, dtype=torch.float64)

    tokens, decided = sampling._draw_head(logits, params, uniforms)
    whole = sampling._draw_whole(logits, params, uniforms)

    assert torch.equal(tokens[decided], whole[decided])
    assert torch.equal(sampling.sample(logits, params, uniforms), whole)
    assert bool(decided.any())
    assert spread > 3 or not bool(decided.all())
