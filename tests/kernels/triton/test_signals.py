"""Signals of one pass against their references: banned ids, padding, parts, and the bits of a row."""

import math
from importlib import import_module

import pytest
import torch
import triton
import triton.language as tl
from tokenrouter_kernels import signals as reference
from tokenrouter_kernels import triton as fast
from tokenrouter_kernels.triton.online import mass_of

from tests.kernels.test_signals import ALL, INF, by_definition, some_logits

SOME = [key for key in ALL if key[1] != (1000,)] + [("mass", (40,)), ("epistemic", (400,))]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    module = import_module("tokenrouter_kernels.triton.signals")
    monkeypatch.setattr(module, "PART", 64)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", [5, 64, 323])
def test_each_signal_is_its_formula_also_where_ids_are_banned(size, dtype, apart):
    logits = some_logits(9, size, dtype)
    candidates = torch.tensor([2, 2, 4, 0, 1, 2, 3, 4, 0])

    got = fast.signals(ALL, apart(logits), candidates)

    for key in ALL:
        assert got[key].dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        rows = zip(logits.double().tolist(), candidates.tolist(), strict=True)
        formula = [by_definition(*key, row, c) for row, c in rows]
        torch.testing.assert_close(
            got[key].double(),
            torch.tensor(formula, dtype=torch.float64),
            rtol=2e-5,
            atol=2e-5,
            msg=lambda text, key=key: f"{key}: {text}",
        )


@pytest.mark.parametrize("size", [1, 2, 63, 65, 200])
def test_signals_are_those_of_the_reference(size):
    torch.manual_seed(3)
    logits = (6 * torch.randn(4, size)).round(decimals=1)
    candidates = torch.tensor([0, size - 1, size // 2, size // 3])
    keys = [key for key in SOME if key[0] != "column"]

    got = fast.signals(keys, logits, candidates)

    expected = reference(keys, logits, candidates)
    for key in keys:
        torch.testing.assert_close(
            got[key], expected[key], msg=lambda text, key=key: f"{key}: {text}"
        )


def test_logits_that_do_not_exist_are_no_evidence():
    logits = torch.tensor([[-1.0, -2.0, -3.0], [-5.0, -5.0, -0.5]], dtype=torch.float64)
    keys = [("epistemic", (10,)), ("aleatoric", (10,))]

    got = fast.signals(keys, logits, torch.tensor([0, 2]))

    expected = reference(keys, logits, torch.tensor([0, 2]))
    for key in keys:  # evidence is so small here that one logit too many shows
        torch.testing.assert_close(got[key], expected[key], rtol=1e-7, atol=0)


@pytest.mark.parametrize("padding", [1, 61, 190])
def test_the_padded_vocabulary_is_masked(padding):
    torch.manual_seed(4)
    logits = 5 * torch.randn(3, 67 + padding)
    logits[:, 67:] = 99.0
    candidates = torch.tensor([0, 66, 30])

    got = fast.signals(SOME, logits, candidates, vocabulary=67)

    expected = reference(SOME, logits[:, :67], candidates)
    for key in SOME:
        torch.testing.assert_close(
            got[key], expected[key], msg=lambda text, key=key: f"{key}: {text}"
        )


def test_a_signal_asked_for_alone_is_the_one_asked_for_with_others():
    logits = some_logits(6, 150)[::2]
    candidates = torch.tensor([2, 0, 50])

    together = fast.signals(SOME, logits, candidates)

    for key in SOME:
        alone = fast.signals([key], logits, candidates)[key]
        assert torch.equal(alone, together[key]), key


def test_a_row_alone_has_the_bits_that_it_has_in_a_crowd():
    torch.manual_seed(2)
    logits, candidates = 5 * torch.randn(3, 150), torch.arange(3)

    crowd = fast.signals(SOME, logits, candidates)

    for i in range(3):
        alone = fast.signals(SOME, logits[i : i + 1], candidates[i : i + 1])
        for key in SOME:
            assert torch.equal(alone[key], crowd[key][i : i + 1]), key


def test_a_whole_part_may_be_banned():
    logits = torch.full((2, 192), -INF)
    logits[0, 5], logits[1, 130], logits[1, 131] = 2.0, 1.0, 1.0
    candidates = torch.tensor([5, 131])

    got = fast.signals(SOME, logits, candidates)

    assert got["entropy", ()].tolist() == [0.0, pytest.approx(math.log(2))]
    assert got["margin", ()].tolist() == [1.0, 0.0]
    assert got["rank", ()].tolist() == [1.0, 2.0]


def test_only_the_program_of_a_row_that_comes_last_writes_its_figures(stored):
    key = ("entropy", ())

    found = [fast.signals([key], torch.randn(3, n), torch.arange(3))[key] for n in (64, 300)]

    assert stored(found[0]) == stored(found[1]) > 0


def test_counters_are_back_at_0_for_the_next_launch(monkeypatch):
    kept = []
    zeros = torch.zeros

    def noted(*args, **kwargs):
        kept.append(zeros(*args, **kwargs))
        return kept[-1]

    monkeypatch.setattr(torch, "zeros", noted)

    fast.signals([("entropy", ())], torch.randn(3, 200), torch.arange(3))

    assert [k.tolist() for k in kept if k.dtype == torch.int32] == [[0, 0, 0]]


@triton.jit
def mass_kernel(top_ptr, out_ptr, k):
    tl.store(out_ptr, mass_of(tl.load(top_ptr + tl.arange(0, 4)), 0.0, 4.0, k, SLOTS=4))


@pytest.mark.parametrize("k", [1, 2, 4])
def test_the_mass_of_k_of_more_logits_that_were_picked(k):
    out = torch.empty(1)

    mass_kernel[(1,)](torch.zeros(4), out, k)

    assert out.tolist() == [k / 4]
