"""What a captured step has done beyond the model: tensors alone, a row for each request that samples."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Done(NamedTuple):
    """Candidates and decisions of a step; see `fused`."""

    tokens: torch.Tensor  # [B] int64: candidates
    logprobs: torch.Tensor  # [B]: theirs, raw
    decided: torch.Tensor  # [B, 4] int32, as `kernel.router.Routed`
    values: torch.Tensor  # [B, N] float64
