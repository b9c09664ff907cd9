"""The forms of a linear layer give the same product."""

import pytest
import torch
from torch.nn import functional

from tokenrouter.runtime.model.linears import linear


@pytest.mark.parametrize("rows", [0, 1, 2, 8, 17, 130])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("dtype", "deterministic"),
    [
        (torch.float32, False),
        (torch.float32, True),
        (torch.float64, True),
        (torch.bfloat16, False),
        (torch.float16, False),
    ],
    ids=str,
)
@torch.inference_mode()
def test_every_form_gives_the_product(dtype, deterministic, biased, rows):
    torch.manual_seed(0)
    weight, x = torch.randn(40, 24).to(dtype), torch.randn(rows, 24).to(dtype)
    bias = torch.randn(40).to(dtype) if biased else None

    got = linear(weight.clone(), bias, deterministic=deterministic)(x)

    assert got.dtype == dtype
    expected = functional.linear(
        x.double(), weight.double(), None if bias is None else bias.double()
    )
    tolerance = 1e-4 if dtype in (torch.float32, torch.float64) else 0.05
    torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=tolerance)
