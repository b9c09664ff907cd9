"""The keys and values of one pool: for each layer a tensor of pages.

Layout: [pages * page_size, kv_heads, head_dim], slot = page * page_size + position in the page. Which page belongs to whom
is the allocator's business (`tokenrouter.runtime.pool`), not known here.
"""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class KVShape(NamedTuple):
    """What one token leaves in one layer."""

    kv_heads: int
    key_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class KVCache:
    """The pages of one model."""

    page_size: int
    keys: list[Tensor]  # by layer: [slots, kv_heads, key_dim]
    values: list[Tensor]  # by layer: [slots, kv_heads, value_dim]

    @classmethod
    def new(
        cls,
        shapes: list[KVShape],
        pages: int,
        page_size: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> KVCache:
        """Return empty pages. They hold zeros: what a mask hides must still be finite."""
        slots = pages * page_size
        of_token = sum(shape.kv_heads * (shape.key_dim + shape.value_dim) for shape in shapes)
        if torch.device(device).type == "cpu" and slots * of_token * dtype.itemsize > installed():
            raise MemoryError("more keys and values than the machine has memory")
        keys, values = [], []
        for shape in shapes:
            size = (slots, shape.kv_heads)
            keys.append(zeros((*size, shape.key_dim), dtype, device))
            values.append(zeros((*size, shape.value_dim), dtype, device))
        return cls(page_size, keys, values)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Put new tokens' keys and values into their slots: slots [T], keys [T, kv_heads, D]."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)


def installed() -> float:
    """Return the machine's memory in bytes, where it tells."""
    names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
    if not all(name in os.sysconf_names for name in names):
        return math.inf
    return math.prod(os.sysconf(name) for name in names)


def zeros(size: tuple[int, ...], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """Return zeros; on a CPU they take no memory until something is written there, page by page of the machine's."""
    if torch.device(device).type != "cpu" or not hasattr(mmap, "MAP_ANONYMOUS"):
        return torch.zeros(size, dtype=dtype, device=device)
    n = math.prod(size) * dtype.itemsize
    try:
        memory = mmap.mmap(-1, max(1, n), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(str(error)) from None
    return torch.frombuffer(memory, dtype=torch.uint8, count=n).view(dtype).view(size)
