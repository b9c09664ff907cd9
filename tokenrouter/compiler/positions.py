"""Where in an answer guards change what they say of `position`, and how often each model decides between such places.

What a guard asks of the position alone is known at each position, so a request's way is a chain whose probabilities change
at a few places. Between them they are constant. A rule's share of a model's decisions is its mean over the stages, weighed by
the decisions that the model is expected to take in each; with these means the chain of `profile.flow` has the same visits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, isfinite
from typing import TYPE_CHECKING

from tokenrouter.compiler.assume import known
from tokenrouter.compiler.atoms import scaled
from tokenrouter.compiler.expr import (
    Aggregate,
    Comparison,
    Expr,
    Lit,
    ParamOf,
    SignalOf,
    rewrite,
    walk,
)
from tokenrouter.compiler.fold import fold
from tokenrouter.compiler.ir import Automaton
from tokenrouter.profile.flow import Step
from tokenrouter.profile.priors import MEAN_TOKENS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

POSITION = SignalOf("position")
LAST = int(16 * MEAN_TOKENS)  # one answer in nine million is longer
LIVES = 1.0 - 1.0 / MEAN_TOKENS  # the probability that a kept token is not the last
BENT = tuple(
    2**n for n in range(LAST.bit_length())
)  # where a guard that is not linear is looked at
RETRIES = 1.0 - 1e-9  # of a position that goes round for ever, so that its decisions have a number


def stages(auto: Automaton) -> list[int]:
    """Return where the stages of an answer begin; the first at 0, alone where no guard asks for the position."""
    cuts = {cut for _, _, rule in auto.rules() if rule.when for cut in _cuts(auto, rule.when)}
    return [0, *sorted(cut for cut in cuts if 0 < cut <= LAST)]


def _cuts(auto: Automaton, guard: Expr) -> Iterator[int]:
    """Yield the positions from which a comparison in a guard may say something else."""
    for part in walk(guard):
        if not isinstance(part, Comparison) or POSITION not in walk(part):
            continue
        if known(auto, part.left, 0.0) is None or known(auto, part.right, 0.0) is None:
            continue
        left, right = (scaled(_plain(auto, side)) for side in (part.left, part.right))
        factor = sum(
            sign * side.factor for sign, side in ((1, left), (-1, right)) if side.term == POSITION
        )
        if not {left.term, right.term} <= {None, POSITION}:
            yield from BENT
        elif factor and isfinite(at := (right.offset - left.offset) / factor):
            yield from range(floor(at), floor(at) + 3)


def _plain(auto: Automaton, expr: Expr) -> Expr:
    """Return a number with its params at their values, and a window of the position for the position."""

    def change(part: Expr) -> Expr:
        value = known(auto, part) if isinstance(part, ParamOf) else None
        if value is not None:
            return Lit(value, "number")
        return part.of if isinstance(part, Aggregate) else part

    return fold(rewrite(expr, change))


def visits(
    begins: Sequence[int], ways: Sequence[list[Step]], entry: list[float]
) -> list[list[float]]:
    """Return by stage and model the decisions that a request is expected to take, by the ways of each stage."""
    import numpy as np  # noqa: PLC0415

    n, end = len(entry), begins[-1]
    arrive, out = np.zeros((end + 1, n)), np.zeros((len(begins), n))
    arrive[0] = entry
    for stage, begin in enumerate(begins):
        jumps = _jumps(ways[stage], n)
        if begin == end:  # the last stage, which has no end
            jumps = {0: sum(jumps.values(), np.zeros((n, n)))}
        here = np.linalg.inv(np.eye(n) - RETRIES * jumps.pop(0, np.zeros((n, n))))
        for position in range(begin, end + 1 if begin == end else begins[stage + 1]):
            decide = arrive[position] @ here
            out[stage] += decide
            for jump, matrix in jumps.items():
                arrive[min(end, position + jump)] += decide @ matrix
    found: list[list[float]] = out.tolist()
    return found


def reach(
    begins: Sequence[int], ways: Sequence[list[Step]], entry: list[float], model: int
) -> float:
    """Return the probability that a request comes to a model, to decide or to lend, by the ways of each stage.

    It is the mass that goes there from the decisions of those that have not been there yet.
    """
    before = [
        [way for way in stage if model not in (way.source, way.target, way.lender)]
        for stage in ways
    ]
    seen = visits(begins, before, [p if at != model else 0.0 for at, p in enumerate(entry)])
    comes: float = entry[model] + sum(
        here[way.source] * way.p * LIVES**way.kept  # the last token goes nowhere
        for here, stage in zip(seen, ways, strict=True)
        for way in stage
        if way.source != model and model in (way.target, way.lender)
    )
    return min(1.0, float(comes))


def _jumps(ways: list[Step], n: int) -> dict[int, Array]:
    """Return who decides next, by how many positions further on; a length between two is one or the other."""
    import numpy as np  # noqa: PLC0415

    out: dict[int, Array] = {}
    for way in ways:
        if way.target is None:
            continue
        length = way.kept + way.borrowed
        low = floor(length)
        for jump, part in ((low, 1.0 - (length - low)), (low + 1, length - low)):
            if part:
                matrix = out.setdefault(jump, np.zeros((n, n)))
                matrix[way.source, way.target] += way.p * part * LIVES**length
    return out


def mean(
    begins: Sequence[int], rows: Sequence[list[list[float]]], seen: Sequence[list[float]]
) -> list[list[float]]:
    """Return by model and rule the mean of its shares over the stages, weighed by the decisions in each."""
    ends = [*begins[1:], None]
    alone = [
        LIVES**begin - (0.0 if end is None else LIVES**end)
        for begin, end in zip(begins, ends, strict=True)
    ]
    out = []
    for model in range(len(rows[0])):
        weights = [found[model] for found in seen]
        if sum(weights) <= 0.0:  # nobody decides there
            weights = alone
        total = sum(weights)
        out.append(
            [
                sum(weight * row[model][rule] for weight, row in zip(weights, rows, strict=True))
                / total
                for rule in range(len(rows[0][model]))
            ]
        )
    return out
