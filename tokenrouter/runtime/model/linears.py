"""Linear layers, each in the form that is fastest, or surest, for its dtype and mode."""

from __future__ import annotations

from collections.abc import Callable

import tokenrouter_kernels as kernels
from torch import Tensor
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]  # [T, K] -> [T, N]


def linear(weight: Tensor, bias: Tensor | None, *, deterministic: bool) -> Linear:
    """Return x -> x weight^T + bias: weight [N, K], bias [N]."""
    if deterministic:
        return lambda x: kernels.blocked_linear(x, weight, bias)
    return lambda x: functional.linear(x, weight, bias)
