"""RMSNorm: y = w * x / sqrt(mean(x^2) + eps), over the last axis.

B. Zhang, R. Sennrich, «Root Mean Square Layer Normalization», 2019. The quotient is computed in float32 whatever the dtype,
float64 included: that is how transformers defines these models, and an execution in float64 is compared with it.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the normalised rows: x [..., H], weight [H] -> [..., H] in x's dtype."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Return the normalised rows of x + residual, and x + residual: two [..., H]."""
    summed = x + residual
    return rms_norm(summed, weight, eps), summed
