"""Attention of ragged extends over a paged KV cache: every request brings 1..n new tokens and reads its own pages.

Shapes: T new tokens of all requests together, H query heads, K key heads, D head width, S slots of the pool (pages x
page size). A slot holds one position of one request; keys and values are [S, K, D]. The new tokens' keys and values are
in their slots before attention reads them. Query i of a request at position p reads positions 0..p.

Two ways with one meaning:
* fast: requests of like size share one call, padded to the longest of them;
* fixed: every query stands alone, its context cut into blocks of 64 positions that are merged in order by their log-sum-exp
  weights (arXiv 1805.02867). The cut depends on nothing but the position, so the bits depend on nothing but the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

BLOCK = 64  # positions that the fixed way reads at once
SHORT = 16  # new tokens up to which requests are padded to each other
QUERIES = 64  # queries that the fixed way reads for at once, a bound on its memory
_NEVER = -1e30  # finite, so that a block without a visible position leaves no NaN


class Group(NamedTuple):
    """Requests of one attention call."""

    tokens: torch.Tensor  # [b, n] rows of the batch; padding repeats a row of the same request
    slots: torch.Tensor  # [b, L] slots of the context; padding repeats slot 0
    mask: torch.Tensor | None  # [b, 1, n, L] what each query may read; None where that is everything
    keep: torch.Tensor | None  # [b, n] which queries are real; None where all are


class PagedContext:
    """Where a batch's requests keep their context; made once a step and read by every layer."""

    def __init__(
        self, starts: Sequence[int], news: Sequence[int], slots: Sequence[torch.Tensor], fixed: bool
    ) -> None:
        """Take by request: position of its first new token, number of new ones, and all its slots [L] int64."""
        assert len(starts) == len(news) == len(slots), (len(starts), len(news), len(slots))
        assert all(len(s) == a + n for s, a, n in zip(slots, starts, news, strict=True)), "slots"
        ends = torch.tensor(news).cumsum(0).tolist()
        self.firsts = [end - n for end, n in zip(ends, news, strict=True)]
        self.fixed = fixed
        self.starts, self.news, self.slots = list(starts), list(news), list(slots)
        self.written = torch.cat([s[a:] for s, a in zip(slots, starts, strict=True)])  # [T]
        self.groups = [] if fixed else [self._group(rows) for rows in self._alike()]

    def _alike(self) -> list[list[int]]:
        """Return the requests that share a call: decodes, short extends, each long extend alone."""
        decodes = [i for i, n in enumerate(self.news) if n == 1]
        shorts = [i for i, n in enumerate(self.news) if 1 < n <= SHORT]
        longs = [[i] for i, n in enumerate(self.news) if n > SHORT]
        return [rows for rows in (decodes, shorts, *longs) if rows]

    def _group(self, rows: list[int]) -> Group:
        most = max(self.news[i] for i in rows)
        longest = max(len(self.slots[i]) for i in rows)
        slots = torch.stack([pad(self.slots[i], (0, longest - len(self.slots[i]))) for i in rows])
        start = torch.tensor([self.starts[i] for i in rows])
        new = torch.tensor([self.news[i] for i in rows])
        first = torch.tensor([self.firsts[i] for i in rows])
        at = torch.arange(most).minimum(new[:, None] - 1)  # [b, n]
        position = start[:, None] + at
        every = len(rows) == 1 and most == 1
        mask = None if every else torch.arange(longest) <= position[:, None, :, None]
        full = bool((new == most).all())
        keep = None if full else torch.arange(most) < new[:, None]
        return Group(first[:, None] + at, slots, mask, keep)


def paged_attention(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, context: PagedContext, scale: float
) -> torch.Tensor:
    """Return attention for all new tokens: q [T, H, D], keys and values [S, K, D] -> [T, H, D]."""
    if context.fixed:
        return _fixed(q, keys, values, context, scale)
    out = torch.empty_like(q)
    heads, width = q.shape[1:]
    shared = heads // keys.shape[1]
    for tokens, slots, mask, keep in context.groups:
        b, n = tokens.shape
        # The heads of a group read the same keys, so they become further queries of one key head.
        asked = q[tokens].view(b, n, -1, shared, width).permute(0, 2, 3, 1, 4)
        asked = asked.reshape(b, -1, shared * n, width)
        k = keys[slots].transpose(1, 2)
        v = values[slots].transpose(1, 2)
        spread = mask if mask is None or n == 1 else mask.repeat(1, 1, shared, 1)
        mixed = scaled_dot_product_attention(asked, k, v, attn_mask=spread, scale=scale)
        mixed = mixed.view(b, -1, shared, n, width).permute(0, 3, 1, 2, 4).reshape(b, n, heads, -1)
        if keep is None:
            out[tokens] = mixed
        else:
            out[tokens[keep]] = mixed[keep]
    return out


def _fixed(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, context: PagedContext, scale: float
) -> torch.Tensor:
    """Return attention by the fixed way; QUERIES of one request at a time share what they gather."""
    out = torch.empty_like(q)
    for start, new, first, slots in zip(
        context.starts, context.news, context.firsts, context.slots, strict=True
    ):
        for at in range(0, new, QUERIES):
            n = min(QUERIES, new - at)
            seen = slots[: start + at + n]
            rows = slice(first + at, first + at + n)
            out[rows] = _blocks(q[rows], keys[seen], values[seen], start + at, scale)
    return out


def _blocks(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int, scale: float
) -> torch.Tensor:
    """Return attention of queries [n, H, D] at positions start.. over k and v [L, K, D], block by block."""
    n, heads, width = q.shape
    shared = heads // k.shape[1]
    asked = (q * scale).view(n, -1, shared, width).reshape(-1, shared, width)  # [n K, G, D]
    position = torch.arange(start, start + n, device=q.device)
    peak = torch.full((len(asked), shared, 1), _NEVER, dtype=q.dtype, device=q.device)
    total = torch.zeros_like(peak)
    mixed = torch.zeros_like(asked)
    for low in range(0, len(k), BLOCK):
        part_k, part_v = (_block(x, low, n) for x in (k, v))
        places = torch.arange(low, low + BLOCK, device=q.device)
        hidden = (places > position[:, None]).repeat_interleave(k.shape[1], 0)[:, None, :]
        scores = torch.bmm(asked, part_k.transpose(1, 2)).masked_fill(hidden, _NEVER)
        new_peak = torch.maximum(peak, scores.amax(-1, keepdim=True))
        # Where a block holds nothing to read, exp(0) must not count it: the mask is applied again.
        weight = (scores - new_peak).exp().masked_fill(hidden, 0.0)
        old = (peak - new_peak).exp()
        total = total * old + weight.sum(-1, keepdim=True)
        mixed = mixed * old + torch.bmm(weight, part_v)
        peak = new_peak
    return (mixed / total).view(n, heads, width)


def _block(x: torch.Tensor, low: int, n: int) -> torch.Tensor:
    """Return one block of keys or values for each query and key head, padded: [L, K, D] -> [n K, BLOCK, D]."""
    part = x[low : low + BLOCK]
    part = pad(part, (0, 0, 0, 0, 0, BLOCK - len(part))).transpose(0, 1)  # [K, BLOCK, D]
    return part.repeat(n, 1, 1)
