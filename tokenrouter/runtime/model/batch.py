"""One batch for a model: the new tokens of each request, be it a prefill chunk, a return from a peer or a decode.

All are extends of 1..n tokens, laid out one after the other without padding.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from tokenrouter_kernels import Ragged
from torch import Tensor


class Extension(NamedTuple):
    """One request's part of a batch."""

    tokens: Sequence[int]  # that the model has not seen, at least one
    start: int  # position of tokens[0]; all before it are in the cache
    pages: Sequence[
        int
    ]  # the request's pages in order; they hold at least start + len(tokens) tokens
    samples: int = 1  # of how many of the last tokens the logits are wanted


@dataclass(frozen=True, slots=True)
class ExtendBatch:
    """T new tokens of R requests; the logits are wanted after S of them."""

    token_ids: Tensor  # [T] int64
    positions: Tensor  # [T] int64
    slots: Tensor  # [T] int64: where their keys and values go
    logits_rows: Tensor  # [S] int64: rows among T, in request order
    ragged: Ragged
    vocabulary: int = 0  # of how many logits the likeliest may be told with them; 0: nobody asks

    @classmethod
    def of(
        cls,
        extensions: Sequence[Extension],
        page_size: int,
        device: torch.device | str = "cpu",
        vocabulary: int = 0,
    ) -> ExtendBatch:
        """Return the batch of some requests, in their order."""
        assert extensions
        offsets, lengths = [0], []
        token_ids: list[int] = []
        positions: list[int] = []
        slots: list[int] = []
        rows: list[int] = []
        for tokens, start, pages, samples in extensions:
            end = start + len(tokens)
            assert tokens and end <= len(pages) * page_size, (start, len(tokens), len(pages))
            token_ids += tokens
            positions += range(start, end)
            slots += [
                pages[at // page_size] * page_size + at % page_size for at in range(start, end)
            ]
            offsets.append(len(token_ids))
            lengths.append(end)
            rows += range(len(token_ids) - samples, len(token_ids))
        width = max(-(-length // page_size) for length in lengths)
        table: list[int] = []
        for extension in extensions:
            own = extension.pages[:width]
            table += own
            table += [0] * (width - len(own))
        # One tensor for all numbers: making one takes longer than filling it, and torch reads a list slowly.
        numbers = [*token_ids, *positions, *slots, *rows, *table]
        whole = torch.frombuffer(array("q", numbers), dtype=torch.int64)
        if torch.device(device).type == "cuda":
            whole = whole.pin_memory().to(device, non_blocking=True)
        n = len(token_ids)
        ids, at, to, sampled, pages_of = torch.split(whole, [n, n, n, len(rows), len(table)])
        ragged = Ragged(offsets, lengths, pages_of.view(len(lengths), width), page_size)
        return cls(ids, at, to, sampled, ragged, vocabulary)


class ExtendOutput(NamedTuple):
    """What a batch gave, a row for each request that samples, in their order."""

    logits: Tensor  # [S, vocab rows], in the model's dtype, padding rows included
    hidden: Tensor | None  # [S, H] after the final norm; None where nobody asked
    # What was seen of the logits on the way, where the batch asked and the decoder can; see `Looked`.
    ids: Tensor | None = None
    columns: Tensor | None = None
