"""Routing signals of raw logits in one pass over them, whichever are asked for together.

`tokenrouter_kernels.signals` says what each of them is. Shapes: logits [B, V] with padding above `vocabulary`, candidates [B]
int64 -> [B] float32 each; bf16, fp16, fp32, and fp64 logits give fp64. Grid (B, parts): see `online`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.signals import Key
from tokenrouter_kernels.signals import signals as reference
from tokenrouter_kernels.triton.logistic import sigmoid_of
from tokenrouter_kernels.triton.online import (
    FIELDS,
    aleatoric_of,
    entropy_of,
    epistemic_of,
    is_last,
    join,
    join_largest,
    mass_of,
    survey,
    varentropy_of,
)
from tokenrouter_kernels.triton.tables import LARGEST, PART

# The figures of one pass, each a column of its output.
COLUMNS = {
    "entropy": 0,
    "entropy_norm": 0,
    "varentropy": 1,
    "maxprob": 2,
    "margin": 3,
    "logprob": 4,
    "rank": 5,
    "mass": 6,
    "aleatoric": 7,
    "epistemic": 8,
}
WIDTH = len(COLUMNS)


@triton.jit
def signals_kernel(
    logits_ptr,
    candidates_ptr,
    records_ptr,
    counters_ptr,
    out_ptr,
    stride,
    V,
    parts,
    MOMENTS: tl.constexpr,
    SECOND: tl.constexpr,
    RANKED: tl.constexpr,
    K: tl.constexpr,
    SLOTS: tl.constexpr,
    PART: tl.constexpr,
    PARTS: tl.constexpr,
    OUT: tl.constexpr,
):
    """Survey one part of one row; the row's last program writes its figures."""
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    v = part * PART + tl.arange(0, PART)
    wide = out_ptr.dtype.element_ty
    x = tl.load(logits_ptr + row * stride + v, mask=v < V, other=float("-inf")).to(wide)
    candidate = tl.load(candidates_ptr + row)
    chosen = tl.load(logits_ptr + row * stride + candidate).to(wide)
    records = records_ptr + row * parts * (FIELDS + SLOTS)
    record = records + part * (FIELDS + SLOTS)
    survey(x, v, chosen, candidate, record, MOMENTS, SECOND, RANKED, K, SLOTS)
    if is_last(counters_ptr + row, parts):
        m, total, first, square, second, before = join(
            records, parts, MOMENTS, SECOND, RANKED, K, SLOTS, PARTS
        )
        out = out_ptr + row * OUT
        tl.store(out, entropy_of(total, first))
        tl.store(out + 1, varentropy_of(first, square))
        tl.store(out + 2, 1 / total)
        if SECOND:
            tl.store(out + 3, (1 - tl.exp(second - m)) / total)
        tl.store(out + 4, chosen - m - tl.log(total))
        tl.store(out + 5, before + 1)
        if K:
            top = join_largest(records, parts, K, SLOTS, PARTS)
            found = tl.minimum(K, V)
            tl.store(out + 6, mass_of(top, m, total, K, SLOTS))
            tl.store(out + 7, aleatoric_of(top, found, SLOTS))
            tl.store(out + 8, epistemic_of(top, K, found, SLOTS))


@triton.jit
def column_kernel(logits_ptr, out_ptr, stride, column, B, BLOCK: tl.constexpr):
    """Read one id's logit of every row."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row.to(tl.int64) * stride + column, mask=row < B, other=0.0)
    tl.store(out_ptr + row, sigmoid_of(x.to(out_ptr.dtype.element_ty)), mask=row < B)


def signals(
    needed: Sequence[Key], logits: Tensor, candidates: Tensor, *, vocabulary: int | None = None
) -> dict[Key, Tensor]:
    """Return the needed signals by (name, args); those that share a k, or have none, are of one pass."""
    size = logits.shape[1] if vocabulary is None else vocabulary
    found: dict[Key, Tensor] = {}
    passes: dict[int, list[Key]] = {}
    for key in needed:
        name, args = key
        if name == "column":
            found[key] = _column(logits, args[0])
        elif name == "mass" and args[0] >= size:
            found[key] = torch.ones(len(logits), dtype=_wide(logits), device=logits.device)
        elif args and args[0] > LARGEST:
            found |= reference([key], logits[:, :size], candidates)
        else:
            passes.setdefault(args[0] if args else 0, []).append(key)
    plain = passes.pop(0, [])
    if plain and passes:  # they join the first pass that there is anyway
        passes[next(iter(passes))] += plain
    elif plain:
        passes[0] = plain
    for k, keys in passes.items():
        figures = _survey(logits, candidates, size, k, {name for name, _ in keys})
        for key in keys:
            figure = figures[:, COLUMNS[key[0]]]
            found[key] = figure / log(size) if key[0] == "entropy_norm" and size > 1 else figure
    return found


def _survey(logits: Tensor, candidates: Tensor, size: int, k: int, names: set[str]) -> Tensor:
    """Return the figures of one pass: [B, WIDTH]; those that are not named are not meaningful."""
    rows, wide = len(logits), _wide(logits)
    assert logits.stride(1) == 1, logits.stride()
    out = torch.empty(rows, WIDTH, dtype=wide, device=logits.device)
    if not rows:
        return out
    parts = triton.cdiv(size, PART)
    slots = triton.next_power_of_2(k) if k else 0
    records = torch.empty(rows, parts, FIELDS.value + slots, dtype=wide, device=logits.device)
    counters = torch.zeros(rows, dtype=torch.int32, device=logits.device)
    signals_kernel[(rows, parts)](
        logits,
        candidates,
        records,
        counters,
        out,
        logits.stride(0),
        size,
        parts,
        MOMENTS=2 if "varentropy" in names else int(bool(names & {"entropy", "entropy_norm"})),
        SECOND="margin" in names,
        RANKED="rank" in names,
        K=k,
        SLOTS=slots,
        PART=PART,
        PARTS=triton.next_power_of_2(parts),
        OUT=WIDTH,
        num_warps=8,
    )
    return out


def _column(logits: Tensor, column: int) -> Tensor:
    rows = len(logits)
    out = torch.empty(rows, dtype=_wide(logits), device=logits.device)
    if rows:
        grid = (triton.cdiv(rows, 64),)
        column_kernel[grid](logits, out, logits.stride(0), column, rows, BLOCK=64, num_warps=2)
    return out


def _wide(logits: Tensor) -> torch.dtype:
    return torch.float64 if logits.dtype == torch.float64 else torch.float32
