"""RMSNorm: y = w * x / sqrt(mean(x^2) + eps), over the last axis, the mean in at least float32.

B. Zhang, R. Sennrich, «Root Mean Square Layer Normalization», 2019.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Return the normalised rows: x [..., H], weight [H] -> [..., H] in x's dtype."""
    wide = x if x.dtype == torch.float64 else x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return weight * scaled.to(x.dtype)
