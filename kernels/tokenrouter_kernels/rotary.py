"""Rotary position embedding, half-split: dimension i turns with dimension i + D/2 by position * frequency_i.

J. Su et al., «RoFormer: Enhanced Transformer with Rotary Position Embedding», 2021.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn heads: x [T, heads, D], cos and sin [T, D] with both halves alike -> [T, heads, D].

    Where cos and sin are narrower than D, the dimensions above them are left as they are.
    """
    turned = cos.shape[-1]
    if turned < x.shape[-1]:
        return torch.cat((rotary(x[..., :turned], cos, sin), x[..., turned:]), -1)
    half = turned // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos[:, None] + swapped * sin[:, None]
