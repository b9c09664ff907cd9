"""The likeliest id and the signals in compiled kernels: their formulas in plain Python, and torch's meaning of them."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenrouter_kernels import choose, sampling
from tokenrouter_kernels.native import certainty
from tokenrouter_kernels.signals import signals as plain

from tests.kernels.compiled import each_kind, library  # noqa: F401
from tests.kernels.test_signals import ALL, by_definition, some_logits

INF = math.inf


def compiled(logits, candidates, keys=ALL):
    assert certainty.fits(logits)
    return certainty.signals(library(), keys, logits, candidates)


@pytest.mark.parametrize("size", [3, 5, 15, 16, 17, 33, 323, 1024, 1031, 2049])
def test_every_signal_is_its_formula_at_every_length_of_a_tail(size):
    logits = some_logits(9, size)
    candidates = torch.tensor([2, 2, size - 1, 0, 1, 2, size // 2, size - 1, 0])

    got = compiled(logits, candidates)

    for name, args in ALL:
        expected = [
            by_definition(name, args, row, c)
            for row, c in zip(logits.double().tolist(), candidates.tolist(), strict=True)
        ]
        assert got[name, args].dtype == torch.float32
        torch.testing.assert_close(
            got[name, args].double(),
            torch.tensor(expected, dtype=torch.float64),
            rtol=4e-6,
            atol=4e-6,
            msg=lambda told, name=name: f"{name}: {told}",
        )


rows = st.integers(3, 80).flatmap(
    lambda n: st.lists(
        st.lists(
            st.one_of(st.floats(-60, 60, width=32), st.sampled_from([-INF, 0.0, 1.0, 1.0, 7.0])),
            min_size=n,
            max_size=n,
        ).filter(lambda row: max(row) > -INF),
        min_size=1,
        max_size=3,
    )
)


@settings(max_examples=200, deadline=None)
@given(rows, st.integers(0, 79))
def test_it_says_what_torch_says_in_float64_of_any_logits(rows, at):
    logits = torch.tensor(rows)
    candidates = torch.full((len(rows),), at % logits.shape[1])

    got = compiled(logits, candidates)
    expected = plain(ALL, logits.double(), candidates)

    for key in ALL:
        torch.testing.assert_close(got[key].double(), expected[key], rtol=2e-5, atol=2e-5)
    assert certainty.greedy(library(), logits).tolist() == sampling.greedy(logits).tolist()


@pytest.mark.parametrize("size", [1, 16, 17, 100, 4099])
def test_the_lowest_of_equal_ids_is_the_likeliest_wherever_they_stand(size):
    for first in {0, size // 3, size // 2, size - 1}:
        for second in {first, size - 1}:
            logits = torch.full((2, size), -3.0)
            logits[:, [first, second]] = 2.5
            logits[1, second] = 2.25 if second > first else 2.5

            assert certainty.greedy(library(), logits).tolist() == [first, first]


def test_a_row_among_padding_and_others_has_the_bits_that_it_has_alone():
    torch.manual_seed(3)
    padded = 5 * torch.randn(9, 49152 + 64)
    logits, candidates = padded[:, :49152], torch.arange(9) * 5000
    padded[:, 49152:] = 99.0

    crowd, ids = compiled(logits, candidates), certainty.greedy(library(), logits)

    for at in range(9):
        alone = compiled(logits[at : at + 1].clone(), candidates[at : at + 1])
        assert ids[at] == certainty.greedy(library(), logits[at : at + 1].clone())[0]
        for key in ALL:
            assert torch.equal(alone[key], crowd[key][at : at + 1]), key


def test_what_is_asked_for_apart_is_what_is_asked_for_together():
    logits, candidates = some_logits(9, 323), torch.arange(9)
    together = compiled(logits, candidates)

    for key in ALL:
        assert torch.equal(compiled(logits, candidates, [key])[key], together[key]), key


def test_no_rows_have_no_signals_and_no_likeliest_ids():
    logits, none = torch.empty(0, 7), torch.empty(0, dtype=torch.int64)

    assert certainty.greedy(library(), logits).tolist() == []
    assert compiled(logits, none)["entropy", ()].tolist() == []


def test_a_vocabulary_of_one_is_sure_of_itself():
    sure = {"entropy": 0.0, "entropy_norm": 0.0, "maxprob": 1.0, "margin": 1.0, "logprob": 0.0}

    got = compiled(torch.tensor([[3.0]]), torch.tensor([0]), [(name, ()) for name in sure])

    assert {name: float(values) for (name, _), values in got.items()} == sure


def test_steps_ask_it_where_logits_are_float32_on_a_cpu_and_torch_elsewhere(monkeypatch):
    asked = []
    monkeypatch.setattr(certainty, "greedy", lambda *a: asked.append("greedy"))
    monkeypatch.setattr(certainty, "signals", lambda *a: asked.append("signals"))
    logits, candidates = some_logits(9, 5), torch.zeros(9, dtype=torch.int64)

    for each in (logits.double(), logits.bfloat16(), logits.t().contiguous().t()):
        choose.greedy(each)
        choose.signals([("entropy", ())], each, candidates)
    assert asked == []

    choose.greedy(logits)
    choose.signals([("entropy", ())], logits, candidates)
    assert asked == ["greedy", "signals"]
