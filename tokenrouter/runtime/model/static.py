"""One batch in buffers that stay where they are: what a captured graph reads, whatever batch it is launched for.

A bucket has R requests of n new tokens each, [R * n] rows. A batch that fits is laid into it: requests that are missing and tokens that a
request lacks are padding, behind the real ones. Padding is computed and never read: its keys and values go to a scratch page
that belongs to nobody, its queries stand behind a request's own tokens, where no token of anybody sees them.

All numbers travel in one copy, from pinned memory where the buffers lie on a GPU. The host writes them as Python's own arrays of
numbers: a tensor takes lists slowly, and numpy, which torch does without, may be missing.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
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
    words: memoryview  # the numbers of `host`
    begins: Parts  # where each part begins in them
    on_host: Parts  # views of `host`
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
            _words(host),
            _begins(shapes),
            _parts(host, shapes),
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
        size, scratch, words, to = self.page_size, self.scratch, self.words, self.begins
        assert len(extensions) <= r, (len(extensions), r)
        self.on_host.token_ids.zero_()
        self.on_host.table.fill_(scratch)
        self.on_host.slots.copy_(torch.arange(scratch * size, scratch * size + n))
        width = self.on_host.table.shape[1]
        for at, (tokens, start, pages, _) in enumerate(extensions):
            m = len(tokens)
            assert 0 < m <= n and start + n <= self.room, (m, start, self.bucket)
            self._put(to.token_ids + at * n, tokens)
            self._put(to.positions + at * n, range(start, start + n))
            taken = range(start, start + m)
            self._put(to.slots + at * n, [pages[p // size] * size + p % size for p in taken])
            words[to.rows + at] = at * n + m - 1
            words[to.lengths + at] = start + n
            used = -(-(start + m) // size)
            self._put(to.table + at * width, pages[:used])
        for at in range(len(extensions), r):
            self._put(to.positions + at * n, range(n))
            words[to.rows + at] = at * n
            words[to.lengths + at] = n
        self.device.copy_(self.host, non_blocking=True)

    def _put(self, begin: int, numbers: Sequence[int]) -> None:
        self.words[begin : begin + len(numbers)] = memoryview(array("q", numbers))

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


def _words(host: Tensor) -> memoryview:
    """Return a tensor's numbers, to be written; they are there as long as the tensor is."""
    there = (ctypes.c_int64 * host.numel()).from_address(host.data_ptr())
    return memoryview(there).cast("B").cast("q")


def _begins(shapes: list[tuple[int, ...]]) -> Parts:
    """Return where each part begins in a row of numbers."""
    return Parts(*accumulate((prod(shape) for shape in shapes[:-1]), initial=0))


def _parts(whole: Tensor, shapes: list[tuple[int, ...]]) -> Parts:
    """Return views of a row of numbers."""
    begins = _begins(shapes)
    return Parts(
        *(
            whole[begin : begin + prod(shape)].view(shape)
            for begin, shape in zip(begins, shapes, strict=True)
        )
    )
