"""Linear layers and router heads against their references."""

from itertools import pairwise

import pytest
import tokenrouter_kernels as reference
import torch
from tokenrouter_kernels import Affine, R2RBlock, R2RWeights
from tokenrouter_kernels import triton as fast
from torch.nn import functional

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 3e-2, torch.float16: 3e-3}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


def layer(columns, inner, dtype=torch.float32):
    return Affine(
        (torch.randn(columns, inner) * inner**-0.5).to(dtype), torch.randn(columns).to(dtype)
    )


@DTYPES
@pytest.mark.parametrize("activation", reference.ACTIVATIONS)
@pytest.mark.parametrize(("rows", "inner", "columns"), [(1, 1, 1), (17, 65, 33), (3, 100, 40)])
def test_a_layer_with_its_activation(rows, inner, columns, activation, dtype, apart):
    torch.manual_seed(0)
    x, to = (3 * torch.randn(rows, inner)).to(dtype), layer(columns, inner, dtype)

    got = fast.affine(apart(x), apart(to.weight), to.bias, activation)

    wide = functional.linear(x.double(), to.weight.double(), to.bias.double())
    expected = reference.ACTIVATIONS[activation](wide).to(dtype)
    torch.testing.assert_close(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_a_residual_is_added_behind_the_activation(apart):
    torch.manual_seed(0)
    x, to, residual = torch.randn(5, 40), layer(33, 40), torch.randn(5, 33)

    got = fast.affine(x, *to, "relu", apart(residual))

    torch.testing.assert_close(got, functional.linear(x, *to).relu() + residual)


@DTYPES
@pytest.mark.parametrize("widths", [(9,), (33, 17), (40, 32, 5)], ids=str)
def test_an_mlp_head(widths, dtype, apart):
    torch.manual_seed(1)
    sizes = [*widths, 1]
    layers = [layer(n, k, dtype) for k, n in pairwise(sizes)]
    activations = ["gelu", "tanh"][: len(layers) - 1]
    hidden = torch.randn(6, widths[0]).to(dtype)

    got = fast.mlp_head(apart(hidden), layers, activations)

    expected = reference.mlp_head(hidden, layers, activations)
    torch.testing.assert_close(got, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


def test_an_r2r_head_over_the_real_vocabulary():
    torch.manual_seed(2)
    blocks = [
        R2RBlock(layer(12, 12)._replace(weight=torch.randn(12)), layer(20, 12), layer(12, 20))
    ]
    norm = Affine(torch.randn(12), torch.randn(12))
    weights = R2RWeights(layer(10, 4), layer(12, 30), layer(12, 12), blocks, norm, layer(1, 12))
    hidden, embedding, logits = torch.randn(3, 10), torch.randn(3, 10), torch.randn(3, 50)

    got = fast.r2r_head(hidden, embedding, logits, weights, vocabulary=37)

    expected = reference.r2r_head(hidden, embedding, logits[:, :37], weights)
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


def test_a_row_alone_has_the_bits_that_it_has_in_a_crowd():
    torch.manual_seed(3)
    layers = [layer(33, 70), layer(1, 33)]
    hidden = torch.randn(20, 70)

    crowd = fast.mlp_head(hidden, layers, ["silu"])

    for at in range(20):
        alone = fast.mlp_head(hidden[at : at + 1], layers, ["silu"])
        assert torch.equal(alone, crowd[at : at + 1])
