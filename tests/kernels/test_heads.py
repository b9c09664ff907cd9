"""Head kernels: their formulas against torch's modules, and bits that do not depend on the batch in calls of one shape."""

import pytest
import torch
from tokenrouter_kernels import ACTIVATIONS, gelu
from torch.nn import functional

from tests.factories import save_head
from tokenrouter.runtime.model.head import HeadInputs, in_fixed_calls, load_head

KINDS = ("linear", "mlp", "r2r")


def inputs(rows, dtype=torch.float32, hidden=96, vocabulary=700):
    rng = torch.Generator().manual_seed(3)
    return HeadInputs(
        torch.randn(rows, hidden, generator=rng).to(dtype),
        4 * torch.randn(rows, vocabulary, generator=rng).to(dtype),
        torch.randint(vocabulary, (rows,), generator=rng),
        torch.randn(rows, hidden, generator=rng).to(dtype),
    )


def some(whole, at):
    return HeadInputs(*(getattr(whole, n)[at] for n in ("hidden", "logits", "token", "embedding")))


def test_activations_are_those_of_torch():
    x = torch.linspace(-9, 9, 331, dtype=torch.float64)

    torch.testing.assert_close(gelu(x), functional.gelu(x))
    torch.testing.assert_close(ACTIVATIONS["silu"](x), functional.silu(x))
    assert set(ACTIVATIONS) == {"relu", "gelu", "silu", "tanh", "identity"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_is_equal_to_the_bit_in_any_company_in_fixed_calls(tmp_path, kind):
    path = save_head(tmp_path / "h.safetensors", kind, hidden=96, top=100, width=72)
    head, whole = in_fixed_calls(load_head(path)), inputs(70)
    together = head(whole)

    for rows in (1, 2, 3, 7, 16, 17, 33):
        for start in (0, 5, 31):
            at = torch.arange(start, start + rows)
            assert torch.equal(head(some(whole, at)), together[at]), (rows, start)
    shuffled = torch.randperm(70, generator=torch.Generator().manual_seed(1))
    assert torch.equal(head(some(whole, shuffled)), together[shuffled])
    assert together.std() > 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_states_are_read_in_float32_and_float64_ones_in_float64(tmp_path, kind):
    head = load_head(save_head(tmp_path / "h.safetensors", kind, hidden=96))

    assert head(inputs(3, torch.bfloat16)).dtype == torch.float32
    exact = head(inputs(3, torch.float64))
    assert exact.dtype == torch.float64
    torch.testing.assert_close(head(inputs(3)), exact.float(), rtol=0, atol=1e-5)


def test_the_order_of_the_vocabulary_does_not_matter_to_an_r2r_head(tmp_path):
    head, whole = load_head(save_head(tmp_path / "h", "r2r", hidden=96)), inputs(5)

    flipped = HeadInputs(whole.hidden, whole.logits.flip(-1), whole.token, whole.embedding)

    assert torch.equal(head(whole), head(flipped))
