"""Linear layers, each in the form that is fastest, or surest, for its dtype and mode.

Prepacked: oneDNN lays a bfloat16 weight out once as its matrix units want it, instead of at every call; at a few rows that
halves the time. The plain copy of the weight is dropped. float32 gains nothing at one row and stays plain.
"""

from __future__ import annotations

from collections.abc import Callable

import tokenrouter_kernels as kernels
import torch
from torch import Tensor
from torch.nn import functional

Linear = Callable[[Tensor], Tensor]  # [T, K] -> [T, N]

_USUAL_ROWS = 8  # that the layout is chosen for; it is right for any number


def linear(
    weight: Tensor,
    bias: Tensor | None,
    *,
    deterministic: bool,
    int8: bool = False,
    dtype: torch.dtype | None = None,
) -> Linear:
    """Return x -> x weight^T + bias: weight [N, K], bias [N]; x in `dtype`, else the weight's; int8: of rounded weights."""
    if int8:
        weight = rounded(weight)
    weight = weight.to(dtype or weight.dtype)
    if deterministic:
        return lambda x: kernels.blocked_linear(x, weight, bias)
    if weight.dtype == torch.bfloat16 and weight.device.type == "cpu" and _can_pack():
        return _prepacked(weight, bias)
    return lambda x: functional.linear(x, weight, bias)


def _can_pack() -> bool:
    return torch.backends.mkldnn.is_available() and bool(  # type: ignore[no-untyped-call]
        torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


def _prepacked(weight: Tensor, bias: Tensor | None) -> Linear:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, _USUAL_ROWS)
    outputs = weight.shape[0]

    def apply(x: Tensor) -> Tensor:
        if not x.shape[0]:
            return x.new_empty(0, outputs)
        found = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "none", [], "")
        assert isinstance(found, Tensor)
        return found

    return apply


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight ~ q * scale by output: [N, K] -> int8 [N, K], float32 [N]; rounded to the nearest, ties to even."""
    wide = weight.float()
    scale = wide.abs().amax(1) / 127
    scale = torch.where(scale > 0, scale, 1.0)
    return (wide / scale[:, None]).round().to(torch.int8), scale


def rounded(weight: Tensor) -> Tensor:
    """Return what an int8 weight stands for, in float32."""
    q, scale = quantised(weight)
    return q.float() * scale[:, None]
