"""Draws and random numbers are those of the CPU path."""

from importlib import import_module

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenrouter_kernels import SamplingParams, seeds
from tokenrouter_kernels import greedy as reference_greedy
from tokenrouter_kernels import sample as reference
from tokenrouter_kernels import triton as fast
from tokenrouter_kernels import uniform as reference_uniform

INF = float("inf")
LAST = 1 - 2.0**-53


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    module = import_module("tokenrouter_kernels.triton.sampling")
    monkeypatch.setattr(module, "_BLOCK", 64)


@pytest.mark.parametrize("rows", [1, 128, 130])
def test_random_numbers_are_those_of_the_cpu_to_the_bit(rows):
    torch.manual_seed(0)
    seed = torch.randint(-(2**63), 2**63 - 1, (rows,))
    seed[0] = seeds([2**64 - 1])[0]
    position = torch.randint(0, 2**40, (rows,))

    for model, purpose in ((0, 0), (7, 2)):
        got = fast.uniform(seed, position, model, purpose)
        assert torch.equal(got, reference_uniform(seed, position, model, purpose))


@pytest.mark.parametrize("size", [1, 63, 64, 130])
def test_the_largest_logit_wins_ties_to_the_lowest_id(size, apart):
    torch.manual_seed(1)
    logits = (2 * torch.randn(5, size)).round()
    logits[1] = -INF
    logits[2] = -0.0
    logits[2, size // 2 :] = 0.0
    logits[3] = -3.0

    assert torch.equal(fast.greedy(apart(logits)), reference_greedy(logits))


# Temperature, top_k, top_p, min_p.
ROWS = [
    (0.0, 3, 0.5, 0.1),
    (0.7, 5, 1.0, 0.0),
    (1.3, 0, 0.8, 0.0),
    (2.0, 0, 1.0, 0.1),
    (0.9, 40, 0.95, 0.02),
    (1.0, 1, 1.0, 0.0),
    (1.0, 1000, 0.0, 0.0),
]


@pytest.mark.parametrize("kind", ["spread", "ties", "banned", "flat"])
def test_draws_are_those_of_the_cpu(kind, apart, monkeypatch):
    monkeypatch.setattr(import_module("tokenrouter_kernels.triton.sampling"), "_WAYS", 256)
    torch.manual_seed(2)
    logits = 3 * torch.randn(len(ROWS), 70)
    if kind == "ties":
        logits = logits.round()
    if kind == "banned":
        logits[:, 3:66] = -INF
    if kind == "flat":
        logits[:] = 2.5
    params = SamplingParams.of(ROWS)
    for u in (0.61, LAST):
        uniforms = torch.full((len(ROWS),), u, dtype=torch.float64)

        got = fast.sample(apart(logits), params, uniforms)

        assert torch.equal(got, reference(logits, params, uniforms)), u


@settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_any_draw_is_that_of_the_cpu(data):
    size = data.draw(st.sampled_from((2, 64, 70)))
    whole = st.integers(-6, 6).map(float) | st.just(-INF) | st.floats(-30, 30, width=32)
    row = data.draw(st.lists(whole, min_size=size, max_size=size))
    row[data.draw(st.integers(0, size - 1))] = 0.0  # not all are banned
    params = SamplingParams.of(
        [
            (
                data.draw(st.sampled_from((0.1, 0.7, 1.0, 5.0))),
                data.draw(st.sampled_from((0, 0, 1, 3, 50))),
                data.draw(st.sampled_from((1.0, 0.9, 0.5, 0.0))),
                data.draw(st.sampled_from((0.0, 0.0, 0.05, 1.0))),
            )
        ]
    )
    uniforms = torch.tensor([data.draw(st.floats(0, LAST))], dtype=torch.float64)
    logits = torch.tensor([row])

    assert torch.equal(fast.sample(logits, params, uniforms), reference(logits, params, uniforms))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_logits_and_padding(dtype):
    torch.manual_seed(5)
    logits = (3 * torch.randn(3, 130)).to(dtype)
    logits[:, 67:] = 99.0
    params = SamplingParams.of([(1.0, 0, 0.9, 0.0), (0.8, 7, 1.0, 0.0), (0.0, 0, 1.0, 0.0)])
    uniforms = torch.tensor([0.3, 0.99, 0.5], dtype=torch.float64)

    got = fast.sample(logits, params, uniforms, vocabulary=67)

    assert torch.equal(got, reference(logits[:, :67].float(), params, uniforms))
