"""One pass over a row of logits by several programs: what signals are made of.

Program (row, part) reads `PART` logits once and writes the part's figures; the program of a row that comes last joins the
parts, in their order, so that a row's bits depend neither on the other rows nor on who came last. With m the part's
largest logit, e = exp(x - m), d = x - m:

    s = sum e      t = sum e d      u = sum e d^2      second largest, ties counted      ids before the candidate
    the K largest

and of the whole row, with a = exp(m_part - m) (M. Milakov, N. Gimelshein, arXiv:1805.02867, and its moments):

    S = sum a s    T = sum a (t + c s)    U = sum a (u + 2 c t + c^2 s)    with c = m_part - m

A flag of the survey switches each of these off, so that a kernel computes what it needs.

Shapes: a block of a row's logits [PART] in, a record [FIELDS + SLOTS] out for each part, `records` [B, PARTS, FIELDS + SLOTS] contiguous, float32
or, of float64 logits, float64; joined figures are scalars. Reference: `tokenrouter_kernels.signals`.
"""

from __future__ import annotations

import triton
import triton.language as tl

LOW = tl.constexpr(-1e30)  # finite, so that a part of banned ids leaves the sums at 0
FIELDS = tl.constexpr(8)  # of a part, in its record


@triton.jit
def largest(x, K: tl.constexpr, SLOTS: tl.constexpr):
    """Return the K largest of x [N], descending, in the first of SLOTS slots; -inf in the others."""
    at = tl.arange(0, x.shape[0])
    slot = tl.arange(0, SLOTS)
    found = tl.full([SLOTS], float("-inf"), x.dtype)
    for i in range(K):
        top, where = tl.max(x, 0, return_indices=True)
        found = tl.where(slot == i, top, found)
        x = tl.where(at == where, float("-inf"), x)
    return found


@triton.jit
def survey(
    x,  # [PART], -inf beyond the vocabulary and for banned ids
    v,  # [PART] ids
    chosen,  # the candidate's logit
    candidate,
    record_ptr,  # of this part: FIELDS numbers, then SLOTS
    MOMENTS: tl.constexpr,  # 0: s, 1: and t, 2: and u
    SECOND: tl.constexpr,
    RANK: tl.constexpr,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
):
    """Write one part's figures."""
    m, at = tl.max(x, 0, return_indices=True)
    if SECOND:
        others = tl.where(tl.arange(0, x.shape[0]) == at, float("-inf"), x)
        tl.store(record_ptr + 4, tl.max(others, 0))
    if RANK:
        before = (x > chosen) | ((x == chosen) & (v < candidate))
        tl.store(record_ptr + 5, tl.sum(before.to(tl.int32), 0).to(x.dtype))
    if K:
        tl.store(record_ptr + FIELDS + tl.arange(0, SLOTS), largest(x, K, SLOTS))
    m = tl.maximum(m, LOW)
    d = x - m
    e = tl.exp(d)
    tl.store(record_ptr, m)
    tl.store(record_ptr + 1, tl.sum(e, 0))
    if MOMENTS:
        d = tl.where(e > 0, d, 0.0)
        tl.store(record_ptr + 2, tl.sum(e * d, 0))
    if MOMENTS > 1:
        tl.store(record_ptr + 3, tl.sum(e * d * d, 0))


@triton.jit
def is_last(counter_ptr, parts):
    """Return whether all other programs of a row have written their parts; the last one sets the counter back to 0."""
    tl.debug_barrier()  # all threads have stored before one of them tells
    arrived = tl.atomic_add(counter_ptr, 1, sem="acq_rel")
    last = arrived == parts - 1
    if last:
        tl.store(counter_ptr, 0)
    return last


