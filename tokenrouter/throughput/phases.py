"""Stays of a length of their own, as chains of phases (**beyond** the source, which has geometric runs only).

`borrow M for n` stays exactly n steps, and a return on a delimiter has its own distribution. A stay becomes stations of
the lending model: in phase q exactly q steps are left, so phase q goes to q - 1 and phase 1 goes back; the length is
drawn on entering, P[source, phase q] = p f(q). All stations of a model share its server and its window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tokenrouter.throughput.spec import SpecError


@dataclass(frozen=True, slots=True)
class Stay:
    """After a step at `source`, with probability `p`, a request stays with the model `at` and then goes to `back`."""

    source: int
    at: int
    back: int
    p: float
    lengths: Sequence[float]  # f(1), f(2), ...: how likely a stay of so many steps is; sums to 1
    kept: float  # tokens committed by the step at `source` that begins the stay
    kept_each: float = 1.0  # tokens committed by each step of the stay
    hold: float = 0.0  # how likely a phase repeats: it lasts 1 / (1 - hold) steps on average


class Stations(NamedTuple):
    """The fields of a specification that are by station; the first M stations are the models themselves."""

    p: list[list[float]]
    c: list[list[float]]
    model_of: list[int]


def exactly(steps: int) -> list[float]:
    """Return the lengths of a stay of exactly so many steps, at least 1."""
    return [0.0] * (steps - 1) + [1.0]


def with_stays(
    p: Sequence[Sequence[float]], c: Sequence[Sequence[float]], stays: Sequence[Stay]
) -> Stations:
    """Return stations for `p` and `c` by model and the stays; a row of `p` and its stays sum to 1 together.

    Raises SpecError for a stay whose lengths are no distribution.
    """
    n_models = len(p)
    size = n_models + sum(len(stay.lengths) for stay in stays)
    out_p = [[*row, *[0.0] * (size - n_models)] for row in p]
    out_c = [[*row, *[0.0] * (size - n_models)] for row in c]
    model_of = list(range(n_models))
    for at, stay in enumerate(stays):
        if abs(math.fsum(stay.lengths) - 1) > 1e-6 or min(stay.lengths) < 0:
            raise SpecError(f"the lengths of stay {at} must be probabilities that sum to 1")
        first = len(model_of)
        for steps, share in enumerate(stay.lengths, 1):
            phase = first + steps - 1
            after = stay.back if steps == 1 else phase - 1
            out_p[stay.source][phase] = stay.p * share
            out_c[stay.source][phase] = stay.kept
            next_p, next_c = [0.0] * size, [0.0] * size
            next_p[after], next_c[after] = 1.0 - stay.hold, stay.kept_each
            if stay.hold > 0:
                next_p[phase], next_c[phase] = stay.hold, stay.kept_each
            out_p.append(next_p)
            out_c.append(next_c)
            model_of.append(stay.at)
    return Stations(out_p, out_c, model_of)
