"""Sampling without a sort: the draws of `tokenrouter_kernels.sample`, found by the place where a running sum crosses.

A prefix of the order (logit descending, id ascending) is «all ids whose logit is above x, and the first j of those at x». So
cutting by top-k, by top-p, and the draw itself each ask for the largest x at which a count or a mass reaches a target:
a search over the 32 bits of x, `WAYS` thresholds a pass, each pass a sum over the row. The j among equals follows from the
rest, since equal logits weigh the same. Weights and sums are in float64, as on the CPU.

Shapes: logits [B, V] bf16, fp16 or fp32 with padding above `vocabulary`, uniforms [B] float64 -> [B] int64. One program a row,
which reads its row once a pass, from the second-level cache after the first.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.sampling import SamplingParams

_BLOCK = 1024
_WAYS = 16


@triton.jit
def order(x):
    """Return float32 numbers as int64 that compare alike; -0.0 is 0.0."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    # Of negative numbers the larger has the smaller bits.
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)


@triton.jit
def unordered(key):
    """Return the float32 number of a key."""
    bits = key.to(tl.int32)
    return tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.float32, bitcast=True)


@triton.jit
def weigh(x, top, temperature):
    """Return exp((x - top) / temperature) in float64; banned ids weigh 0."""
    return tl.exp((x.to(tl.float64) - top) / temperature)


@triton.jit
def row_sums(row_ptr, V, key, top, temperature, BLOCK: tl.constexpr):
    """Return how many ids have a logit above a key's, and their weight: of key [WAYS] or one."""
    count = tl.zeros_like(key)
    mass = tl.zeros_like(key).to(tl.float64)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + v, mask=v < V, other=float("-inf")).to(tl.float32)
        above = order(x)[None, :] > key[:, None]
        count += tl.sum(above.to(tl.int64), 1)
        weight = weigh(x, top, temperature)
        mass += tl.sum(tl.where(above, weight[None, :], 0.0), 1)
    return count, mass


@triton.jit
def search(
    row_ptr, V, target, strict, by_mass, top, temperature, WAYS: tl.constexpr, BLOCK: tl.constexpr
):
    """Return the key of the logit at which the running count or mass reaches, or exceeds, the target.

    It is the least key above which there is less than that; and the count and mass above it.
    """
    low = tl.full([], -2147483648, tl.int64)  # the key lies in (low - 1, low - 1 + size]
    size = tl.full([], 4294967296, tl.int64)
    way = tl.arange(0, WAYS).to(tl.int64)
    while size > 1:
        step = (size + WAYS - 1) // WAYS
        key = low + way * step + step - 1  # the last of each of `WAYS` stretches
        count, mass = row_sums(row_ptr, V, key, top, temperature, BLOCK)
        sums = tl.where(by_mass, mass, count.to(tl.float64))
        below = tl.where(strict, sums <= target, sums < target)
        # The first stretch whose last key has less than the target above it holds the key.
        low += tl.minimum(tl.sum((~below).to(tl.int64), 0), WAYS - 1) * step
        size = step
    count, mass = row_sums(row_ptr, V, low + way * 0, top, temperature, BLOCK)
    return low, tl.max(count, 0), tl.max(mass, 0)


