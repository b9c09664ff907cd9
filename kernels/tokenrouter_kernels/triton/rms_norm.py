"""RMSNorm of rows, alone or of the sum with a residual: `tokenrouter_kernels.rms_norm` in one pass.

Shapes: x, residual [T, H], weight [H]; bf16, fp16 or fp32. One program a row, which it holds in registers. The mean is in
float32; the quotient is rounded to the dtype before it meets the weight, as in the reference. Fused: the addition, whose
rounded result is both what is normalised and the next residual.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.triton.tables import row_warps


@triton.jit
def rms_norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    sum_ptr,
    stride_x,
    stride_residual,
    eps,
    H,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Normalise row `program_id(0)`."""
    row = tl.program_id(0).to(tl.int64)
    h = tl.arange(0, BLOCK)
    inside = h < H
    dtype = x_ptr.dtype.element_ty
    x = tl.load(x_ptr + row * stride_x + h, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        x += tl.load(residual_ptr + row * stride_residual + h, mask=inside, other=0.0).to(
            tl.float32
        )
        x = x.to(dtype)
        tl.store(sum_ptr + row * H + h, x, mask=inside)
        x = x.to(tl.float32)
    scaled = x * tl.rsqrt(tl.sum(x * x, 0) / H + eps)
    weight = tl.load(weight_ptr + h, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * H + h, weight * scaled.to(dtype).to(tl.float32), mask=inside)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the normalised rows: x [T, H] -> [T, H]."""
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _launch(x, None, weight, eps, out, None)
    return out


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the normalised sum and the sum: x, residual [T, H] -> two [T, H]."""
    assert x.shape == residual.shape, (x.shape, residual.shape)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    summed = torch.empty_like(out)
    _launch(x, residual, weight, eps, out, summed)
    return out, summed


def _launch(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor,
    eps: float,
    out: Tensor,
    summed: Tensor | None,
) -> None:
    rows, width = x.shape
    assert x.stride(1) == 1 and weight.is_contiguous(), (x.stride(), weight.stride())
    if not rows:
        return
    rms_norm_kernel[(rows,)](
        x,
        residual if residual is not None else x,
        weight,
        out,
        summed if summed is not None else out,
        x.stride(0),
        residual.stride(0) if residual is not None else 0,
        eps,
        width,
        ADD=residual is not None,
        BLOCK=triton.next_power_of_2(width),
        num_warps=row_warps(width),
    )
