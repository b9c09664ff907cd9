"""Throughput over N and over windows, by the solvers: what the plots show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import NamedTuple

from tokenrouter.throughput import sampled
from tokenrouter.throughput.candidates import feasible
from tokenrouter.throughput.sampled import Job
from tokenrouter.throughput.spec import Spec
from tokenrouter.throughput.system import System, build
from tokenrouter.throughput.table import solved_counts

COPIES, EVENTS = 48, 500
MOST_VALUES = 10  # windows of one model on the map

Progress = Callable[[str], None]


class Curve(NamedTuple):
    """Tokens/s by number of active requests."""

    name: str
    n: list[int]
    tokens_per_s: list[float]


class Map(NamedTuple):
    """Tokens/s by the windows of two models, all others at 1; only feasible cells are there."""

    n: int
    models: tuple[int, int]
    values: list[int]  # windows on both axes
    tokens_per_s: dict[tuple[int, int], float]


def curves(spec: Spec, table: Sequence[Sequence[int]], progress: Progress) -> list[Curve]:
    """Return T(N) under a table and with every window at 1."""
    system = build(spec)
    counts = solved_counts(spec.n)
    progress(f"throughput at {len(counts)} numbers of active requests")
    with_table = [Job(n, tuple(row[min(n, len(row)) - 1] for row in table)) for n in counts]
    ones = [Job(n, (1,) * len(table)) for n in counts]
    runs = sampled.run(system, with_table + ones, copies=COPIES, events=EVENTS)
    speeds = [runs.speed(job) for job in range(len(runs.jobs))]
    return [
        Curve("windows of the table", counts, speeds[: len(counts)]),
        Curve("all windows 1", counts, speeds[len(counts) :]),
    ]


def landscape(spec: Spec, n: int, models: tuple[int, int], progress: Progress) -> Map:
    """Return T over the windows of two models with n requests active."""
    system = build(spec)
    values = _values(n)
    cells = [
        (a, b) for a, b in product(values, values) if feasible(_vector(system, models, (a, b)), n)
    ]
    progress(f"throughput under {len(cells)} vectors of windows at {n} active requests")
    jobs = [Job(n, tuple(_vector(system, models, cell))) for cell in cells]
    runs = sampled.run(system, jobs, copies=COPIES, events=EVENTS)
    return Map(n, models, values, {cell: runs.speed(at) for at, cell in enumerate(cells)})


def _values(n: int) -> list[int]:
    if n <= MOST_VALUES:
        return list(range(1, n + 1))
    ratio = n ** (1 / (MOST_VALUES - 1))
    return sorted({round(ratio**at) for at in range(MOST_VALUES)} | {2, n})


def _vector(system: System, models: tuple[int, int], cell: tuple[int, int]) -> list[int]:
    out = [1] * system.n_models
    for model, window in zip(models, cell, strict=True):
        out[model] = window
    return out
