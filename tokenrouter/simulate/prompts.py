"""How long a simulated model reads prompts, and how much of them goes into one batch.

    R_m(n)  ms for n tokens of prompts in a batch of their own, on straight lines between the given points
    beside a batch they add R_m(n) less what a batch costs however little it reads

The budget of a batch is the runtime's (`runtime.scheduler`): what decodes leave of it, and a quarter in any case. While others write
it is also no more than takes as long as they may be kept waiting, as the runtime's own `Pace` learns it from batches before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from tokenrouter.runtime.pace import Allowance

BUDGET = 512  # tokens of one batch

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Reading(Generic[T]):
    """A prompt that a model has not read to its end."""

    request: T
    left: int  # tokens
    owned: bool  # whether the request waits for it; otherwise it is read ahead
    start: int = 0  # tokens that are read


@dataclass(frozen=True, slots=True)
class Prompts:
    """What prompts cost each model."""

    tokens: int  # of a prompt that brings no length of its own
    curves: Sequence[Sequence[tuple[int, float]]]  # by model: tokens and R_m, ms, ascending
    eager: Sequence[
        bool
    ]  # by model: whether it reads a prompt at admission, before a request comes
    stall_ms: float | None = None  # that a batch may take for prompts while others write
    hidden: Sequence[
        int
    ] = ()  # by model, where the time is bounded: a token deep in a text costs more

    @staticmethod
    def beside(size: int) -> int:
        """Return how many tokens of prompts go beside so many requests."""
        return max(BUDGET - size, BUDGET // 4)

    def ms(self, model: int, n: int, *, beside: bool) -> float:
        """Return what n tokens take in a batch of their own, or add to another."""
        curve = self.curves[model]
        whole = max(0.0, _line(curve, n))  # a line may fall below 0 before its first point
        return whole - min(whole, max(0.0, _line(curve, 0))) if beside else whole


def _line(curve: Sequence[tuple[int, float]], n: int) -> float:
    """Return the height of a line through points, whose first and last parts go on."""
    if len(curve) == 1:
        return curve[0][1]
    parts = list(pairwise(curve))
    (a, low), (b, high) = next((part for part in parts if n <= part[1][0]), parts[-1])
    return low + (high - low) * (n - a) / (b - a)


def divided(
    readings: Sequence[Reading[T]], work: float, allowance: Allowance
) -> list[tuple[Reading[T], int]]:
    """Return who is read in a batch and how much of it: half for those sooner read than the oldest, the rest in turn."""
    kept: dict[int, float] = {}
    half = work / 2
    for at, reading in sorted(enumerate(readings[1:], 1), key=lambda each: each[1].left):
        n = min(reading.left, allowance.affords(reading.start, half))
        if n == 0 or reading.left >= readings[0].left:
            break
        kept[at] = n * allowance.cost(reading.start)
        half -= kept[at]
    out = []
    for at, reading in enumerate(readings):
        kept.pop(at, None)
        n = min(reading.left, allowance.affords(reading.start, work - sum(kept.values())))
        if n:
            out.append((reading, n))
            work -= n * allowance.cost(reading.start)
    return out
