"""The claim of deterministic mode about linears: a row's bits do not depend on how many rows there are."""

import pytest
import torch
from tokenrouter_kernels import blocked_linear

# Widths of SmolLM2 and a Qwen2.5-0.5B, and tiny and odd ones.
SHAPES = [
    (576, 960),
    (576, 3072),
    (1536, 576),
    (896, 4864),
    (4864, 896),
    (32, 323),
    (17, 33),
    (13, 7),
    (257, 1023),
    (40, 96),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_row_has_the_same_bits_among_any_number_of_rows(shape, dtype, two_threads):
    torch.manual_seed(0)
    weight, x = torch.randn(shape[::-1], dtype=dtype), torch.randn(300, shape[0], dtype=dtype)

    crowd = blocked_linear(x, weight)

    for rows in (1, 2, 3, 4, 7, 15, 16, 17, 33, 100, 299):
        assert torch.equal(blocked_linear(x[:rows], weight), crowd[:rows]), rows
    for at in (1, 5, 16, 233):
        assert torch.equal(blocked_linear(x[at : at + 3], weight), crowd[at : at + 3]), at


@pytest.mark.parametrize("rows", [1, 16, 19])
def test_the_result_is_that_of_a_linear_layer(rows):
    torch.manual_seed(0)
    weight, bias, x = torch.randn(7, 5), torch.randn(7), torch.randn(rows, 5)

    got = blocked_linear(x, weight, bias)

    torch.testing.assert_close(got, torch.nn.functional.linear(x, weight, bias))
