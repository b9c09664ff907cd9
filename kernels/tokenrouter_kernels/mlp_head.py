"""A router head over the hidden state: layers with an activation behind each but the last, then the sigmoid of one number.

    x = hidden;   x = f_i(W_i x + b_i) for each layer but the last;   p = sigmoid(w . x + b)

One layer is a linear head. The last layer is a row's own sum, not a matrix product: products with one column choose
their order of additions by the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tokenrouter_kernels.gelu import gelu
from tokenrouter_kernels.reduce import row_sum


class Affine(NamedTuple):
    """x -> x weight^T + bias."""

    weight: Tensor  # [N, K]
    bias: Tensor  # [N]


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": gelu,
    "silu": lambda x: x / (1 + (-x).exp()),
    "tanh": torch.tanh,
    "identity": lambda x: x,
}


def probability(x: Tensor, last: Affine) -> Tensor:
    """Return sigmoid(w . x + b): x [B, K], weight [1, K], bias [1] -> [B] in [0, 1]."""
    # torch.sigmoid takes another formula for the last elements of a tensor.
    return 1 / (1 + (-(row_sum(x * last.weight) + last.bias)).exp())


def mlp_head(hidden: Tensor, layers: list[Affine], activations: list[str]) -> Tensor:
    """Return the head's probability: hidden [B, H] of the weights' dtype -> [B]."""
    assert len(activations) == len(layers) - 1, (len(activations), len(layers))
    x = hidden
    for layer, activation in zip(layers[:-1], activations, strict=True):
        x = ACTIVATIONS[activation](functional.linear(x, layer.weight, layer.bias))
    return probability(x, layers[-1])
