"""Counter-based random numbers: Philox4x32-10 (J. Salmon et al., «Parallel random numbers: as easy as 1, 2, 3», SC 2011).

    counter = (position, model, purpose, 0)        key = (seed mod 2^32, seed div 2^32)
    u = ((w0 * 2^32 + w1) div 2^11) * 2^-53        with w0, w1 the first two output words

A draw is a pure function of these four numbers, so it depends neither on the batch nor on the device. All arithmetic is
on 32-bit words held in int64, where the 64-bit products wrap as they do in every language.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

SAMPLE, MIX, CHANCE = 0, 1, 2  # purposes; a draw of one never repeats one of another

_WORD = 0xFFFFFFFF
_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85


def seeds(values: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Return seeds of 64 bits, unsigned, as int64 [B] of the same bits."""
    signed = [v - (1 << 64) if v >= 1 << 63 else v for v in values]
    return torch.tensor(signed, dtype=torch.int64, device=device)


def uniform(seed: Tensor, position: Tensor, model: int, purpose: int) -> Tensor:
    """Return draws in [0, 1) with 53 bits: seed [B] int64, position [B] int64 -> [B] float64."""
    w0, w1, _, _ = philox(
        (seed & _WORD, seed >> 32 & _WORD),
        (
            position & _WORD,
            torch.full_like(position, model),
            torch.full_like(position, purpose),
            torch.zeros_like(position),
        ),
    )
    # w0 has 32 bits: the shift by 21 leaves 53, so nothing is lost on the way to float64.
    return ((w0 << 21) | (w1 >> 11)).double() * 2.0**-53


def philox(
    key: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return four random words for each counter; words are int64 in [0, 2^32)."""
    k0, k1 = key
    a, b, c, d = counter
    for _ in range(10):
        high0, low0 = _product(a, _M0)
        high1, low1 = _product(c, _M1)
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = k0 + _W0 & _WORD, k1 + _W1 & _WORD
    return a, b, c, d


def _product(x: Tensor, factor: int) -> tuple[Tensor, Tensor]:
    """Return the two words of a 64-bit product; it may wrap to a negative int64, whose bits are right."""
    product = x * factor
    return product >> 32 & _WORD, product & _WORD
