"""The weights of a dummy model: drawn, so that they are equal on every machine, and so fast that a large model loads in seconds.

One block of normal numbers is drawn by the seed; each tensor is that block, read from a place of its own (by its name) over and
over, and scaled to its width. The block's length is a prime, so that no two rows of a matrix are equal.
"""

from __future__ import annotations

from math import prod
from zlib import crc32

import torch
from torch import Tensor

from tokenrouter.models.config import ModelConfig
from tokenrouter.models.dummy import tensors

BLOCK = 4_194_301
SPREAD = 3.0  # of the logits, so that they are neither flat nor certain


class Dummy:
    """Random weights of a model's shape."""

    def __init__(self, config: ModelConfig, seed: int, device: torch.device | str = "cpu") -> None:
        self.shapes = tensors(config)
        generator = torch.Generator().manual_seed(seed)
        # Drawn on the processor, so that they are equal on every machine, and repeated where they are wanted.
        self.block = torch.randn(BLOCK, generator=generator).to(device)

    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self.shapes)

    def get(self, name: str) -> Tensor:
        """Return one tensor, float32."""
        shape = self.shapes[name]
        if name.endswith("norm.weight"):
            return torch.ones(shape, device=self.block.device)
        scale = shape[-1] ** -0.5
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            scale *= SPREAD
        n, begin = prod(shape), crc32(name.encode()) % BLOCK
        turned = torch.cat((self.block[begin:], self.block[:begin])) * scale
        drawn: Tensor = turned.repeat(-(-n // BLOCK))[:n].view(shape)
        return drawn
