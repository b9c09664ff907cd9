"""Attention over pages against dense attention, for ragged batches; and the bits of the batch-invariant form."""

from typing import NamedTuple

import pytest
import torch
from tokenrouter_kernels import Ragged, invariant_attention, paged_attention

# By request: context length and how many of it are new.
BATCHES = {
    "one decode": [(5, 1)],
    "first token": [(1, 1)],
    "decodes": [(1, 1), (17, 1), (64, 1), (65, 1), (130, 1)],
    "one prefill": [(33, 33)],
    "chunk and returns and decodes": [(70, 40), (9, 3), (16, 1), (129, 8), (64, 2), (3, 3)],
    "page borders": [(8, 8), (9, 1), (7, 1), (16, 9)],
}


class Case(NamedTuple):
    q: torch.Tensor
    keys: torch.Tensor
    values: torch.Tensor
    ragged: Ragged
    pages: list[list[int]]


def case(batch, heads=6, kv_heads=2, width=8, page_size=4, dtype=torch.float32, seed=0):
    """Return new queries and a cache whose pages lie anywhere; pages of nobody hold large numbers."""
    generator = torch.Generator().manual_seed(seed)
    needed = [-(-length // page_size) for length, _ in batch]
    total = sum(needed) + 3
    free = torch.randperm(total, generator=generator).tolist()
    pages = [[free.pop() for _ in range(n)] for n in needed]
    size = (total * page_size, kv_heads, width)
    keys = torch.randn(size, generator=generator, dtype=dtype)
    values = torch.randn(size, generator=generator, dtype=dtype)
    for page in free:
        keys[page * page_size : (page + 1) * page_size] = 1e4
        values[page * page_size : (page + 1) * page_size] = 1e4
    offsets = [0]
    for _, new in batch:
        offsets.append(offsets[-1] + new)
    q = torch.randn(offsets[-1], heads, width, generator=generator, dtype=dtype)
    table = torch.tensor([p + [0] * (max(needed) - len(p)) for p in pages])
    ragged = Ragged(offsets, [length for length, _ in batch], table, page_size)
    return Case(q, keys, values, ragged, pages)


def dense(c, request, window=None, softcap=None):
    """Return one request's outputs, all of its keys side by side."""
    ragged, size = c.ragged, c.ragged.page_size
    length = ragged.lengths[request]
    slots = [page * size + at for page in c.pages[request] for at in range(size)][:length]
    q = c.q[ragged.offsets[request] : ragged.offsets[request + 1]].double()
    share = q.shape[1] // c.keys.shape[1]
    k = c.keys[slots].double().repeat_interleave(share, 1)
    v = c.values[slots].double().repeat_interleave(share, 1)
    scores = torch.einsum("nhd,lhd->hnl", q, k) * 0.3
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    at = torch.arange(length - q.shape[0], length)[:, None]
    key = torch.arange(length)
    hidden = key > at
    if window is not None:
        hidden |= key <= at - window
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("hnl,lhd->nhd", weights, v)


@pytest.mark.parametrize("window", [None, 5], ids=["all", "window"])
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 2), (4, 4), (3, 1)], ids=str)
@pytest.mark.parametrize("attention", [paged_attention, invariant_attention])
@pytest.mark.parametrize("batch", BATCHES.values(), ids=list(BATCHES))
def test_every_request_sees_its_own_context_and_nothing_else(
    batch, attention, heads, kv_heads, window
):
    c = case(batch, heads, kv_heads)

    got = attention(c.q, c.keys, c.values, c.ragged, 0.3, window=window)

    expected = torch.cat([dense(c, request, window) for request in range(len(batch))])
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=list(BATCHES))
def test_scores_can_be_capped(batch):
    c = case(batch)

    got = paged_attention(c.q, c.keys, c.values, c.ragged, 0.3, softcap=0.7)

    expected = torch.cat([dense(c, request, softcap=0.7) for request in range(len(batch))])
    torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-5)


def test_values_may_have_another_width_than_keys():
    c = case(BATCHES["decodes"])

    got = paged_attention(c.q, c.keys, c.values[..., :4].contiguous(), c.ragged, 0.3)

    full = paged_attention(c.q, c.keys, c.values, c.ragged, 0.3)
    torch.testing.assert_close(got, full[..., :4])


def alone(c, request, first, last, padding=0):
    """Return one request's tokens first..last of the new ones as a batch of its own, its table padded."""
    ragged = c.ragged
    begin = ragged.offsets[request]
    context = ragged.lengths[request] - ragged.count(request)
    table = torch.tensor([c.pages[request] + [0] * padding])
    own = Ragged([0, last - first], [context + last], table, ragged.page_size)
    return invariant_attention(c.q[begin + first : begin + last], c.keys, c.values, own, 0.3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "width"), [(9, 3, 64), (4, 2, 8), (2, 1, 16)], ids=str
)
@pytest.mark.parametrize("batch", BATCHES.values(), ids=list(BATCHES))
def test_bits_depend_on_neither_batch_nor_chunks_nor_page_table(
    batch, heads, kv_heads, width, dtype, two_threads
):
    c = case(batch, heads, kv_heads, width, dtype=dtype)

    crowd = invariant_attention(c.q, c.keys, c.values, c.ragged, 0.3)

    for request, (_, new) in enumerate(batch):
        mine = crowd[c.ragged.offsets[request] : c.ragged.offsets[request + 1]]
        for size in (1, 7):
            parts = [
                alone(c, request, at, min(at + size, new), padding=40) for at in range(0, new, size)
            ]
            assert torch.equal(torch.cat(parts), mine), (request, size)