@triton.jit
def join(
    records_ptr,  # of this row: by part
    parts,
    MOMENTS: tl.constexpr,
    SECOND: tl.constexpr,
    RANK: tl.constexpr,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    PARTS: tl.constexpr,  # at least `parts`
):
    """Return m, S, T / S, U / S, the second largest logit, and the ids before the candidate of a row."""
    p = tl.arange(0, PARTS)
    real = p < parts
    at = records_ptr + p * (FIELDS + SLOTS)
    # Past the first-level cache, which other programs' stores do not reach.
    m = tl.load(at, mask=real, other=LOW, cache_modifier=".cg")
    s = tl.load(at + 1, mask=real, other=0.0, cache_modifier=".cg")
    top, leader = tl.max(m, 0, return_indices=True)
    a = tl.exp(m - top)
    total = tl.sum(a * s, 0)
    first = total * 0
    square = total * 0
    c = m - top  # of a part of banned ids -1e30, times sums that are 0
    if MOMENTS:
        t = tl.load(at + 2, mask=real, other=0.0, cache_modifier=".cg")
        first = tl.sum(a * (t + c * s), 0) / total
        if MOMENTS > 1:
            u = tl.load(at + 3, mask=real, other=0.0, cache_modifier=".cg")
            square = tl.sum(a * (u + c * (2 * t + c * s)), 0) / total
    second = total * 0
    if SECOND:
        runner_up = tl.load(at + 4, mask=real, other=float("-inf"), cache_modifier=".cg")
        others = tl.where(p == leader, float("-inf"), m)
        second = tl.maximum(tl.max(runner_up, 0), tl.max(others, 0))
    before = total * 0
    if RANK:
        before = tl.sum(tl.load(at + 5, mask=real, other=0.0, cache_modifier=".cg"), 0)
    return top, total, first, square, second, before


@triton.jit
def join_largest(records_ptr, parts, K: tl.constexpr, SLOTS: tl.constexpr, PARTS: tl.constexpr):
    """Return the K largest logits of a row, descending, in the first of SLOTS slots."""
    i = tl.arange(0, PARTS * SLOTS)
    at = i // SLOTS * (FIELDS + SLOTS) + FIELDS + i % SLOTS
    real = i // SLOTS < parts
    x = tl.load(records_ptr + at, mask=real, other=float("-inf"), cache_modifier=".cg")
    return largest(x, K, SLOTS)


@triton.jit
def entropy_of(total, first):
    """Return ln S - T / S, at least 0: the difference of two near numbers may fall below by rounding."""
    return tl.maximum(tl.log(total) - first, 0.0)


@triton.jit
def varentropy_of(first, square):
    """Return the variance of -ln p under p, which is that of x."""
    return tl.maximum(square - first * first, 0.0)


@triton.jit
def mass_of(top, m, total, k, SLOTS: tl.constexpr):
    """Return the probability of the k largest: top [SLOTS]."""
    inside = tl.arange(0, SLOTS) < k
    return tl.minimum(tl.sum(tl.where(inside, tl.exp(top - m), 0.0), 0) / total, 1.0)


@triton.jit
def epistemic_of(top, k, found, SLOTS: tl.constexpr):
    """Return k / (sum of the evidence + k), of which `found` logits exist."""
    inside = tl.arange(0, SLOTS) < found
    evidence = tl.where(inside, tl.maximum(top, 1e-6), 0.0)
    return k / (tl.sum(evidence, 0) + k)


@triton.jit
def aleatoric_of(top, found, SLOTS: tl.constexpr):
    """Return - sum e / E (psi(e + 1) - psi(E + 1)) over the `found` largest logits."""
    inside = tl.arange(0, SLOTS) < found
    evidence = tl.where(inside, tl.maximum(top, 1e-6), 0.0)
    whole = tl.sum(evidence, 0)
    return tl.sum(evidence * (digamma(whole + 1) - digamma(evidence + 1)), 0) / whole


@triton.jit
def digamma(x):
    """Return psi(x), x >= 1: psi(x) = psi(x + 8) - sum 1 / (x + i), and its asymptotic series above."""
    lower = x * 0
    for _ in tl.static_range(8):
        lower += 1 / x
        x += 1
    y = 1 / (x * x)
    series = y * (1 / 12.0 - y * (1 / 120.0 - y * (1 / 252.0 - y * (1 / 240.0 - y * (1 / 132.0)))))
    return tl.log(x) - 0.5 / x - series - lower
