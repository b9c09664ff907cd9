"""Paged attention for 1..n new tokens a request, the context split over programs: decodes and short extends.

A program takes a block of queries (new tokens x heads that share a key head) over `PART_POSITIONS` of the context; a second
kernel joins a token's parts by their largest scores and sums. Where the parts begin depends on nothing but the position,
so a request's bits are the same in every batch, chunking and page table.

Shapes: q [T, heads, D], keys [slots, kv_heads, D], values [slots, kv_heads, E] -> [T, heads, E]; bf16, fp16, fp32. Sums in
float32; weights are rounded to the values' dtype for their product. Reference: `tokenrouter_kernels.paged_attention`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.triton.attention import LOW, attend, first_seen
from tokenrouter_kernels.triton.layout import Paged
from tokenrouter_kernels.triton.tables import PART_POSITIONS, UPCAST, decode_tile


@triton.jit
def decode_attention_kernel(
    q_ptr,
    keys_ptr,
    values_ptr,
    offsets_ptr,
    lengths_ptr,
    pages_ptr,
    sums_ptr,
    tops_ptr,
    totals_ptr,
    out_ptr,
    stride_q,
    stride_key,
    stride_key_head,
    stride_value,
    stride_value_head,
    stride_pages,
    blocks,
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
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    WINDOW: tl.constexpr,
    SOFTCAP: tl.constexpr,
    UPCAST: tl.constexpr,
):
    """Attend from one block of queries of one request to one part of its context."""
    request = tl.program_id(0) // blocks
    # The last block first: what a block may write beyond its own tokens is then not written over by the next.
    block = blocks - 1 - tl.program_id(0) % blocks
    kv_head = tl.program_id(1)
    part = tl.program_id(2)
    tokens: tl.constexpr = ROWS // SHARE
    begin = tl.load(offsets_ptr + request)
    n = tl.load(offsets_ptr + request + 1) - begin
    length = tl.load(lengths_ptr + request)
    oldest = length - n + block * tokens  # position of the block's first token
    end = tl.minimum(length, oldest + tokens)
    first = tl.maximum(part * PART, first_seen(oldest, window, KEYS, WINDOW))
    last = tl.minimum(part * PART + PART, end)
    if (block * tokens < n) & (first < last):
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
        top, total, sums = attend(
            q,
            oldest + r // SHARE,
            first,
            last,
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
        written = real[:, None] & (e[None, :] < E)
        cell = row * HEADS + head
        if PARTS == 1:
            tl.store(out_ptr + cell[:, None] * E + e[None, :], sums / total[:, None], mask=written)
        else:
            cell = cell * PARTS + part
            tl.store(sums_ptr + cell[:, None] * E + e[None, :], sums, mask=written)
            tl.store(tops_ptr + cell, top, mask=real)
            tl.store(totals_ptr + cell, total, mask=real)


@triton.jit
def join_parts_kernel(
    offsets_ptr,
    lengths_ptr,
    sums_ptr,
    tops_ptr,
    totals_ptr,
    out_ptr,
    most_new,
    window,
    HEADS: tl.constexpr,
    E: tl.constexpr,
    VALUE_WIDTH: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    WINDOW: tl.constexpr,
):
    """Join the parts of one head of one token, in order."""
    request = tl.program_id(0) // most_new
    token = tl.program_id(0) % most_new
    head = tl.program_id(1)
    begin = tl.load(offsets_ptr + request)
    n = tl.load(offsets_ptr + request + 1) - begin
    position = tl.load(lengths_ptr + request) - n + token
    if token < n:
        e = tl.arange(0, VALUE_WIDTH)
        cell = (begin + token).to(tl.int64) * HEADS + head
        top = LOW
        total = 0.0
        sums = tl.zeros([VALUE_WIDTH], tl.float32)
        # Parts that this token sees, though the block that it was in may have computed more.
        for part in range(first_seen(position, window, PART, WINDOW) // PART, position // PART + 1):
            at = cell * PARTS + part
            found = tl.load(tops_ptr + at)
            higher = tl.maximum(top, found)
            fade = tl.exp2(top - higher)
            weight = tl.exp2(found - higher)
            total = total * fade + tl.load(totals_ptr + at) * weight
            sums = sums * fade + tl.load(sums_ptr + at * E + e, mask=e < E, other=0.0) * weight
            top = higher
        tl.store(out_ptr + cell * E + e, sums / total, mask=e < E)


def decode_attention(
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
    tile = decode_tile(q.dtype, max(width, value_width))
    rows = max(tile.rows, triton.next_power_of_2(share))
    parts = triton.cdiv(paged.room, PART_POSITIONS)
    out = torch.empty(n, heads, value_width, dtype=q.dtype, device=q.device)
    requests = len(paged.lengths)
    if not (n and requests):
        return out
    single = parts == 1
    sums = out if single else _wide(n, heads, parts, value_width, like=q)
    tops = out if single else _wide(n, heads, parts, like=q)
    totals = out if single else _wide(n, heads, parts, like=q)
    blocks = triton.cdiv(paged.most_new, rows // share)
    common = {
        "HEADS": heads,
        "E": value_width,
        "VALUE_WIDTH": max(16, triton.next_power_of_2(value_width)),
        "PART": PART_POSITIONS,
        "PARTS": parts,
        "WINDOW": window is not None,
    }
    decode_attention_kernel[(requests * blocks, kv_heads, parts)](
        q,
        keys,
        values,
        paged.offsets,
        paged.lengths,
        paged.page_table,
        sums,
        tops,
        totals,
        out,
        q.stride(0),
        keys.stride(0),
        keys.stride(1),
        values.stride(0),
        values.stride(1),
        paged.page_table.stride(0),
        blocks,
        scale,
        window or 0,
        softcap or 1.0,
        SHARE=share,
        PAGE=paged.page_size,
        D=width,
        WIDTH=max(16, triton.next_power_of_2(width)),
        ROWS=rows,
        KEYS=tile.keys,
        SOFTCAP=softcap is not None,
        UPCAST=UPCAST,
        num_warps=tile.warps,
        num_stages=tile.stages,
        **common,
    )
    if not single:
        join_parts_kernel[(requests * paged.most_new, heads)](
            paged.offsets,
            paged.lengths,
            sums,
            tops,
            totals,
            out,
            paged.most_new,
            window or 0,
            num_warps=2,
            **common,
        )
    return out


def _wide(*shape: int, like: Tensor) -> Tensor:
    return torch.empty(*shape, dtype=torch.float32, device=like.device)
