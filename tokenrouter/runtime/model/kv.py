"""The keys and values of one pool: for each layer a tensor of pages.

Layout: [pages * page_size, kv_heads, head_dim], slot = page * page_size + position in the page. Which page belongs to whom
is the allocator's business (`tokenrouter.runtime.pool`), not known here.
"""

from __future__ import annotations

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
        keys, values = [], []
        for shape in shapes:
            size = (slots, shape.kv_heads)
            keys.append(torch.zeros(*size, shape.key_dim, dtype=dtype, device=device))
            values.append(torch.zeros(*size, shape.value_dim, dtype=dtype, device=device))
        return cls(page_size, keys, values)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Put new tokens' keys and values into their slots: slots [T], keys [T, kv_heads, D]."""
        self.keys[layer].index_copy_(0, slots, keys)
        self.values[layer].index_copy_(0, slots, values)
