"""The angles of the rotary embedding, with the scalings that stretch a context: linear, llama3, yarn.

Angles are computed in float32 and cast to the model's dtype, as the checkpoints were trained. A block of positions is always
computed as a whole, so that an angle's bits do not depend on which positions are asked for.
"""

from __future__ import annotations

from math import log, pi

import torch
from torch import Tensor

from tokenrouter.models.config import ModelConfig, Rope
from tokenrouter.models.errors import ModelError

_BLOCK = 1024


class RotaryTable:
    """cos and sin by position, grown on demand."""

    def __init__(
        self,
        config: ModelConfig,
        dtype: torch.dtype,
        factors: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._frequencies, self._scale = frequencies(config, factors)
        self._dtype = dtype
        self._blocks: list[Tensor] = []
        self._device = device
        self._table = torch.empty(0)

    def __call__(self, positions: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """Return cos and sin: positions [T], all below `longest` -> [T, D] each."""
        self.reach(longest)
        cos, sin = self._table.index_select(0, positions).unbind(1)
        return cos, sin

    def table(self, longest: int) -> Tensor:
        """Return cos and sin of every position below `longest`, at least: [positions, 2, D]."""
        self.reach(longest)
        return self._table

    def reach(self, longest: int) -> None:
        """Make the table as long as it must be, so that looking positions up allocates nothing anew."""
        while len(self._blocks) * _BLOCK < longest:
            self._grow()

    def _grow(self) -> None:
        begin = len(self._blocks) * _BLOCK
        at = torch.arange(begin, begin + _BLOCK, dtype=torch.float32)
        angles = at[:, None] * self._frequencies
        angles = torch.cat((angles, angles), -1)
        pair = torch.stack((angles.cos() * self._scale, angles.sin() * self._scale), 1)
        self._blocks.append(pair.to(self._device, self._dtype))
        self._table = torch.cat(self._blocks)


def frequencies(config: ModelConfig, factors: Tensor | None = None) -> tuple[Tensor, float]:
    """Return the frequency of each pair of dimensions [D / 2] float32, and what to multiply cos and sin by."""
    rope = config.rope
    turned = int(config.head_dim * rope.partial)
    exponents = torch.arange(0, turned, 2, dtype=torch.int64).float() / turned
    plain = 1.0 / rope.theta**exponents
    match rope.kind:
        case "default":
            return plain, 1.0
        case "factors":
            assert factors is not None
            return plain / factors.float(), 1.0
        case "linear":
            return plain / _need(rope, "factor"), 1.0
        case "llama3":
            return _llama3(plain, rope), 1.0
        case "yarn":
            return _yarn(plain, rope, turned, config.context)
        case _:
            raise ModelError(f"rotary scaling `{rope.kind}` is not supported")


def _need(rope: Rope, name: str) -> float:
    value = rope.scaling.get(name)
    if value is None:
        raise ModelError(f"rotary scaling `{rope.kind}` lacks `{name}` in the model's config")
    return float(value)


def _llama3(plain: Tensor, rope: Rope) -> Tensor:
    """Slow waves are stretched, fast ones are not, those between are mixed."""
    factor = _need(rope, "factor")
    low, high = _need(rope, "low_freq_factor"), _need(rope, "high_freq_factor")
    original = _need(rope, "original_max_position_embeddings")
    length = 2 * pi / plain
    mixed = (original / length - low) / (high - low)
    between = (1 - mixed) * plain / factor + mixed * plain
    slow = torch.where(length > original / low, plain / factor, plain)
    is_between = (length <= original / low) & (length >= original / high)
    return torch.where(is_between, between, slow)


def _yarn(plain: Tensor, rope: Rope, turned: int, context: int) -> tuple[Tensor, float]:
    """B. Peng et al., «YaRN: Efficient Context Window Extension of Large Language Models», 2023."""
    scaling = rope.scaling
    original = float(scaling.get("original_max_position_embeddings") or context)
    factor = float(scaling.get("factor") or context / original)

    def dimension(rotations: float) -> float:
        return turned * log(original / (rotations * 2 * pi)) / (2 * log(rope.theta))

    low = dimension(float(scaling.get("beta_fast") or 32))
    high = dimension(float(scaling.get("beta_slow") or 1))
    if scaling.get("truncate", True):
        low, high = float(int(low // 1)), float(-int(-high // 1))
    low, high = max(low, 0.0), min(high, turned - 1.0)
    if low == high:
        high += 0.001
    ramp = ((torch.arange(turned // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return plain / factor * ramp + plain * (1 - ramp), _yarn_scale(rope, factor)


def _yarn_scale(rope: Rope, factor: float) -> float:
    def temper(mscale: float = 1.0) -> float:
        return 0.1 * mscale * log(factor) + 1.0 if factor > 1 else 1.0

    scaling = rope.scaling
    if scaling.get("attention_factor") is not None:
        return float(scaling["attention_factor"])
    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return temper(float(scaling["mscale"])) / temper(float(scaling["mscale_all_dim"]))
    return temper()
