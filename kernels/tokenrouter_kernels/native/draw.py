"""Drawing tokens, and the numbers that they are drawn by, in compiled kernels: a call for all rows of a step."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from tokenrouter_kernels.sampling import SamplingParams


def sample(
    library: ctypes.CDLL, logits: Tensor, params: SamplingParams, uniforms: Tensor
) -> Tensor:
    """Return a token a row: logits [B, V] that `certainty.fits`, uniforms [B] float64 -> [B] int64."""
    rows, n = logits.shape
    ids = torch.empty(rows, dtype=torch.int64)
    read = [values.contiguous() for values in (*params, uniforms)]
    library.tr_sample(
        logits.data_ptr(),
        rows,
        n,
        logits.stride(0),
        *(values.data_ptr() for values in read),
        ids.data_ptr(),
    )
    return ids


def uniform(
    library: ctypes.CDLL, seed: Tensor, position: Tensor, model: int, purpose: int
) -> Tensor:
    """Return draws in [0, 1) with 53 bits: seed [B] int64, position [B] int64 -> [B] float64."""
    out = torch.empty(len(seed), dtype=torch.float64)
    seed, position = seed.contiguous(), position.contiguous()
    library.tr_uniform(
        seed.data_ptr(), position.data_ptr(), len(seed), model, purpose, out.data_ptr()
    )
    return out
