"""What a client asks of the choice beside its shape: one row of logits before temperature and truncation.

    x        x / r where x > 0, else x r, of ids that stand in prompt or output      r: repetition penalty
    x        x - frequency * n - presence of ids that the output holds n > 0 times
    x        x + bias
    x        -inf where the id is not allowed

In this order, in float64. The row is a copy; signals and log probabilities read the raw one.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Shaping(NamedTuple):
    """One row's wishes; each id at most once in each list."""

    repeated: Tensor  # [R] int64: ids of prompt and output
    repetition: float  # 1 is off
    written: Tensor  # [W] int64: ids of the output
    counts: Tensor  # [W] float64: how often each stands there
    frequency: float
    presence: float
    biased: Tensor  # [B] int64
    bias: Tensor  # [B] float64
    allowed: Tensor | None  # [V] bool


def shape(row: Tensor, by: Shaping) -> None:
    """Change one row of logits in place: [V] float64."""
    if by.repetition != 1:
        x = row[by.repeated]
        row[by.repeated] = torch.where(x > 0, x / by.repetition, x * by.repetition)
    if by.frequency != 0 or by.presence != 0:
        row[by.written] -= by.frequency * by.counts + by.presence
    if len(by.biased):
        row[by.biased] += by.bias
    if by.allowed is not None:
        row.masked_fill_(~by.allowed, float("-inf"))
