"""One batch in buffers that stay where they are: what a captured graph reads, whatever batch it is launched for.

A bucket has R requests of n new tokens each, [R * n] rows. A batch that fits is laid into it: requests that are missing and tokens that a
request lacks are padding, behind the real ones. Padding is computed and never read: its keys and values go to a scratch page
that belongs to nobody, its queries stand behind a request's own tokens, where no token of anybody sees them.

All numbers travel in one copy, from pinned memory where the buffers lie on a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from tokenrouter_kernels import Ragged
from torch import Tensor

from tokenrouter.runtime.model.batch import ExtendBatch, Extension


class Bucket(NamedTuple):
    """The size of a captured batch."""

    requests: int
    tokens: int  # new ones of each request


class Parts(NamedTuple):
    """The buffers' parts, views of one tensor of int64."""

    token_ids: Any  # [R, n]
    positions: Any  # [R, n]
    slots: Any  # [R, n]
    rows: Any  # [R]: the last real token's row of each request
    lengths: Any  # [R]: context, padding tokens included
    table: Any  # [R, P]: pages of each request, the scratch page behind them


@dataclass(frozen=True, slots=True)
class Static:
    """The buffers of one bucket, on the host and on the device."""

    bucket: Bucket
    page_size: int
    scratch: int  # the first page that padding writes to
    host: Tensor
    device: Tensor
    on_host: Parts  # numpy views of `host`
    on_device: Parts  # views of `device`

    @classmethod
    def new(
        cls,
        bucket: Bucket,
        pages: int,
        page_size: int,
        scratch: int,
        device: torch.device | str = "cpu",
    ) -> Static:
        """Return buffers that hold padding alone; a request has at most `pages` pages."""
        r, n = bucket
        shapes = [(r, n), (r, n), (r, n), (r,), (r,), (r, pages)]
        total = 3 * r * n + 2 * r + r * pages
        host = torch.zeros(total, dtype=torch.int64, pin_memory=_is_cuda(device))
        there = torch.zeros(total, dtype=torch.int64, device=device)
        made = cls(
            bucket,
            page_size,
            scratch,
            host,
            there,
            _parts(host.numpy(), shapes),
            _parts(there, shapes),
        )
        made.fill([])
        return made

    @property
    def room(self) -> int:
        """The most tokens of context that a request may have, its padding included."""
        return int(self.on_host.table.shape[1]) * self.page_size

    def fill(self, extensions: Sequence[Extension]) -> None:
        """Lay a batch into the buffers and begin to copy them; each of its requests samples at most once."""
        r, n = self.bucket
        size, scratch, host = self.page_size, self.scratch, self.on_host
        assert len(extensions) <= r, (len(extensions), r)
        host.token_ids[:] = 0
        host.table[:] = scratch
        host.slots[:] = range(scratch * size, scratch * size + n)
        for at, (tokens, start, pages, _) in enumerate(extensions):
            m = len(tokens)
            assert 0 < m <= n and start + n <= self.room, (m, start, self.bucket)
            host.token_ids[at, :m] = tokens
            host.positions[at] = range(start, start + n)
            host.slots[at, :m] = [
                pages[p // size] * size + p % size for p in range(start, start + m)
            ]
            host.rows[at] = at * n + m - 1
            host.lengths[at] = start + n
            used = -(-(start + m) // size)
            host.table[at, :used] = pages[:used]
        for at in range(len(extensions), r):
            host.positions[at] = range(n)
            host.rows[at] = at * n
            host.lengths[at] = n
        self.device.copy_(self.host, non_blocking=True)

    def batch(self) -> ExtendBatch:
        """Return the buffers as a batch. On a GPU nothing of it is looked at here, so that it can be captured."""
        r, n = self.bucket
        parts = self.on_device
        offsets = [at * n for at in range(r + 1)]
        if self.device.device.type == "cpu":
            ragged = Ragged(offsets, parts.lengths.tolist(), parts.table, self.page_size)
        else:
            ragged = Ragged(offsets, [self.room] * r, parts.table, self.page_size)
            paged = self.paged()
            ragged.made[type(paged)] = paged
        flat = (parts.token_ids.view(-1), parts.positions.view(-1), parts.slots.view(-1))
        return ExtendBatch(*flat, parts.rows, ragged)

    def paged(self) -> object:
        """Return the layout as kernels read it: tensors alone."""
        # Triton is needed on a GPU only.
        from tokenrouter_kernels.triton import Paged  # noqa: PLC0415

        r, n = self.bucket
        parts, device = self.on_device, self.device.device
        offsets = torch.arange(r + 1, dtype=torch.int32, device=device) * n
        lengths = parts.lengths.to(torch.int32)
        return Paged(offsets, lengths, parts.table.to(torch.int32), self.page_size, n)


def _is_cuda(device: torch.device | str) -> bool:
    return torch.device(device).type == "cuda"


def _parts(whole: Any, shapes: list[tuple[int, ...]]) -> Parts:
    """Return views of a row of numbers, of numpy or of torch."""
    views, begin = [], 0
    for shape in shapes:
        n = 1
        for side in shape:
            n *= side
        views.append(whole[begin : begin + n].reshape(shape))
        begin += n
    return Parts(*views)
