"""The gate of a feed-forward layer: silu(gate) * up, the two halves of one fused projection.

`silu` of torch computes the last few elements of a tensor by another formula than the rest, so that a row's bits depend
on where it stands; x / (1 + exp(-x)) is one formula for all. `batch_invariant` asks for that.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def silu_mul(gate_up: Tensor, *, batch_invariant: bool = False) -> Tensor:
    """Return silu(first half) * second half: [T, 2 F] -> [T, F]."""
    gate, up = gate_up.chunk(2, dim=-1)
    if batch_invariant:
        return gate / (1 + (-gate).exp()) * up
    return functional.silu(gate) * up
