"""What has a kernel and a meaning in torch, by where its tensors lie: Triton on GPUs, compiled kernels on CPUs that have them, torch elsewhere.

Triton is imported with the first tensor on a GPU, so that machines without one need not have it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tokenrouter_kernels.native import certainty, draw
from tokenrouter_kernels.native.build import library
from tokenrouter_kernels.native.certainty import Looked
from tokenrouter_kernels.philox import uniform as plain_uniform
from tokenrouter_kernels.sampling import SamplingParams
from tokenrouter_kernels.sampling import greedy as plain_greedy
from tokenrouter_kernels.sampling import sample as plain_sample
from tokenrouter_kernels.signals import signals as plain_signals

Key = tuple[str, tuple[int, ...]]


def greedy(logits: Tensor) -> Tensor:
    """Return the id of the largest logit, ties to the lowest: [B, V] -> [B] int64."""
    if _has_kernel(logits):
        from tokenrouter_kernels import triton as fast  # noqa: PLC0415

        return fast.greedy(logits)
    if certainty.fits(logits) and (compiled := library()) is not None:
        return certainty.greedy(compiled, logits)
    return plain_greedy(logits)


def sample(logits: Tensor, params: SamplingParams, uniforms: Tensor) -> Tensor:
    """Return a token a row: logits [B, V] over the real vocabulary, uniforms [B] float64 -> [B] int64."""
    if _has_kernel(logits):
        from tokenrouter_kernels import triton as fast  # noqa: PLC0415

        return fast.sample(logits, params, uniforms)
    if certainty.fits(logits) and (compiled := library()) is not None:
        return draw.sample(compiled, logits, params, uniforms)
    return plain_sample(logits, params, uniforms)


def signals(
    needed: Sequence[Key], logits: Tensor, tokens: Tensor, looked: Looked | None = None
) -> dict[Key, Tensor]:
    """Return signals by name and arguments: logits [B, V], tokens [B] int64 -> [B] each; `looked` is what is known of these two."""
    if _has_kernel(logits):
        from tokenrouter_kernels import triton as fast  # noqa: PLC0415

        return fast.signals(needed, logits, tokens)
    if certainty.fits(logits) and (compiled := library()) is not None:
        return certainty.signals(compiled, needed, logits, tokens, looked)
    return plain_signals(needed, logits, tokens)


def uniform(seed: Tensor, position: Tensor, model: int, purpose: int) -> Tensor:
    """Return draws in [0, 1) with 53 bits: seed [B] int64, position [B] int64 -> [B] float64."""
    if seed.is_cuda:
        from tokenrouter_kernels import triton as fast  # noqa: PLC0415

        return fast.uniform(seed, position, model, purpose)
    if seed.device.type == "cpu" and (compiled := library()) is not None:
        return draw.uniform(compiled, seed, position, model, purpose)
    return plain_uniform(seed, position, model, purpose)


def _has_kernel(logits: Tensor) -> bool:
    return logits.is_cuda and logits.dtype != torch.float64
