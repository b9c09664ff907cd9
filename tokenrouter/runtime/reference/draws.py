"""Random numbers, one at a time: Philox4x32-10 in plain integers (Salmon et al., SC 2011).

A draw is a pure function of (seed, position, model, purpose), which are laid out as `tokenrouter_kernels.philox` says.
"""

from __future__ import annotations

SAMPLE, MIX, CHANCE = 0, 1, 2  # purposes
_WORD = 0xFFFFFFFF


def philox(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, int, int, int]:
    """Return four 32-bit words."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & _WORD, (a >> 32) ^ c3 ^ k1, a & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int, model: int, purpose: int) -> float:
    """Return a number in [0, 1) with 53 random bits."""
    key = (seed & _WORD, seed >> 32 & _WORD)
    high, low, _, _ = philox(key, (position, model, purpose, 0))
    return (high << 32 | low) // 2**11 / 2**53
