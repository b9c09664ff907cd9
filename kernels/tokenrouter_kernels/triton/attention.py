"""The loop that both attention kernels share: a block of queries over a stretch of a request's paged context.

    o_i = sum_j softmax_j(scale * q_i k_j) v_j

by a running maximum and sum (M. Milakov, N. Gimelshein, arXiv:1805.02867), in powers of 2. Positions are taken `KEYS` at a
time from a multiple of `KEYS` on, so a token's bits do not depend on its neighbours: a block that it does not see
multiplies by exactly 1 and adds exactly 0.

Position p lies in slot page_table[p div page_size] * page_size + p mod page_size of keys [slots, kv_heads, D].
"""

from __future__ import annotations

import triton
import triton.language as tl

from tokenrouter_kernels.triton.logistic import tanh_of

LOW = tl.constexpr(-1e30)  # finite, so that what is not seen leaves the sums at 0
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def attend(
    q,  # [ROWS, WIDTH]
    position,  # [ROWS]: of each query; it sees positions up to its own
    first,
    last,  # positions to look at, first a multiple of KEYS
    pages_ptr,
    keys_ptr,
    values_ptr,  # at this key head
    stride_key,
    stride_value,
    scale,
    window,
    softcap,
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
    """Return the largest score in powers of 2 [ROWS], the sum of weights [ROWS], and that of weighted values."""
    d = tl.arange(0, WIDTH)
    e = tl.arange(0, VALUE_WIDTH)
    top = tl.full([ROWS], LOW, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, VALUE_WIDTH], tl.float32)
    for start in range(first, last, KEYS):
        at = start + tl.arange(0, KEYS)
        inside = at < last
        page = tl.load(pages_ptr + at // PAGE, mask=inside, other=0)
        slot = page.to(tl.int64) * PAGE + at % PAGE
        k = tl.load(
            keys_ptr + slot[None, :] * stride_key + d[:, None],
            mask=inside[None, :] & (d[:, None] < D),
            other=0.0,
        )
        v = tl.load(
            values_ptr + slot[:, None] * stride_value + e[None, :],
            mask=inside[:, None] & (e[None, :] < E),
            other=0.0,
        )
        if UPCAST:  # the interpreter's product of bf16 is wrong
            k = k.to(tl.float32)
            v = v.to(tl.float32)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        if SOFTCAP:
            scores = softcap * tanh_of(scores / softcap)
        scores *= LOG2E
        seen = at[None, :] <= position[:, None]
        if WINDOW:
            seen = seen & (at[None, :] > position[:, None] - window)
        scores = tl.where(seen, scores, LOW)
        higher = tl.maximum(top, tl.max(scores, 1))
        # Of a row that has seen nothing yet, these are 1; its first sight multiplies them by 0.
        weights = tl.exp2(scores - higher[:, None])
        fade = tl.exp2(top - higher)
        total = total * fade + tl.sum(weights, 1)
        sums = sums * fade[:, None]
        sums += tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        top = higher
    return top, total, sums


@triton.jit
def first_seen(position, window, KEYS: tl.constexpr, WINDOW: tl.constexpr):
    """Return the first position that a query at `position` looks at, down to a multiple of KEYS."""
    first = position * 0
    if WINDOW:
        first = tl.maximum(position - window + 1, 0) // KEYS * KEYS
    return first
