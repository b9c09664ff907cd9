"""Linear layers whose rows do not depend on the batch, to the bit.

A matrix library picks its blocking, and with it the order of a row's sum, by the number of rows (measured: powers of two
and multiples of 4 do not suffice). Where every call has the same shape the order is the same, and a row's place within
the call does not matter as long as all rows begin at equally aligned addresses; so rows are taken `BLOCK` at a time, the last block
filled up with zeros, and so are rows of odd widths (without AVX-512 their ends are added in another order by where they begin).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

BLOCK = 16
ALIGNED = 8  # numbers


def blocked_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x weight^T + bias in calls of one shape: x [T, K], weight [N, K], bias [N] -> [T, N]."""
    rows = x.shape[0]
    filling = -rows % BLOCK
    wider = -x.shape[1] % ALIGNED
    if filling or wider:
        x = functional.pad(x, (0, wider, 0, filling))
    if wider:
        weight = functional.pad(weight, (0, wider))
    out = torch.empty(x.shape[0], weight.shape[0], dtype=x.dtype, device=x.device)
    for start in range(0, x.shape[0], BLOCK):
        torch.mm(x[start : start + BLOCK], weight.t(), out=out[start : start + BLOCK])
    out = out[:rows]
    return out if bias is None else out + bias
