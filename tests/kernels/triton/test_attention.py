"""Attention over pages against dense attention, and the bits of both kernels whatever the batch."""

from importlib import import_module

import numpy as np
import pytest
import torch
from tokenrouter_kernels import Ragged
from tokenrouter_kernels import triton as fast

from tests.kernels.test_attention import BATCHES, case, dense

KERNELS = pytest.mark.parametrize(
    "attention", [fast.decode_attention, fast.prefill_attention], ids=["decode", "prefill"]
)
LONG = [(70, 20), (9, 3), (129, 1), (33, 33)]
SHORT = [(70, 4), (9, 3), (129, 1), (65, 2)]
# Heads, key heads, width of a head: groups of 3, 1, 4, of no power of 2, and more heads than a block has rows.
SHAPES = [(6, 2, 8), (4, 4, 16), (4, 1, 12), (7, 1, 8), (18, 1, 4)]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    module = import_module("tokenrouter_kernels.triton.decode_attention")
    monkeypatch.setattr(module, "PART_POSITIONS", 64)


def attended(attention, c, scale=0.3, **kwargs):
    return attention(c.q, c.keys, c.values, fast.Paged.of(c.ragged), scale, **kwargs)


def expected(c, **kwargs):
    return torch.cat([dense(c, request, **kwargs) for request in range(c.ragged.requests)])


def row_by_row(matmul):
    """Return a product of matrices whose rows are computed alone."""

    def product(a, b, **kwargs):
        return np.concatenate([matmul(a[at : at + 1], b, **kwargs) for at in range(len(a))])

    return product


def poisoned(c):
    """Return a case whose pages of nobody hold NaN, and where no page is free."""
    for tensor in (c.keys, c.values):
        tensor[tensor.abs() > 1e3] = float("nan")
    return c


@pytest.mark.parametrize(
    ("attention", "batch"),
    [
        *((fast.decode_attention, BATCHES[name]) for name in ("first token", "decodes")),
        (fast.decode_attention, SHORT),
        *((fast.prefill_attention, BATCHES[name]) for name in ("one prefill", "page borders")),
        (fast.prefill_attention, LONG),
    ],
    ids=["first token", "decodes", "short extends", "prefill", "page borders", "chunks"],
)
def test_every_request_sees_its_own_context_and_nothing_else(attention, batch):
    c = poisoned(case(batch))

    got = attended(attention, c)

    torch.testing.assert_close(got.double(), expected(c), rtol=1e-4, atol=1e-5)


@KERNELS
@pytest.mark.parametrize("page_size", [1, 5, 16])
@pytest.mark.parametrize(("heads", "kv_heads", "width"), SHAPES, ids=str)
def test_heads_share_keys_in_groups_of_any_size(attention, heads, kv_heads, width, page_size):
    c = poisoned(case([(6, 6), (66, 1), (16, 3)], heads, kv_heads, width, page_size))

    got = attended(attention, c)

    torch.testing.assert_close(got.double(), expected(c), rtol=1e-4, atol=1e-5)


@KERNELS
@pytest.mark.parametrize("window", [1, 5, 64])
def test_a_window_hides_what_is_too_old(attention, window):
    c = poisoned(case([(70, 7), (130, 1), (3, 3)], 2, 1))

    got = attended(attention, c, window=window)

    torch.testing.assert_close(got.double(), expected(c, window=window), rtol=1e-4, atol=1e-5)


@KERNELS
@pytest.mark.parametrize("softcap", [0.7, 30.0])
def test_scores_can_be_capped(attention, softcap):
    c = poisoned(case([(70, 2), (5, 5)], 2, 1))

    got = attended(attention, c, softcap=softcap)

    torch.testing.assert_close(got.double(), expected(c, softcap=softcap), rtol=1e-4, atol=1e-5)


@KERNELS
def test_values_may_have_another_width_than_keys(attention):
    c = case(BATCHES["decodes"])
    values = c.values[..., :5].contiguous()

    got = attended(attention, c._replace(values=values))

    torch.testing.assert_close(got, attended(attention, c)[..., :5])


