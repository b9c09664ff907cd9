"""Exact where the chain is small, sampled where it is not; the solution says which.

There is no formula for the size of the chain: whether step times share a rhythm decides it. So the exact solver counts as
it goes and gives up at a limit, which costs less than one sampled run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tokenrouter.throughput import exact, sampled
from tokenrouter.throughput.branches import Routing, TooManyStates
from tokenrouter.throughput.spec import Solution
from tokenrouter.throughput.system import System

AUTO_STATES = 10_000


def solve(
    system: System,
    windows: Sequence[int],
    *,
    n: int | None = None,
    solver: Literal["auto", "exact", "sampled"] = "auto",
    routing: Routing | None = None,
) -> Solution:
    """Return the long run under `windows`, by the solver that fits or the one asked for."""
    if solver == "sampled":
        return sampled.solve(system, windows, n=n)
    if solver == "exact":
        return exact.solve(system, windows, n=n, routing=routing)
    try:
        return exact.solve(system, windows, n=n, most_states=AUTO_STATES, routing=routing)
    except TooManyStates:
        return sampled.solve(system, windows, n=n)
