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
BEYOND = 1024  # elements after the last that may be read, though nothing comes of them (tiles.h)
BF16, INT8, FP32 = range(3)  # `Kind` of layers.h


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed weights, and the tensors that the record points into."""

    record: LinearRecord
    held: tuple[Tensor, ...]
    depth: int  # neighbours in K that lie together, as the machine wants it

    def rows(self, at: Tensor) -> Tensor:
        """Return some of the weight's rows, unpacked: [B] -> [B, K]."""
        made, depth = self.held[0], self.depth
        panels = made.view(-1, made.shape[1] // depth, PANEL, depth)
        return panels[at // PANEL, :, at % PANEL].reshape(len(at), -1)[:, : self.record.k]


def packed(
    library: ctypes.CDLL, weight: Tensor, bias: Tensor | None = None, scale: Tensor | None = None
) -> Packed:
    """Return packed weights: [N, K] bfloat16 or float32, or int8 with a scale by output [N]; bias [N]."""
    n, k = weight.shape
    weight = weight.contiguous()
    size = _filled(n) * _filled(k)
    made = torch.empty(size + BEYOND, dtype=weight.dtype)[:size].view(_filled(n), _filled(k))
    kind = {torch.bfloat16: BF16, torch.int8: INT8, torch.float32: FP32}[weight.dtype]
    pack = (library.tr_pack_bf16, library.tr_pack_int8, library.tr_pack_fp32)[kind]
    pack(weight.data_ptr(), n, k, made.data_ptr())
    record = LinearRecord(kind=kind, n=n, k=k, weight=made.data_ptr())
    held = [made]
    if scale is not None:
        sums = weight.sum(1, dtype=torch.int64).float()
        for name, values in (("scale", scale), ("sum", sums)):
            held.append(_whole(values, n))
            setattr(record, name, held[-1].data_ptr())
    if bias is not None:
        held.append(_whole(bias, n))
        record.bias = held[-1].data_ptr()
    return Packed(record, tuple(held), library.tr_depth(kind))


def _filled(n: int) -> int:
    return -(-n // PANEL) * PANEL


def _whole(values: Tensor, n: int) -> Tensor:
    return functional.pad(values.float(), (0, _filled(n) - n)).contiguous()
