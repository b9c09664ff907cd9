"""What is counted at every event, and the long-run figures that come out of it.

Counts add up over events, so the same code serves an expectation under the stationary distribution (exact) and sums
over a long run (sampled). Times are in quanta here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tokenrouter.throughput.spec import PerModel, Solution
from tokenrouter.throughput.system import Event, Floats, State, System, by_model


@dataclass(slots=True, eq=False)
class Totals:
    """Sums over events, by column (a state or a copy) or without the last axis (all together)."""

    tau: Floats  # [R] time
    commits: Floats  # [R] tokens, in expectation
    waiting: Floats  # [M, R] requests at the gate, integrated over time
    running: Floats  # [M, R] requests in the running batch, integrated over time
    busy: Floats  # [M, R] time during which a batch ran
    batches: Floats  # [M, R] batches that ended
    through: Floats  # [M, R] requests in them

    @staticmethod
    def zero(system: System, columns: int) -> Totals:
        """Return sums over no event."""
        by_column = (np.zeros(columns) for _ in range(2))
        return Totals(*by_column, *(np.zeros((system.n_models, columns)) for _ in range(5)))

    def add(self, system: System, state: State, event: Event) -> None:
        """Count an event; `state` is as `advance` left it, with nothing routed."""
        done = by_model(system, event.done)
        self.tau += event.tau
        self.commits += system.gain @ event.done
        self.waiting += by_model(system, state.k) * event.tau
        self.running += (by_model(system, state.b) + done) * event.tau
        self.busy += event.busy * event.tau
        self.batches += event.finished
        self.through += done

    def parts(self) -> tuple[Floats, ...]:
        """Return the arrays in the order of the fields."""
        return (
            self.tau,
            self.commits,
            self.waiting,
            self.running,
            self.busy,
            self.batches,
            self.through,
        )

    def weighted(self, weights: Floats) -> Totals:
        """Return the sums over columns, each column counted `weights` times."""
        return Totals(*(part @ weights for part in self.parts()))


def joined(totals: Sequence[Totals]) -> Totals:
    """Return the columns of all, one after another."""
    return Totals(
        *(
            np.concatenate(parts, axis=-1)
            for parts in zip(*(t.parts() for t in totals), strict=True)
        )
    )


def solution(
    system: System,
    windows: Sequence[int],
    total: Totals,
    *,
    states: int | None = None,
    stderr: float = 0.0,
) -> Solution:
    """Return the long-run figures of sums without columns."""
    time_s = float(total.tau) * system.quantum_s

    def ratio(a: float, b: float) -> float:
        return float(a) / float(b) if b > 0 else 0.0

    per_model = [
        PerModel(
            utilisation=ratio(total.busy[m], float(total.tau)),
            mean_batch=ratio(total.through[m], total.batches[m]),
            admission_delay_ms=ratio(total.waiting[m], total.through[m]) * system.quantum_s * 1000,
            steps_per_s=ratio(total.through[m], time_s),
            step_ms=ratio(total.running[m], total.through[m]) * system.quantum_s * 1000,
        )
        for m in range(system.n_models)
    ]
    return Solution(
        tokens_per_s=float(total.commits) / time_s,
        stderr=stderr,
        solver="sampled" if states is None else "exact",
        states=states,
        windows=list(windows),
        per_model=per_model,
    )
