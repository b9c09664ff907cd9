"""The router head of R2R (arXiv 2505.21600): hidden state, candidate's input embedding, and the largest raw logits.

    x = C [h ; E(candidate) ; L top + b_L] + b_C         top: the k largest raw logits, descending
    x = I x + b_I
    each block:  x += D gelu(U norm(x) + b_U) + b_D       norm: layer norm with scale and shift, eps 1e-5
    p = sigmoid(w . norm(x) + b)

h is the hidden state after the model's final norm. Dropout is for training and is not here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tokenrouter_kernels.gelu import gelu
from tokenrouter_kernels.mlp_head import Affine, probability

_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class R2RBlock:
    """One residual block; W is the head's width, F the block's inner one."""

    norm: Affine  # weight [W], bias [W]: scale and shift
    up: Affine  # weight [F, W]
    down: Affine  # weight [W, F]


@dataclass(frozen=True, slots=True)
class R2RWeights:
    """All weights; H is the width of the hidden state, k the number of logits."""

    logits: Affine  # weight [H, k]
    combine: Affine  # weight [W, 3 H]
    input: Affine  # weight [W, W]
    blocks: list[R2RBlock]
    norm: Affine  # weight [W], bias [W]
    output: Affine  # weight [1, W]


def r2r_head(hidden: Tensor, embedding: Tensor, logits: Tensor, weights: R2RWeights) -> Tensor:
    """Return the head's probability: hidden [B, H], embedding [B, H], logits [B, V] -> [B].

    All are of the weights' dtype; V is at least k, and its order does not matter.
    """
    top = logits.topk(weights.logits.weight.shape[1], dim=-1, sorted=True).values
    x = torch.cat((hidden, embedding, functional.linear(top, *weights.logits)), -1)
    x = functional.linear(functional.linear(x, *weights.combine), *weights.input)
    for block in weights.blocks:
        inner = gelu(functional.linear(_norm(x, block.norm), *block.up))
        x = x + functional.linear(inner, *block.down)
    return probability(_norm(x, weights.norm), weights.output)


def _norm(x: Tensor, to: Affine) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], to.weight, to.bias, _EPS)
