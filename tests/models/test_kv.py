"""A pool of keys and values: zeros, laid for whole vectors, that take memory where they are written and not before."""

import os
from pathlib import Path

import pytest
import torch

from tokenrouter.runtime.model.kv import KVCache, KVShape, installed

MIB = 1 << 20


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_a_new_cache_holds_zeros_that_vectors_can_be_read_from(dtype):
    cache = KVCache.new([KVShape(3, 10, 6)] * 2, pages=5, page_size=4, dtype=dtype)

    for keys, values in zip(cache.keys, cache.values, strict=True):
        assert keys.shape == (20, 3, 10) and values.shape == (20, 3, 6)
        assert keys.dtype == values.dtype == dtype
        assert not keys.any() and not values.any()
        assert keys.data_ptr() % 64 == values.data_ptr() % 64 == 0
        assert keys.is_contiguous() and values.is_contiguous()


def test_layers_share_nothing():
    cache = KVCache.new([KVShape(1, 2, 2)] * 2, pages=2, page_size=2, dtype=torch.float32)
    cache.write(0, torch.tensor([1]), torch.ones(1, 1, 2), 2 * torch.ones(1, 1, 2))

    assert cache.keys[0].sum() == 2 and cache.values[0].sum() == 4
    assert not cache.keys[1].any() and not cache.values[1].any()


def test_memory_is_taken_where_something_is_written():
    before = resident()
    cache = KVCache.new([KVShape(4, 64, 64)] * 2, 4096, 16, torch.float32)  # 256 MiB
    untouched = resident() - before
    for layer in cache.keys + cache.values:
        layer[: 64 * 16].fill_(1.0)  # 64 pages: 4 MiB in all
    written = resident() - before

    assert untouched < 2 * MIB
    assert 4 * MIB <= written < 20 * MIB


def test_more_than_the_machine_has_is_refused_though_no_part_of_it_is_too_much():
    pages = int(installed()) // (16 * 4 * 128 * 4 * 50)

    with pytest.raises(MemoryError, match="more keys and values than the machine has"):
        KVCache.new([KVShape(4, 64, 64)] * 60, pages, 16, torch.float32)
