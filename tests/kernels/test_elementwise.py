"""RMSNorm, rotary embedding and SiLU-mul against their formulas."""

import math

import pytest
import torch
from tokenrouter_kernels import rms_norm, rotary, silu_mul


def test_rms_norm_divides_by_the_root_of_the_mean_square():
    got = rms_norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]]), torch.tensor([1.0, 2.0]), 0.5)

    root = math.sqrt(12.5 + 0.5)
    torch.testing.assert_close(got, torch.tensor([[3 / root, 8 / root], [0.0, 0.0]]))


def test_rms_norm_of_large_half_precision_numbers_does_not_overflow():
    got = rms_norm(torch.full((1, 4), 30000.0, dtype=torch.float16), torch.ones(4).half(), 1e-6)

    assert got.tolist() == [[1.0] * 4]


def test_rotary_turns_pairs_of_dimensions_and_leaves_the_rest():
    x = torch.tensor([[[1.0, 2.0, 3.0, 4.0, 7.0]]])
    angle = torch.tensor([[0.5, 1.5]])
    cos, sin = torch.cat((angle, angle), 1).cos(), torch.cat((angle, angle), 1).sin()

    got = rotary(x, cos, sin)

    c, s = angle[0].cos(), angle[0].sin()
    expected = [c[0] - 3 * s[0], 2 * c[1] - 4 * s[1], 3 * c[0] + s[0], 4 * c[1] + 2 * s[1], 7.0]
    torch.testing.assert_close(got.flatten(), torch.tensor([float(v) for v in expected]))


@pytest.mark.parametrize("batch_invariant", [False, True])
def test_silu_mul_gates_the_second_half_by_the_first(batch_invariant):
    x = torch.tensor([[-100.0, 0.0, 2.0, 5.0, 6.0, 7.0]])

    got = silu_mul(x, batch_invariant=batch_invariant)

    torch.testing.assert_close(got, torch.tensor([[0.0, 0.0, 2 / (1 + math.exp(-2)) * 7]]))


def test_the_invariant_silu_has_the_same_bits_at_every_place_of_a_tensor(two_threads):
    torch.manual_seed(0)
    x = 3 * torch.randn(97, 2 * 1001)  # enough for two threads to part it within a row
    alone = torch.cat([silu_mul(x[i : i + 1], batch_invariant=True) for i in range(97)])

    for rows in range(66, 98):
        assert torch.equal(silu_mul(x[:rows], batch_invariant=True), alone[:rows]), rows
