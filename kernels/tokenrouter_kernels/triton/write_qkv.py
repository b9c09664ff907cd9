"""Query and key norms, rotary, and the write into the cache, in one pass over a token's fused projection.

`tokenrouter_kernels.write_qkv` says what it computes. Shapes: qkv [T, (heads + 2 kv_heads) D], cos and sin [T, R] with both
halves alike and R <= D, slots [T] int64, keys and values [slots, kv_heads, D]; bf16, fp16 or fp32. All in float32, rounded
once. A program takes `HEAD_ROWS` heads of a token; each is a query, a key or a value. Slot -1 is a row of no request:
nothing is written to the cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.triton.tables import HEAD_ROWS


@triton.jit
def write_qkv_kernel(
    qkv_ptr,
    cos_ptr,
    sin_ptr,
    slots_ptr,
    query_norm_ptr,
    key_norm_ptr,
    q_ptr,
    keys_ptr,
    values_ptr,
    stride_qkv,
    stride_angle,
    stride_key,
    stride_value,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    TURNED: tl.constexpr,
    NORM: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Turn and store `ROWS` heads of one token."""
    token = tl.program_id(0).to(tl.int64)
    h = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    d = tl.arange(0, WIDTH)[None, :]
    half: tl.constexpr = TURNED // 2
    other = tl.where(d < half, d + half, d - half)  # of those that turn
    inside = (h < HEADS + 2 * KV_HEADS) & (d < D)
    base = qkv_ptr + token * stride_qkv + h * D
    x = tl.load(base + d, mask=inside, other=0.0).to(tl.float32)
    is_query = h < HEADS
    is_key = (h >= HEADS) & (h < HEADS + KV_HEADS)
    is_value = (h >= HEADS + KV_HEADS) & (h < HEADS + 2 * KV_HEADS)
    turns = (d < TURNED) & ~is_value
    # A second read of the same line: lanes cannot exchange halves. What does not turn has no partner: 0 times an
    # infinite one would be no number.
    y = tl.load(base + other, mask=inside & turns, other=0.0).to(tl.float32)
    if NORM:
        scale = tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None]
        scale = tl.where(is_value, 1.0, scale)
        x *= scale * _norm(query_norm_ptr, key_norm_ptr, d, is_query, is_key, D)
        y *= scale * _norm(query_norm_ptr, key_norm_ptr, other, is_query, is_key, D)
    angle = token * stride_angle + d + 0 * h  # of all rows, as the mask
    cos = tl.load(cos_ptr + angle, mask=turns, other=1.0).to(tl.float32)
    sin = tl.load(sin_ptr + angle, mask=turns, other=0.0).to(tl.float32)
    x = x * cos + tl.where(d < half, -y, y) * sin
    slot = tl.load(slots_ptr + token)
    tl.store(q_ptr + token * (HEADS * D) + h * D + d, x, mask=is_query & (d < D))
    cached = (d < D) & (slot >= 0)
    tl.store(keys_ptr + slot * stride_key + (h - HEADS) * D + d, x, mask=is_key & cached)
    at = slot * stride_value + (h - HEADS - KV_HEADS) * D + d
    tl.store(values_ptr + at, x, mask=is_value & cached)


@triton.jit
def _norm(query_norm_ptr, key_norm_ptr, d, is_query, is_key, D: tl.constexpr):
    """Return the norm's weights of each row and dimension, 1 for values."""
    at = d + 0 * is_query.to(tl.int32)  # of all rows: older versions widen no pointer to its mask
    query = tl.load(query_norm_ptr + at, mask=is_query & (d < D), other=1.0).to(tl.float32)
    key = tl.load(key_norm_ptr + at, mask=is_key & (d < D), other=1.0).to(tl.float32)
    return query * key


def write_qkv(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    heads: int,
    *,
    query_norm: Tensor | None = None,
    key_norm: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Write keys and values into their slots and return the queries: [T, heads, D]."""
    n = qkv.shape[0]
    kv_heads, width = keys.shape[1:]
    assert qkv.shape[1] == (heads + 2 * kv_heads) * width and qkv.stride(1) == 1, qkv.shape
    assert keys.stride()[1:] == values.stride()[1:] == (width, 1), (keys.stride(), values.stride())
    assert cos.stride() == sin.stride() and cos.stride(1) == 1, (cos.stride(), sin.stride())
    assert (query_norm is None) == (key_norm is None)
    q = torch.empty(n, heads, width, dtype=qkv.dtype, device=qkv.device)
    if n:
        write_qkv_kernel[(n, triton.cdiv(heads + 2 * kv_heads, HEAD_ROWS))](
            qkv,
            cos,
            sin,
            slots,
            query_norm if query_norm is not None else qkv,
            key_norm if key_norm is not None else qkv,
            q,
            keys,
            values,
            qkv.stride(0),
            cos.stride(0),
            keys.stride(0),
            values.stride(0),
            eps,
            HEADS=heads,
            KV_HEADS=kv_heads,
            D=width,
            TURNED=cos.shape[1],
            NORM=query_norm is not None,
            ROWS=HEAD_ROWS,
            WIDTH=triton.next_power_of_2(width),
        )
    return q
