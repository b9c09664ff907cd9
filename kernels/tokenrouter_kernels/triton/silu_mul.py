"""The gate of a feed-forward layer: silu(first half) * second half, as in `tokenrouter_kernels.silu_mul`.

Shapes: gate_up [T, 2 F] -> [T, F]; bf16, fp16 or fp32. The product is computed in float32 and rounded once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.triton.logistic import sigmoid_of
from tokenrouter_kernels.triton.tables import ELEMENTS


@triton.jit
def silu_mul_kernel(x_ptr, out_ptr, stride_x, F, BLOCK: tl.constexpr):
    """Compute `BLOCK` columns of one row."""
    row = tl.program_id(0).to(tl.int64)
    f = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = f < F
    gate = tl.load(x_ptr + row * stride_x + f, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x_ptr + row * stride_x + F + f, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * F + f, gate * sigmoid_of(gate) * up, mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """Return silu(first half) * second half: [T, 2 F] -> [T, F]."""
    rows, width = gate_up.shape[0], gate_up.shape[1] // 2
    assert gate_up.stride(1) == 1, gate_up.stride()
    out = torch.empty(rows, width, dtype=gate_up.dtype, device=gate_up.device)
    if rows:
        block = min(ELEMENTS, triton.next_power_of_2(width))
        grid = (rows, triton.cdiv(width, block))
        silu_mul_kernel[grid](gate_up, out, gate_up.stride(0), width, BLOCK=block)
    return out