@triton.jit
def sample_kernel(
    logits_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    min_p_ptr,
    uniforms_ptr,
    out_ptr,
    stride,
    V,
    DRAW: tl.constexpr,  # whether any row may draw; else all are greedy
    WAYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Draw the token of one row."""
    row = tl.program_id(0).to(tl.int64)
    row_ptr = logits_ptr + row * stride
    best = tl.full([BLOCK], -9223372036854775807, tl.int64)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + v, mask=v < V, other=float("-inf")).to(tl.float32)
        # Largest logit first, then the lowest id, in one number.
        found = order(x) * 2147483648 + (2147483647 - v)
        best = tl.maximum(best, found)  # what is no id stands behind all that are
    winner = tl.max(best, 0)
    token = 2147483647 - (winner & 2147483647)
    if DRAW:
        temperature = tl.load(temperature_ptr + row)
        if temperature > 0:
            top = unordered(winner >> 31).to(tl.float64)
            token = _draw(
                row_ptr,
                V,
                top,
                temperature,
                tl.load(top_k_ptr + row),
                tl.load(top_p_ptr + row),
                tl.load(min_p_ptr + row),
                tl.load(uniforms_ptr + row),
                WAYS,
                BLOCK,
            )
    tl.store(out_ptr + row, token)


@triton.jit
def _draw(
    row_ptr,
    V,
    top,
    temperature,
    top_k,
    top_p,
    min_p,
    uniform,
    WAYS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Return the id that a row's parameters and its uniform number choose."""
    # The kept prefix: how many ids, their weight, and its last id as (key, place among equals).
    kept = tl.full([], 0, tl.int64) + V
    lowest = tl.full([WAYS], -2147483649, tl.int64)
    _, masses = row_sums(row_ptr, V, lowest, top, temperature, BLOCK)
    total = tl.max(masses, 0)
    if (top_k > 0) & (top_k < V):
        key, count, mass = search(
            row_ptr, V, top_k.to(tl.float64), False, False, top, temperature, WAYS, BLOCK
        )
        kept = top_k
        total = mass + (kept - count) * weigh(unordered(key), top, temperature)
    if top_p < 1:
        nucleus = tl.maximum(top_p * total, 1e-300)  # one id is kept at least
        key, count, mass = search(row_ptr, V, nucleus, False, True, top, temperature, WAYS, BLOCK)
        weight = weigh(unordered(key), top, temperature)
        equals = tl.maximum(tl.ceil((nucleus - mass) / weight), 1.0).to(tl.int64)
        within = count + equals
        if within < kept:
            kept = within
            total = mass + equals * weight
    if min_p > 0:
        likely, mass = _likely(row_ptr, V, min_p, top, temperature, BLOCK)
        if likely < kept:
            kept = likely
            total = mass
    target = uniform * total
    key, count, mass = search(row_ptr, V, target, True, True, top, temperature, WAYS, BLOCK)
    if ~(weigh(unordered(key), top, temperature) > 0):
        # The sums were made in another order than their total, and the number is all but 1.
        target = target * (1 - 1.0 / (1 << 40))
        key, count, mass = search(row_ptr, V, target, True, True, top, temperature, WAYS, BLOCK)
    weight = weigh(unordered(key), top, temperature)
    at = count + tl.floor((target - mass) / weight).to(tl.int64)
    if at > kept - 1:  # by rounding only
        at = kept - 1
        key, count, mass = search(
            row_ptr, V, kept.to(tl.float64), False, False, top, temperature, WAYS, BLOCK
        )
    return _among_equals(row_ptr, V, key, at - count, BLOCK)


@triton.jit
def _likely(row_ptr, V, min_p, top, temperature, BLOCK: tl.constexpr):
    """Return how many ids weigh at least min_p, and their weight."""
    count = tl.full([], 0, tl.int64)
    mass = tl.full([], 0.0, tl.float64)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + v, mask=v < V, other=float("-inf")).to(tl.float32)
        weight = weigh(x, top, temperature)
        enough = weight >= min_p
        count += tl.sum(enough.to(tl.int64), 0)
        mass += tl.sum(tl.where(enough, weight, 0.0), 0)
    return count, mass


@triton.jit
def _among_equals(row_ptr, V, key, place, BLOCK: tl.constexpr):
    """Return the id at a place, from 0, among those whose logit has a key; the last of them where there are fewer."""
    found = tl.full([], 0, tl.int64)
    seen = tl.full([], 0, tl.int64)
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        x = tl.load(row_ptr + v, mask=v < V, other=float("-inf")).to(tl.float32)
        equal = order(x) == key
        rank = seen + tl.cumsum(equal.to(tl.int64), 0) - 1
        found = tl.maximum(found, tl.max(tl.where(equal & (rank <= place), v, 0), 0).to(tl.int64))
        seen += tl.sum(equal.to(tl.int64), 0)
    return found


def greedy(logits: Tensor, *, vocabulary: int | None = None) -> Tensor:
    """Return the id of the largest logit, ties to the lowest: [B, V] -> [B] int64."""
    return _launch(logits, None, None, vocabulary)


def sample(
    logits: Tensor, params: SamplingParams, uniforms: Tensor, *, vocabulary: int | None = None
) -> Tensor:
    """Return a token a row: logits [B, V], uniforms [B] float64 -> [B] int64."""
    return _launch(logits, params, uniforms, vocabulary)


def _launch(
    logits: Tensor, params: SamplingParams | None, uniforms: Tensor | None, vocabulary: int | None
) -> Tensor:
    rows = len(logits)
    assert logits.stride(1) == 1 and logits.dtype != torch.float64, (logits.stride(), logits.dtype)
    out = torch.empty(rows, dtype=torch.int64, device=logits.device)
    if rows:
        columns = params if params is not None else (out, out, out, out)
        sample_kernel[(rows,)](
            logits,
            *columns,
            uniforms if uniforms is not None else out,
            out,
            logits.stride(0),
            logits.shape[1] if vocabulary is None else vocabulary,
            DRAW=params is not None,
            WAYS=_WAYS,
            BLOCK=_BLOCK,
            num_warps=8,
        )
    return out
