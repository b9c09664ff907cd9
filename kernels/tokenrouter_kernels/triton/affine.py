"""A linear layer with its bias, activation and residual for few rows: what router heads are made of.

    y = f(x W^T + b) (+ residual)

Shapes: x [B, K], weight [N, K], bias [N], residual [B, N] -> [B, N]; bf16, fp16 or fp32, sums in float32. One tile size for
every batch, so a row's bits do not depend on the others. Reference: torch's linear and `tokenrouter_kernels.ACTIVATIONS`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.triton.logistic import sigmoid_of, tanh_of
from tokenrouter_kernels.triton.tables import UPCAST

ROWS, COLUMNS, INNER = 16, 32, 64


@triton.jit
def affine_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    residual_ptr,
    out_ptr,
    stride_x,
    stride_weight,
    stride_residual,
    B,
    K,
    N,
    ACTIVATION: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    INNER: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Compute `ROWS` x `COLUMNS` of the result."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    n = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    wide_row = row.to(tl.int64)[:, None]
    sums = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, K, INNER):
        k = start + tl.arange(0, INNER)
        x = tl.load(
            x_ptr + wide_row * stride_x + k[None, :],
            mask=(row < B)[:, None] & (k < K)[None, :],
            other=0.0,
        )
        w = tl.load(
            weight_ptr + n.to(tl.int64)[None, :] * stride_weight + k[:, None],
            mask=(n < N)[None, :] & (k < K)[:, None],
            other=0.0,
        )
        if UPCAST:  # the interpreter's product of bf16 is wrong
            x = x.to(tl.float32)
            w = w.to(tl.float32)
        sums += tl.dot(x, w, input_precision="ieee")
    y = sums + tl.load(bias_ptr + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    y = activate(y, ACTIVATION)
    inside = (row < B)[:, None] & (n < N)[None, :]
    if RESIDUAL:
        at = residual_ptr + wide_row * stride_residual + n[None, :]
        y += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + wide_row * N + n[None, :], y, mask=inside)


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """Return the activation of every element, by its name."""
    if ACTIVATION == "relu":
        x = tl.maximum(x, 0.0)
    elif ACTIVATION == "gelu":
        x = x * (1 + tl.erf(x * 0.7071067811865476)) / 2
    elif ACTIVATION == "silu":
        x = x * sigmoid_of(x)
    elif ACTIVATION == "tanh":
        x = tanh_of(x)
    else:
        tl.static_assert(ACTIVATION == "identity")
    return x


def affine(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    activation: str = "identity",
    residual: Tensor | None = None,
) -> Tensor:
    """Return f(x W^T + b), plus the residual: [B, N]."""
    rows, inner = x.shape
    columns = weight.shape[0]
    assert weight.shape[1] == inner and x.stride(1) == weight.stride(1) == 1, weight.shape
    out = torch.empty(rows, columns, dtype=x.dtype, device=x.device)
    if rows:
        affine_kernel[(triton.cdiv(rows, ROWS), triton.cdiv(columns, COLUMNS))](
            x,
            weight,
            bias,
            residual if residual is not None else x,
            out,
            x.stride(0),
            weight.stride(0),
            residual.stride(0) if residual is not None else 0,
            rows,
            inner,
            columns,
            ACTIVATION=activation,
            RESIDUAL=residual is not None,
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            INNER=INNER,
            UPCAST=UPCAST,
        )
    return out
