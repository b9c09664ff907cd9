"""Uniform draws for one request in plain Python: what the front end needs without torch.

The numbers are those of `tokenrouter_kernels.philox`, which draws for whole batches; a test holds the two together.
Philox4x32-10: J. Salmon et al., «Parallel random numbers: as easy as 1, 2, 3», SC 2011.
"""

from __future__ import annotations

SAMPLE, MIX, CHANCE = 0, 1, 2  # purposes; a draw of one never repeats one of another
_MASK = 0xFFFFFFFF


def uniform(seed: int, position: int, model: int, purpose: int) -> float:
    """Return the draw in [0, 1) of a request at a position, at a model, for a purpose."""
    a, b, c, d = position & _MASK, model, purpose, 0
    key0, key1 = seed & _MASK, seed >> 32 & _MASK
    for _ in range(10):
        ab, cd = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = cd >> 32 ^ b ^ key0, cd & _MASK, ab >> 32 ^ d ^ key1, ab & _MASK
        key0, key1 = key0 + 0x9E3779B9 & _MASK, key1 + 0xBB67AE85 & _MASK
    return ((a << 21) | (b >> 11)) * 2.0**-53
