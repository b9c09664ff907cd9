"""What a launch may choose freely: tile sizes, warps, stages. Plain tables, so that nothing is tried out at import.

Sizes here are part of the results' bits (the order of sums), so they depend on widths and dtypes, never on the batch.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from triton import knobs

# The interpreter's product of bf16 matrices is wrong, without a word: kernels widen their operands first.
UPCAST: bool = knobs.runtime.interpret

ELEMENTS = 1024  # of one program of an elementwise kernel
PART = 4096  # logits that one program reads
SHORT = 8  # new tokens a request up to which the context is split
HEAD_ROWS = 4  # heads of one token that one program of `write_qkv` turns
LARGEST = 256  # the k of mass(k) up to which the largest logits are picked in one pass


class Tile(NamedTuple):
    """One program of attention."""

    rows: int  # of the query block: new tokens x heads that share a key head
    keys: int  # positions a turn of the loop
    warps: int
    stages: int


PART_POSITIONS = 512  # of the context, by one program of the split kernel; a multiple of `keys`


def decode_tile(dtype: torch.dtype, width: int) -> Tile:
    """Return the tile of the split kernel."""
    if dtype == torch.float32:
        return Tile(16, 16, 8, 2)
    return Tile(16, 32, 4, 2) if width > 128 else Tile(16, 64, 4, 3)


def prefill_tile(dtype: torch.dtype, width: int) -> Tile:
    """Return the tile of the prefill kernel."""
    if dtype == torch.float32:
        return Tile(16, 16, 8, 2)
    return Tile(64, 64, 8, 2) if width > 128 else Tile(64, 64, 4, 3)


def row_warps(width: int) -> int:
    """Return the warps of a program that holds a row of this width."""
    return 4 if width <= 2048 else 8 if width <= 8192 else 16
