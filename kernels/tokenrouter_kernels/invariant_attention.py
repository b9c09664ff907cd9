"""Attention of new tokens over paged keys and values, equal to the bit whatever the batch, the chunking and the page table.

Every product has one shape: `QUERIES` tokens of a request by `KEYS` positions from a multiple of `KEYS` on. The blocks of
positions are joined in order by a running maximum and sum (M. Milakov, N. Gimelshein, arXiv:1805.02867), so a block
that a token does not see multiplies by exactly 1 and adds exactly 0, and it does not matter how many of them follow.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tokenrouter_kernels.ragged import Ragged

QUERIES = 4
KEYS = 64
_LOW = -1e30  # finite, so that a block that is not seen leaves the sums at 0


class _Blocks(NamedTuple):
    tokens: Tensor  # [N, QUERIES] rows of the batch, padded with the block's first
    real: Tensor  # [N, QUERIES] bool
    position: Tensor  # [N, QUERIES] positions of the tokens
    requests: Tensor  # [N]
    slots: Tensor  # [R, blocks * KEYS]
    last: list[int]  # [N] positions to look at, descending


def invariant_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    ragged: Ragged,
    scale: float,
    *,
    window: int | None = None,
) -> Tensor:
    """Attend: q [T, heads, D], keys and values [slots, kv_heads, D] -> [T, heads, D]."""
    blocks = _blocks(ragged)
    heads, width = q.shape[1:]
    kv_heads = keys.shape[1]
    share = heads // kv_heads
    n = len(blocks.last)
    rows = q[blocks.tokens].view(n, QUERIES, kv_heads, share, width).transpose(1, 2)
    rows = rows.reshape(n, kv_heads, QUERIES * share, width)
    top = torch.full((n, kv_heads, QUERIES * share, 1), _LOW, dtype=q.dtype, device=q.device)
    total = torch.zeros_like(top)
    sums = torch.zeros_like(rows)
    for start in range(0, max(blocks.last), KEYS):
        # Blocks of queries stand with the longest context first, so those that go on are a prefix.
        live = sum(1 for last in blocks.last if last > start)
        slots = blocks.slots[blocks.requests[:live], start : start + KEYS]
        k = keys[slots].permute(0, 2, 3, 1).contiguous()
        v = values[slots].transpose(1, 2).contiguous()
        position = torch.arange(start, start + KEYS, device=q.device)
        seen = position <= blocks.position[:live, :, None]
        if window is not None:
            seen &= position > blocks.position[:live, :, None] - window
        seen = seen.repeat_interleave(share, 1)[:, None]
        scores = _products(rows[:live], k) * scale
        scores = torch.where(seen, scores, _LOW)
        higher = torch.maximum(top[:live], scores.amax(-1, keepdim=True))
        weights = torch.where(seen, (scores - higher).exp(), 0.0)
        fade = (top[:live] - higher).exp()
        total[:live] = total[:live] * fade + weights.sum(-1, keepdim=True)
        sums[:live] = sums[:live] * fade + _products(weights, v)
        top[:live] = higher
    found = (sums / total).view(n, kv_heads, QUERIES, share, width).transpose(1, 2)
    out = torch.empty_like(q)
    out[blocks.tokens[blocks.real]] = found.reshape(n, QUERIES, heads, width)[blocks.real]
    return out


def _products(a: Tensor, b: Tensor) -> Tensor:
    """Return matrix products, one for each block of queries and key head."""
    return torch.bmm(a.flatten(0, 1), b.flatten(0, 1)).unflatten(0, a.shape[:2])


def _blocks(ragged: Ragged) -> _Blocks:
    found = ragged.made.get("blocks")
    if found is None:
        found = ragged.made["blocks"] = _cut(ragged)
    assert isinstance(found, _Blocks)
    return found


def _cut(ragged: Ragged) -> _Blocks:
    """Cut the new tokens of every request into blocks."""
    device = ragged.page_table.device
    cut: list[tuple[int, int, int, int, int]] = []  # last position + 1, request, row, tokens, first
    for request in range(ragged.requests):
        n = ragged.count(request)
        begin = ragged.lengths[request] - n
        for at in range(0, n, QUERIES):
            size = min(QUERIES, n - at)
            row = ragged.offsets[request] + at
            cut.append((begin + at + size, request, row, size, begin + at))
    cut.sort(key=lambda block: (-block[0], block[1:]))
    last, requests, rows, sizes, first = (list(column) for column in zip(*cut, strict=True))
    within = torch.arange(QUERIES, device=device)
    real = within < torch.tensor(sizes, device=device)[:, None]
    step = torch.where(real, within, 0)
    blocks = -(-max(last) // KEYS)
    return _Blocks(
        tokens=torch.tensor(rows, device=device)[:, None] + step,
        real=real,
        position=torch.tensor(first, device=device)[:, None] + step,
        requests=torch.tensor(requests, device=device),
        slots=ragged.slots(list(range(ragged.requests)), blocks * KEYS),
        last=last,
    )
