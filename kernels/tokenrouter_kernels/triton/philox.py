"""Counter-based random numbers on the device: the draws of `tokenrouter_kernels.philox`, to the bit.

Shapes: seed, position [B] int64 -> [B] float64, 53 bits; the key is the seed, the counter (position, model, purpose), so that a draw
depends on neither batch nor order. The ten rounds and the conversion are one function, which route programs call in place. Words
of 32 bits are held in uint64, where no product or sum of two can overflow.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 128


@triton.jit
def draw(seed, position, model, purpose):
    """Return draws in [0, 1) with 53 bits, as the CPU makes them: int64 seeds and positions -> float64."""
    word: tl.constexpr = 0xFFFFFFFF
    k0 = seed.to(tl.uint64, bitcast=True) & word
    k1 = (seed.to(tl.uint64, bitcast=True) >> 32) & word
    a = position.to(tl.uint64) & word
    b = a * 0 + model
    c = a * 0 + purpose
    d = a * 0
    for _ in tl.static_range(10):
        first = a * 0xD2511F53
        second = c * 0xCD9E8D57
        a, b, c, d = (second >> 32) ^ b ^ k0, second & word, (first >> 32) ^ d ^ k1, first & word
        k0 = (k0 + 0x9E3779B9) & word
        k1 = (k1 + 0xBB67AE85) & word
    return ((a << 21) | (b >> 11)).to(tl.float64) * (1.0 / 9007199254740992.0)


@triton.jit
def uniform_kernel(seed_ptr, position_ptr, out_ptr, B, model, purpose, BLOCK: tl.constexpr):
    """Draw for `BLOCK` rows."""
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = row < B
    seed = tl.load(seed_ptr + row, mask=inside, other=0)
    position = tl.load(position_ptr + row, mask=inside, other=0)
    tl.store(out_ptr + row, draw(seed, position, model, purpose), mask=inside)


def uniform(seed: Tensor, position: Tensor, model: int, purpose: int) -> Tensor:
    """Return draws in [0, 1) with 53 bits: seed [B] int64, position [B] int64 -> [B] float64."""
    rows = len(seed)
    out = torch.empty(rows, dtype=torch.float64, device=seed.device)
    if rows:
        grid = (triton.cdiv(rows, _BLOCK),)
        uniform_kernel[grid](seed, position, out, rows, model, purpose, BLOCK=_BLOCK)
    return out
