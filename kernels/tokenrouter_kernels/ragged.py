"""A ragged batch over paged keys and values: which tokens belong to which request, and where their context lies.

The cache of a layer is [slots, kv_heads, D] with slot = page * page_size + offset in the page. Each request brings its
newest tokens, whose keys and values are in the cache already; token i of a request sees its context up to itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

SHORT = 8  # tokens of an extend that is batched with the decodes


class Group(NamedTuple):
    """Requests that attend in one padded call: G requests, n tokens each, L keys each."""

    tokens: Tensor  # [G, n] rows of the batch; padding repeats the first
    real: Tensor | None  # [G, n] bool; None where nothing is padding
    slots: Tensor  # [G, L] of the cache; padding is slot 0
    mask: Tensor  # [G, n, L] bool, True where seen


@dataclass(frozen=True)
class Ragged:
    """The layout of one batch, from which each kernel makes what it needs, once a step and not once a layer."""

    offsets: list[int]  # [R + 1] rows of the batch by request
    lengths: list[int]  # [R] context lengths, the new tokens included
    page_table: Tensor  # [R, P] int64, filled up with 0
    page_size: int
    made: dict[object, object] = field(default_factory=dict)  # by kernel and its settings

    @property
    def requests(self) -> int:
        """Number of requests."""
        return len(self.lengths)

    def count(self, request: int) -> int:
        """Return the number of new tokens of a request."""
        return self.offsets[request + 1] - self.offsets[request]

    def slots(self, requests: list[int], width: int) -> Tensor:
        """Return the slots of the first `width` positions of some requests: [G, width]."""
        pages = -(-width // self.page_size)
        table = self.page_table[requests, :pages] if len(requests) < self.requests else None
        table = self.page_table[:, :pages] if table is None else table
        inside = torch.arange(self.page_size, device=table.device)
        found = (table[:, :, None] * self.page_size + inside).flatten(1)
        if found.shape[1] < width:
            found = torch.nn.functional.pad(found, (0, width - found.shape[1]))
        return found[:, :width]

    def groups(self, window: int | None) -> list[Group]:
        """Return the requests in padded calls of about one size, with causal masks of a sliding window or none."""
        key = ("groups", window)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = [self._group(r, window) for r in self._alike()]
        return found  # type: ignore[return-value]  # made just so, under this key

    def _alike(self) -> list[list[int]]:
        """Part the requests so that padding at most doubles the work: long extends stand alone."""
        bins: dict[object, list[int]] = {}
        for request in range(self.requests):
            n = self.count(request)
            length = max(64, self.lengths[request])
            key: object = (n > 1, (length - 1).bit_length()) if n <= SHORT else (request,)
            bins.setdefault(key, []).append(request)
        return list(bins.values())

    def _group(self, requests: list[int], window: int | None) -> Group:
        device = self.page_table.device
        starts = torch.tensor([self.offsets[r] for r in requests], device=device)
        counts = torch.tensor([self.count(r) for r in requests], device=device)
        lengths = torch.tensor([self.lengths[r] for r in requests], device=device)
        n, width = int(counts.max()), int(lengths.max())
        within = torch.arange(n, device=device)
        real = within < counts[:, None]
        tokens = starts[:, None] + torch.where(real, within, 0)
        position = (lengths - counts)[:, None] + torch.where(real, within, 0)
        key = torch.arange(width, device=device)
        mask = key <= position[:, :, None]
        if window is not None:
            mask &= key > position[:, :, None] - window
        return Group(tokens, None if bool(real.all()) else real, self.slots(requests, width), mask)
