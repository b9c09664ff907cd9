"""What must hold of a plan's predictions: who reads them may index by model, N and station without looking.

Whether a system can be solved is not asked here; `throughput.check` tells that when somebody solves it.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from tokenrouter.plan.structs import Plan, System

MOST_SIZES = 1024  # of a batch, in `System.step_ms`


def verify(plan: Plan) -> Iterator[str]:
    """Yield what is wrong with the estimates and the system of a plan."""
    estimates, most = plan.estimates, plan.windows.max_active
    if estimates.tokens_per_s and len(estimates.tokens_per_s) != most:
        yield f"`estimates.tokens_per_s` has {len(estimates.tokens_per_s)} entries for {most}"
    if [load.n for load in estimates.loads] != sorted({load.n for load in estimates.loads}):
        yield "`estimates.loads` is not ascending"
    for load in estimates.loads:
        if not 1 <= load.n <= most or len(load.by_model) != len(plan.models):
            yield f"`estimates.loads` has an entry that fits no plan of {most}: N = {load.n}"
    if estimates.start and len(estimates.start) != len(plan.start.rules):
        yield f"`estimates.start` has {len(estimates.start)} entries for {len(plan.start.rules)} rules"
    gap = plan.windows.optimality_gap
    if gap is not None and not abs(gap) <= 1.0:
        yield f"`windows.optimality_gap` is {gap:g}, no share of a throughput"
    if plan.windows.system is not None:
        yield from _system(plan.windows.system, len(plan.models), min(most, MOST_SIZES))


def _system(system: System, n_models: int, sizes: int) -> Iterator[str]:
    n = len(system.model_of)
    square = len(system.p) == len(system.c) == len(system.entry) == n
    if not square or any(len(row) != n for row in (*system.p, *system.c)):
        yield f"`windows.system` has other lists than {n} stations ask for"
    first = [*system.first_p, *system.first_c]
    if not len(system.first_p) == len(system.first_c) == (n_models if first else 0) or any(
        len(row) != n for row in first
    ):
        yield f"`windows.system` has other first ways than {n_models} models and {n} stations ask for"
    if not all(0 <= model < n_models for model in system.model_of):
        yield f"`windows.system.model_of` names no model of {n_models}"
    if len(system.step_ms) != n_models or any(len(row) < sizes for row in system.step_ms):
        yield f"`windows.system.step_ms` does not give {n_models} models and {sizes} sizes of batches"
    numbers = [
        *system.entry,
        *(x for rows in (system.p, system.c, first) for row in rows for x in row),
    ]
    after = system.after_ms
    if after and (len(after) != n_models or any(len(row) < sizes for row in after)):
        yield f"`windows.system.after_ms` does not give {n_models} models and {sizes} sizes of batches"
    times = [system.delta_ms, *(x for rows in (system.step_ms, after) for row in rows for x in row)]
    if not all(isfinite(x) and x >= 0 for x in numbers) or not all(
        isfinite(x) and x > 0 for x in times
    ):
        yield "`windows.system` holds a number that is none of a probability, a count or a time"
    for busy in system.busy:
        known = all(0 <= model < n_models for model in busy.models)
        if not known or len(busy.models) != len(busy.rates) or min(busy.rates, default=0) <= 0:
            yield f"`windows.system.busy` has a wrong entry: {busy.models}"
    if system.in_turn and system.busy:
        yield "`windows.system` gives rates of models that are busy at once, and models that step in turn never are"
    if system.after_ms and not system.in_turn:
        yield "`windows.system.after_ms` is of models that step in turn, and these do not"
