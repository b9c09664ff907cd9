"""Attention of many new tokens a request over its paged context, what was cached before included.

A program takes a block of queries (new tokens x heads that share a key head) over all that the newest of them sees. Blocks
count from the first new token, so a token's bits depend neither on the batch nor on how a prompt is cut: each row of
a block meets the same blocks of positions, and those that it does not see change nothing.

Shapes, dtypes and numerics as in `decode_attention`. Reference: `tokenrouter_kernels.paged_attention`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.triton.attention import attend, first_seen
from tokenrouter_kernels.triton.layout import Paged
from tokenrouter_kernels.triton.tables import UPCAST, prefill_tile


@triton.jit
def prefill_attention_kernel(
    q_ptr,
    keys_ptr,
    values_ptr,
    offsets_ptr,
    lengths_ptr,
    pages_ptr,
    out_ptr,
    stride_q,
    stride_key,
    stride_key_head,
    stride_value,
    stride_value_head,
    stride_pages,
    scale,
    window,
    softcap,
    HEADS: tl.constexpr,
    SHARE: tl.constexpr,
    PAGE: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    WIDTH: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Attend from one block of queries of one request."""
    tokens: tl.constexpr = ROWS // SHARE
    # The blocks with the longest way to go start first.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    kv_head = tl.program_id(1)
    request = tl.program_id(2)
    begin = tl.load(offsets_ptr + request)
    n = tl.load(offsets_ptr + request + 1) - begin
    if block * tokens < n:
        length = tl.load(lengths_ptr + request)
        oldest = length - n + block * tokens
        r = tl.arange(0, ROWS)
        d = tl.arange(0, WIDTH)
        token = block * tokens + r // SHARE
        real = (r < tokens * SHARE) & (token < n)
        row = (begin + token).to(tl.int64)
        head = kv_head * SHARE + r % SHARE
        q = tl.load(
            q_ptr + row[:, None] * stride_q + head[:, None] * D + d[None, :],
            mask=real[:, None] & (d[None, :] < D),
            other=0.0,
        )
        if UPCAST:
            q = q.to(tl.float32)
        _, total, sums = attend(
            q,
            oldest + r // SHARE,
            first_seen(oldest, window, KEYS, WINDOW),
            tl.minimum(length, oldest + tokens),
            pages_ptr + request.to(tl.int64) * stride_pages,
            keys_ptr + kv_head * stride_key_head,
            values_ptr + kv_head * stride_value_head,
            stride_key,
            stride_value,
            scale,
            window,
            softcap,
            PAGE,
            D,
            E,
            WIDTH,
            VALUE_WIDTH,
            ROWS,
            KEYS,
            WINDOW,
            SOFTCAP,
            UPCAST,
        )
        e = tl.arange(0, VALUE_WIDTH)
        cell = row * HEADS + head
        tl.store(
            out_ptr + cell[:, None] * E + e[None, :],
            sums / total[:, None],
            mask=real[:, None] & (e[None, :] < E),
        )


def prefill_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    paged: Paged,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attend: q [T, heads, D], keys and values [slots, kv_heads, D] and [slots, kv_heads, E] -> [T, heads, E]."""
    n, heads, width = q.shape
    kv_heads, value_width = values.shape[1:]
    share = heads // kv_heads
    assert q.stride()[1:] == (width, 1), q.stride()
    assert keys.stride(2) == values.stride(2) == 1, (keys.stride(), values.stride())
    tile = prefill_tile(q.dtype, max(width, value_width))
    rows = max(tile.rows, triton.next_power_of_2(share))
    out = torch.empty(n, heads, value_width, dtype=q.dtype, device=q.device)
    requests = len(paged.lengths)
    if not (n and requests):
        return out
    prefill_attention_kernel[(triton.cdiv(paged.most_new, rows // share), kv_heads, requests)](
        q,
        keys,
        values,
        paged.offsets,
        paged.lengths,
        paged.page_table,
        out,
        q.stride(0),
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        paged.page_table.stride(0),
        scale,
        window or 0,
        softcap or 1.0,
        HEADS=heads,
        SHARE=share,
        PAGE=paged.page_size,
        D=width,
        E=value_width,
        WIDTH=max(16, triton.next_power_of_2(width)),
        VALUE_WIDTH=max(16, triton.next_power_of_2(value_width)),
        ROWS=rows,
        KEYS=tile.keys,
        WINDOW=window is not None,
        SOFTCAP=softcap is not None,
        UPCAST=UPCAST,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    return out
