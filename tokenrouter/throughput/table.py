"""The window table: B*(N) for every N from 1 to `max_active`.

Solved on a geometric grid of N and filled in between on straight lines, rounded down. INVARIANT: every entry is feasible
for its own N: sum (B - 1) <= N - 1 holds at both ends, so it holds on the line between, and rounding down keeps it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from tokenrouter.throughput import cache
from tokenrouter.throughput.check import check
from tokenrouter.throughput.spec import Solution, Spec
from tokenrouter.throughput.system import build

QUICK_STATES = 2_000  # of the chain of all launch policies, where somebody waits for the answer


class Table(msgspec.Struct, frozen=True, kw_only=True):
    """Windows and predictions for every number of active requests."""

    windows: list[list[int]]  # by model, then N - 1
    tokens_per_s: list[float]  # by N - 1, under these windows; between solved N on straight lines
    solved: list[int]  # the N of `solutions`, ascending
    solutions: list[Solution]  # by entry of `solved`
    enough_speed_up_to: (
        int  # the largest N that meets the objective's bound; `max_active` where it has none
    )
    optimality_gap: float | None  # share of the best policy's T that is lost
    gap_at: int | None  # the N of `optimality_gap`; both null where that chain is too large


def solve_table(spec: Spec, *, cached: bool = True, quick: bool = False) -> Table:
    """Return the table for N = 1..`spec.n`; the specification's own windows are not looked at.

    `quick` solves fewer N on fewer copies, where somebody waits for the answer.
    """
    spec = check(msgspec.structs.replace(spec, windows=None))
    if not cached:
        return _solve(spec, quick=quick)
    kind = "quick" if quick else "table"
    return cache.through(kind, spec, Table, lambda: _solve(spec, quick=quick))


def solved_counts(max_active: int, ratio: float = 2**0.5) -> list[int]:
    """Return the N that are solved: 1 to 4, then by `ratio`, and the last."""
    counts = [1]
    while counts[-1] < max_active:
        wanted = counts[-1] + 1 if counts[-1] < 4 else round(counts[-1] * ratio)
        counts.append(min(max_active, max(counts[-1] + 1, wanted)))
    return counts


def fill(solved: Sequence[int], values: Sequence[float]) -> list[float]:
    """Return a value for every N from 1 to the last solved one, on straight lines."""
    line = np.interp(np.arange(1, solved[-1] + 1), solved, values)
    return [float(value) for value in line]


def fill_windows(solved: Sequence[int], rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return windows by model, then N - 1, from the rows of the solved N."""
    # A line between whole numbers can fall a rounding error short of one.
    return [
        [int(value + 1e-9) for value in fill(solved, by_model)]
        for by_model in zip(*rows, strict=True)
    ]


def _solve(spec: Spec, *, quick: bool) -> Table:
    # scipy takes longer to import than a kept table to read.
    from tokenrouter.throughput.gap import most_requests, optimality_gap  # noqa: PLC0415
    from tokenrouter.throughput.search import (  # noqa: PLC0415
        QUICK,
        QUICK_PHASES,
        ROUNDS,
        meets,
        search,
    )

    system = build(spec)
    counts = solved_counts(spec.n, 2.0) if quick else solved_counts(spec.n)
    rounds = ROUNDS if not quick else QUICK if system.plain else QUICK_PHASES
    solutions = search(system, counts, spec.objective, spec.solver, rounds)
    speeds = fill(counts, [s.tokens_per_s for s in solutions])
    enough = [n for n, t in enumerate(speeds, 1) if meets(spec.objective, n, t)]
    gap_at = most_requests(system, QUICK_STATES) if quick else most_requests(system)
    loss = None
    if gap_at is not None:
        at = max(i for i, n in enumerate(counts) if n <= gap_at)
        gap_at = counts[at]
        loss = optimality_gap(system, gap_at, solutions[at])
    return Table(
        windows=fill_windows(counts, [s.windows for s in solutions]),
        tokens_per_s=speeds,
        solved=counts,
        solutions=solutions,
        enough_speed_up_to=max(enough, default=0),
        optimality_gap=loss,
        gap_at=None if loss is None else gap_at,
    )
