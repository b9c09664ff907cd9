"""The likeliest id and the signals of logits in compiled kernels: a row is read twice, and nothing as long as it is written."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from tokenrouter_kernels.signals import Key, Shared, found

COLUMNS = ("entropy", "varentropy", "maxprob", "margin", "logprob", "rank")  # of certainty.h
_APART = {
    "varentropy": 1 << 1,
    "rank": 1 << 5,
}  # those that are computed only where they are asked for


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
    library: ctypes.CDLL, needed: Sequence[Key], logits: Tensor, candidates: Tensor
) -> dict[Key, Tensor]:
    """Return the needed signals by (name, args): logits [B, V], candidates [B] int64 -> [B] each."""
    wanted = sum({_APART[name] for name, _ in needed if name in _APART})
    shared = _Looked(library, logits, candidates.contiguous(), wanted)
    return {key: found(shared, key) for key in needed}


class _Looked(Shared):
    """What all signals share, from one look at each row; the k largest logits are torch's."""

    def __init__(
        self, library: ctypes.CDLL, logits: Tensor, candidates: Tensor, wanted: int
    ) -> None:
        super().__init__(logits, candidates)
        self._library = library
        self._wanted = wanted
        self._columns: dict[str, Tensor] = {}

    def column(self, name: str) -> Tensor:
        if not self._columns:
            rows, n = self.x.shape
            out = torch.empty(len(COLUMNS), rows)
            at, to = self.candidates.data_ptr(), out.data_ptr()
            self._library.tr_certainty(
                self.x.data_ptr(), rows, n, self.x.stride(0), at, self._wanted, to
            )
            self._columns = dict(zip(COLUMNS, out.unbind(), strict=True))
        return self._columns[name]

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
