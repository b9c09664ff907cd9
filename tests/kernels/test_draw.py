"""Tokens and uniform numbers drawn in compiled kernels: the definition in plain Python, and torch's meaning of it."""

import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenrouter_kernels import SamplingParams, choose, philox, sampling, seeds
from tokenrouter_kernels.native import draw

from tests.kernels.compiled import each_kind, library  # noqa: F401
from tests.kernels.test_sampling import by_definition, row

INF = math.inf


def drawn(logits, params, uniforms):
    return draw.sample(library(), logits, params, uniforms).tolist()


@settings(max_examples=300, deadline=None)
@given(st.lists(row, min_size=1, max_size=5))
def test_each_row_is_drawn_as_defined_whatever_its_neighbours_ask_for(rows):
    logits = torch.tensor([r[0] for r in rows])
    uniforms = torch.tensor([r[5] for r in rows], dtype=torch.float64)

    got = drawn(logits, SamplingParams.of([r[1:5] for r in rows]), uniforms)

    assert got == [by_definition(*r) for r in rows]


def many_params(n):
    generator = torch.Generator().manual_seed(4)

    def pick(values):
        return [values[i] for i in torch.randint(len(values), (n,), generator=generator).tolist()]

    rows = zip(
        pick([0.0, 0.3, 0.8, 1.0, 1.5, 30.0]),
        pick([0, 0, 1, 7, 40, 400, 3000, 10**6]),
        pick([1.0, 1.0, 0.05, 0.9, 0.999]),
        pick([0.0, 0.0, 0.02, 0.5]),
        strict=True,
    )
    return SamplingParams.of(list(rows))


@pytest.mark.parametrize("spread", [0.02, 0.2, 3.0, 12.0])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("vocabulary", [100, 2001, 5003])
def test_it_draws_what_torch_draws_from_peaked_and_flat_rows(vocabulary, ties, spread):
    torch.manual_seed(vocabulary)
    n = 60
    logits = spread * torch.randn(n, vocabulary)
    if ties:
        logits = (logits * 2).round() / 2
    logits[: n // 3, ::3] = -INF
    params, uniforms = many_params(n), torch.rand(n, dtype=torch.float64)
    uniforms[:3] = 1 - 2**-53

    assert drawn(logits, params, uniforms) == sampling.sample(logits, params, uniforms).tolist()


def test_a_row_among_padding_and_others_gives_the_token_that_it_gives_alone():
    torch.manual_seed(5)
    padded = 3 * torch.randn(12, 49152 + 64)
    logits, params = padded[:, :49152], many_params(12)
    padded[:, 49152:] = 99.0
    uniforms = torch.rand(12, dtype=torch.float64)

    crowd = drawn(logits, params, uniforms)

    for at in range(12):
        own = SamplingParams(*(values[at : at + 1] for values in params))
        assert drawn(logits[at : at + 1].clone(), own, uniforms[at : at + 1]) == [crowd[at]]


def test_a_banned_id_is_never_drawn_not_even_by_the_last_draw():
    logits = torch.tensor([[0.0, -INF, 1.0, -INF]]).repeat(3, 1)
    params = SamplingParams.of([(1.0, 0, 1.0, 0.0), (1.0, 4, 1.0, 0.0), (1.0, 3, 1.0, 0.0)])

    assert drawn(logits, params, torch.full((3,), 1 - 2**-53, dtype=torch.float64)) == [0, 0, 0]


NO_NUMBERS = """
import torch
from tests.kernels.test_draw import SamplingParams, draw, library

nan, inf = float("nan"), float("inf")
few = torch.full((40,), nan)
few[[3, 17, 38]] = torch.tensor([1.0, 4.0, -2.0])
early = torch.full((40,), nan)
early[1], early[30] = 9.0, 1.0
rows = {
    "none": torch.full((40,), nan),
    "few": few,
    "early": early,
    "banned": torch.full((40,), -inf),
    "some banned": torch.where(torch.arange(40) % 2 == 0, nan, -inf),
    "infinite": torch.where(torch.arange(40) == 7, inf, 0.0),
}
for name, row in rows.items():
    for given in [(1.0, 0, 1.0, 0.0), (1.0, 7, 1.0, 0.0), (0.5, 7, 0.9, 0.0), (1.0, 0, 0.9, 0.1), (0.0, 0, 1.0, 0.0)]:
        for u in (0.0, 0.5, 1 - 2**-53):
            uniforms = torch.tensor([u], dtype=torch.float64)
            print(name, *draw.sample(library(), row[None], SamplingParams.of([given]), uniforms).tolist(), sep=",", flush=True)
"""


def test_logits_that_are_no_numbers_are_never_drawn_where_there_are_others_and_nothing_breaks():
    # In a process of its own: what reads beside its arrays may end it.
    done = subprocess.run([sys.executable, "-c", NO_NUMBERS], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    lines = [line.split(",") for line in done.stdout.splitlines()]
    assert len(lines) == 6 * 5 * 3
    may = {"few": {3, 17, 38}, "early": {1, 30}, "infinite": {7}}
    for name, got in lines:
        assert int(got) in may.get(name, range(40)), (name, got)


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**40)), min_size=1, max_size=9),
    st.integers(0, 7),
    st.integers(0, 2),
)
def test_uniform_numbers_are_those_of_torch_to_the_bit(rows, model, purpose):
    seed = seeds([seed for seed, _ in rows])
    position = torch.tensor([position for _, position in rows])

    got = draw.uniform(library(), seed, position, model, purpose)

    assert torch.equal(got, philox.uniform(seed, position, model, purpose))


def test_steps_draw_with_it_where_logits_are_float32_on_a_cpu_and_with_torch_elsewhere(monkeypatch):
    asked = []
    monkeypatch.setattr(draw, "sample", lambda *a: asked.append("sample"))
    monkeypatch.setattr(draw, "uniform", lambda *a: asked.append("uniform"))
    logits, params = torch.randn(2, 5), many_params(2)
    uniforms = torch.rand(2, dtype=torch.float64)

    choose.sample(logits.double(), params, uniforms)
    assert asked == []

    choose.sample(logits, params, uniforms)
    choose.uniform(seeds([1, 2]), torch.tensor([3, 4]), 0, 0)
    assert asked == ["sample", "uniform"]
