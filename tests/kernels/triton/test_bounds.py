"""The check of kernels' loads and stores catches what it is there for."""

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < N), mask=i < N)


@pytest.mark.parametrize(("given", "made"), [(6, 8), (8, 6)], ids=["load", "store"])
def test_a_load_or_store_beyond_an_argument_is_an_error(given, made):
    x, y = torch.arange(8.0), torch.arange(8.0)

    with pytest.raises(Exception, match="of 2 elements that no argument holds"):
        copy_kernel[(1,)](x[:given], y[:made], 8, BLOCK=8)


def test_what_lies_between_rows_is_no_part_of_a_view():
    x, y = torch.arange(8.0), torch.arange(8.0)

    with pytest.raises(Exception, match="that no argument holds"):
        copy_kernel[(1,)](x.view(2, 4)[:, :3], y, 8, BLOCK=8)


def test_a_masked_lane_touches_nothing():
    x, y = torch.arange(8.0), torch.zeros(8)

    copy_kernel[(1,)](x[:5], y[:5], 5, BLOCK=8)

    assert y.tolist() == [0, 1, 2, 3, 4, 0, 0, 0]


def test_what_is_read_and_written_of_a_tensor_is_counted(loaded, stored):
    x, y = torch.arange(8.0), torch.zeros(8)

    for _ in range(2):
        copy_kernel[(1,)](x[:5], y[:5], 5, BLOCK=8)

    assert (loaded(x), loaded(y)) == (10, 0)
    assert (stored(x), stored(y)) == (0, 10)


def test_unwritten_memory_is_poisoned():
    assert torch.empty(3).isnan().all()
