"""The likeliest id and the signals of logits in compiled kernels: a row is read twice, and nothing as long as it is written."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from tokenrouter_kernels.signals import Key, Shared, found

COLUMNS = ("entropy", "varentropy", "maxprob", "margin", "logprob", "rank")  # of certainty.h
_APART = {
    "varentropy": 1 << 1,
    "rank": 1 << 5,
}  # those that are computed only where they are asked for


class Looked(NamedTuple):
    """What a step has seen of its logits already: the likeliest ids [B] int64, and the columns of those [COLUMNS, B], but for `_APART`."""

    ids: Tensor
    columns: Tensor

    @classmethod
    def new(cls, rows: int) -> Looked:
        """Return room for so many rows."""
        return cls(torch.empty(rows, dtype=torch.int64), torch.empty(len(COLUMNS), rows))


def fits(logits: Tensor) -> bool:
    """Return whether logits lie as the kernels read them."""
    return logits.dtype == torch.float32 and logits.device.type == "cpu" and logits.stride(1) == 1


def greedy(library: ctypes.CDLL, logits: Tensor) -> Tensor:
    """Return the id of the largest logit, ties to the lowest: [B, V] -> [B] int64."""
    rows, n = logits.shape
    ids = torch.empty(rows, dtype=torch.int64)
    library.tr_greedy(logits.data_ptr(), rows, n, logits.stride(0), ids.data_ptr())
    return ids


def signals(
    library: ctypes.CDLL,
    needed: Sequence[Key],
    logits: Tensor,
    candidates: Tensor,
    looked: Looked | None = None,
) -> dict[Key, Tensor]:
    """Return the needed signals by (name, args): logits [B, V], candidates [B] int64 -> [B] each; `looked` is of these candidates."""
    wanted = sum({_APART[name] for name, _ in needed if name in _APART})
    shared = _Rows(library, logits, candidates.contiguous(), wanted)
    if looked is not None and not wanted:
        shared.known(looked.columns)
    return {key: found(shared, key) for key in needed}


class _Rows(Shared):
    """What all signals share, from one look at each row; the k largest logits are torch's."""

    def __init__(
        self, library: ctypes.CDLL, logits: Tensor, candidates: Tensor, wanted: int
    ) -> None:
        super().__init__(logits, candidates)
        self._library = library
        self._wanted = wanted
        self._columns: Tensor | None = None  # [COLUMNS, B]

    def known(self, columns: Tensor) -> None:
        self._columns = columns

    def column(self, name: str) -> Tensor:
        if self._columns is None:
            rows, n = self.x.shape
            out = torch.empty(len(COLUMNS), rows)
            at, to = self.candidates.data_ptr(), out.data_ptr()
            self._library.tr_certainty(
                self.x.data_ptr(), rows, n, self.x.stride(0), at, self._wanted, to
            )
            self._columns = out
        return self._columns[COLUMNS.index(name)]

    def entropy(self) -> Tensor:
        return self.column("entropy")

    def varentropy(self) -> Tensor:
        return self.column("varentropy")

    def maxprob(self) -> Tensor:
        return self.column("maxprob")

    def margin(self) -> Tensor:
        return self.column("margin")

    def logprob(self) -> Tensor:
        return self.column("logprob")

    def rank(self) -> Tensor:
        return self.column("rank")
