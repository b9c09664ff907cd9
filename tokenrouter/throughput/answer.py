"""One specification, one answer: its own windows or the best, how sure, and how close to the best launch policy."""

from __future__ import annotations

from typing import NamedTuple

from tokenrouter.throughput.choose import solve
from tokenrouter.throughput.gap import optimality_gap
from tokenrouter.throughput.search import meets, search
from tokenrouter.throughput.spec import Solution, Spec
from tokenrouter.throughput.system import build


class Answer(NamedTuple):
    """What `trc windows` tells."""

    solution: Solution
    optimality_gap: (
        float | None
    )  # share of the best policy's T that is lost; None where its chain is too large
    met: bool  # the objective's bound holds; True where it has none


def answer(spec: Spec) -> Answer:
    """Return the answer to a checked specification."""
    system = build(spec)
    if spec.windows is None:
        found = search(system, [spec.n], spec.objective, spec.solver)[0]
        windows = found.windows
    else:
        windows = spec.windows
    solution = solve(system, windows, solver=spec.solver)
    gap = optimality_gap(system, spec.n, solution)
    return Answer(solution, gap, meets(spec.objective, spec.n, solution.tokens_per_s))