@KERNELS
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_narrow_dtypes_are_summed_in_float32(attention, dtype):
    c = case([(70, 3), (5, 1), (129, 2)], dtype=dtype)

    got = attended(attention, c)

    assert got.dtype == dtype
    tolerance = 2e-2 if dtype == torch.bfloat16 else 2e-3
    torch.testing.assert_close(got.double(), expected(c), rtol=tolerance, atol=tolerance)


@KERNELS
def test_rows_of_queries_keys_and_values_may_lie_apart(attention, apart):
    c = case(SHORT)
    q = apart(c.q.flatten(1)).unflatten(1, c.q.shape[1:])

    got = attended(attention, c._replace(q=q, keys=apart(c.keys, 8), values=apart(c.values, 4)))

    torch.testing.assert_close(got.double(), expected(c), rtol=1e-4, atol=1e-5)


@KERNELS
def test_a_cache_without_a_free_page_is_read_to_its_end_and_no_further(attention):
    c = case([(64, 1), (7, 7), (128, 2)], page_size=8)
    slots = {page * 8 + at for pages in c.pages for page in pages for at in range(8)}
    last = max(slots) + 1

    got = attended(attention, c._replace(keys=c.keys[:last], values=c.values[:last]))

    torch.testing.assert_close(got.double(), expected(c), rtol=1e-4, atol=1e-5)


@KERNELS
def test_of_keys_and_values_a_context_is_read_once_and_no_more(attention, loaded):
    c = case([(70, 1), (9, 1)], 4, 2, 12)

    attended(attention, c)

    parts = 2 + 1 if attention is fast.decode_attention else 1 + 1  # of 64 positions
    assert loaded(c.keys) == loaded(c.values) == (70 + 9) * 2 * 12
    assert loaded(c.q) == parts * 4 * 12


@KERNELS
def test_a_block_without_tokens_reads_nothing(attention, loaded):
    c = case([(70, 3), (9, 1)], 18, 1, 4)  # one token a block

    attended(attention, c)

    assert loaded(c.keys) == loaded(c.values) == (68 + 69 + 70 + 9) * 4


@KERNELS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bits_depend_on_neither_batch_nor_chunks_nor_page_table(attention, dtype, monkeypatch):
    # What is held is the kernel. Triton's interpreter asks numpy, whose library may go by a row's place (seen without AVX-512).
    monkeypatch.setattr(np, "matmul", row_by_row(np.matmul))
    batch = [(70, 4), (9, 2), (130, 1)]
    c = case(batch, 4, 2, dtype=dtype)

    crowd = attended(attention, c)

    for request, (length, new) in enumerate(batch):
        begin = c.ragged.offsets[request]
        table = torch.tensor([c.pages[request] + [0] * 20])
        for at in range(new):
            row = slice(begin + at, begin + at + 1)
            own = Ragged([0, 1], [length - new + at + 1], table, c.ragged.page_size)
            alone = attended(attention, c._replace(q=c.q[row], ragged=own))
            assert torch.equal(alone, crowd[row]), (request, at)


def test_a_captured_layout_has_room_for_requests_that_are_not_there():
    c = case([(70, 2), (9, 2)])
    real = fast.Paged.of(c.ragged)
    room = fast.Paged(
        torch.arange(5, dtype=torch.int32) * 2,
        torch.tensor([70, 9, 0, 1], dtype=torch.int32),
        torch.cat((real.page_table, torch.zeros_like(real.page_table))),
        real.page_size,
        2,
    )
    q = torch.cat((c.q, torch.randn(4, *c.q.shape[1:])))

    got = fast.paged_attention(q, c.keys, c.values, room, 0.3)

    torch.testing.assert_close(got[:4].double(), expected(c), rtol=1e-4, atol=1e-5)


def test_long_extends_go_to_the_prefill_kernel_and_short_ones_do_not():
    for new, kernel in ((8, fast.decode_attention), (9, fast.prefill_attention)):
        c = case([(20, new), (10, 1)], 2, 1, dtype=torch.bfloat16)

        assert torch.equal(attended(fast.paged_attention, c), attended(kernel, c))
