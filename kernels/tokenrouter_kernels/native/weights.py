"""A linear layer's weights in the order that the native kernels read them: see linear.h.

int8: weight ~ q * scale by output, with scale = max |w| / 127 and q rounded to the nearest, ties to even.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from tokenrouter_kernels.native.records import LinearRecord

PANEL = 32


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed weights, and the tensors that the record points into."""

    record: LinearRecord
    held: tuple[Tensor, ...]


def packed(
    library: ctypes.CDLL, weight: Tensor, bias: Tensor | None = None, scale: Tensor | None = None
) -> Packed:
    """Return packed weights: [N, K] bfloat16, or int8 with a scale by output [N]; bias [N]."""
    n, k = weight.shape
    weight = weight.contiguous()
    made = torch.empty(_filled(n), _filled(k), dtype=weight.dtype)
    pack = library.tr_pack_bf16 if scale is None else library.tr_pack_int8
    pack(weight.data_ptr(), n, k, made.data_ptr())
    record = LinearRecord(kind=int(scale is not None), n=n, k=k, weight=made.data_ptr())
    held = [made]
    if scale is not None:
        sums = weight.sum(1, dtype=torch.int64).float()
        for name, values in (("scale", scale), ("sum", sums)):
            held.append(_whole(values, n))
            setattr(record, name, held[-1].data_ptr())
    if bias is not None:
        held.append(_whole(bias, n))
        record.bias = held[-1].data_ptr()
    return Packed(record, tuple(held))


def _filled(n: int) -> int:
    return -(-n // PANEL) * PANEL


def _whole(values: Tensor, n: int) -> Tensor:
    return functional.pad(values.float(), (0, _filled(n) - n)).contiguous()
