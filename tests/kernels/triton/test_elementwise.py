"""Norms, the gate, rotary and the write into the cache against their references."""

import pytest
import tokenrouter_kernels as reference
import torch
from tokenrouter_kernels import triton as fast

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def close(got, expected):
    tolerance = TOLERANCE[expected.dtype]
    torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


@DTYPES
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 64), (2, 100), (5, 1025)])
def test_rms_norm(rows, width, dtype, apart):
    torch.manual_seed(0)
    x, weight = torch.randn(rows, width).to(dtype), torch.randn(width).to(dtype)

    got = fast.rms_norm(apart(x), weight, 1e-3)

    close(got, reference.rms_norm(x, weight, 1e-3))


@DTYPES
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 64), (2, 100)])
def test_the_norm_of_a_sum_is_that_of_the_rounded_sum(rows, width, dtype, apart):
    torch.manual_seed(0)
    x, residual = torch.randn(2, rows, width).to(dtype)
    weight = torch.randn(width).to(dtype)

    normed, summed = fast.add_rms_norm(apart(x), apart(residual, 5), weight, 1e-3)

    expected = reference.add_rms_norm(x, residual, weight, 1e-3)
    close(normed, expected[0])
    if dtype == torch.bfloat16:  # which the interpreter cuts off where a GPU rounds
        close(summed, expected[1])
    else:
        assert torch.equal(summed, expected[1])


@DTYPES
@pytest.mark.parametrize(("rows", "width"), [(1, 1), (3, 64), (2, 100), (2, 1100)])
def test_silu_mul(rows, width, dtype, apart):
    torch.manual_seed(0)
    x = (20 * torch.randn(rows, 2 * width)).to(dtype)

    got = fast.silu_mul(apart(x))

    close(got, reference.silu_mul(x))


def test_silu_mul_reads_every_number_once(loaded):
    x = torch.randn(2, 2 * 1100)

    fast.silu_mul(x)

    assert loaded(x) == x.numel()


def test_the_gate_of_a_very_negative_number_is_0():
    assert fast.silu_mul(torch.tensor([[-200.0, 3.0]])).tolist() == [[0.0]]


class Written:
    """What `write_qkv` of either kind makes of one case."""

    def __init__(self, heads, kv_heads, width, turned, dtype, norm):
        torch.manual_seed(0)
        slots = torch.tensor([5, 0, -1, 7])
        self.qkv = torch.randn(4, (heads + 2 * kv_heads) * width).to(dtype)
        angles = torch.randn(4, turned // 2).repeat(1, 2)
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)
        self.slots, self.heads = slots, heads
        self.cache = torch.full((2, 8, kv_heads, width), 9.0).to(dtype)
        norms = [torch.randn(width).to(dtype) for _ in range(2)]  # nobody's neighbours
        self.norms = {"query_norm": norms[0], "key_norm": norms[1], "eps": 1e-3} if norm else {}

    def __call__(self, write, move=lambda x: x):
        keys, values = self.cache.clone()
        angles = move(self.cos), move(self.sin)
        q = write(move(self.qkv), *angles, self.slots, keys, values, self.heads, **self.norms)
        return q, keys, values


@DTYPES
@pytest.mark.parametrize("norm", [True, False], ids=["norms", "plain"])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "width", "turned"),
    [(2, 1, 8, 8), (6, 2, 8, 8), (3, 3, 12, 12), (4, 1, 16, 6), (1, 1, 2, 2)],
    ids=str,
)
def test_queries_are_turned_and_keys_and_values_written(
    heads, kv_heads, width, turned, dtype, norm, apart
):
    case = Written(heads, kv_heads, width, turned, dtype, norm)

    for got, expected in zip(case(fast.write_qkv, apart), case(reference.write_qkv), strict=True):
        close(got, expected)


def test_slots_of_nobody_are_left_alone():
    _, keys, values = Written(2, 1, 8, 8, torch.float32, norm=False)(fast.write_qkv)

    for cache in (keys, values):
        assert (cache[[1, 2, 3, 4, 6]] == 9).all()
        assert (cache[[0, 5, 7]] != 9).all()


@pytest.mark.parametrize(("width", "turned"), [(8, 8), (16, 6)], ids=str)
def test_what_does_not_turn_is_stored_as_it_is(width, turned):
    case = Written(1, 1, width, turned, torch.float32, norm=False)
    heads = case.qkv.view(4, 3, width)
    heads[:, 2, 1] = float("inf")  # a value's
    heads[:, :2, turned:] = float("inf")

    for got, expected in zip(case(fast.write_qkv), case(reference.write_qkv), strict=True):
        assert torch.equal(got.isfinite(), expected.isfinite())
        close(got, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_alone_has_the_bits_that_it_has_in_a_crowd(dtype):
    torch.manual_seed(0)
    x, residual = torch.randn(2, 5, 96).to(dtype)
    weight = torch.randn(96).to(dtype)

    crowd = fast.add_rms_norm(x, residual, weight, 1e-3)[0], fast.silu_mul(x)

    for at in range(5):
        own = slice(at, at + 1)
        alone = fast.add_rms_norm(x[own], residual[own], weight, 1e-3)[0], fast.silu_mul(x[own])
        assert torch.equal(alone[0], crowd[0][own])
        assert torch.equal(alone[1], crowd[1][own])


def test_no_rows_are_no_work():
    nothing = torch.empty(0, 8)

    assert fast.rms_norm(nothing, torch.ones(8), 1e-3).shape == (0, 8)
    assert fast.silu_mul(nothing).shape == (0, 4)
