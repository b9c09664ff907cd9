"""The sampling solver: many independent copies of the chain, advanced at once as numpy arrays.

    T = sum over copies of commits / sum over copies of time            after a warm-up
    d_c = commits_c - T time_c
    stderr(T) = sd(d) / (sqrt(copies) mean(time))                       ratio of means, delta method

Each copy runs the same number of events, which is what the stationary distribution of `exact` weighs. Commits are counted
in expectation given the state, as there. Several jobs (a number of requests and a vector of windows each) run side by
side, copy c of each with the same luck (`draws`), so the error of a difference is that of paired copies:

    stderr(T_a - T_b) = sd(d_a / mean(time_a) - d_b / mean(time_b)) / sqrt(copies)

**Beyond** the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tokenrouter.throughput.draws import Router
from tokenrouter.throughput.measures import Totals, solution
from tokenrouter.throughput.spec import Solution
from tokenrouter.throughput.system import Floats, Ints, State, System, advance, launch_due, start

COPIES = 256
EVENTS = 1500
SEED = 20610
MOST_WARM_UP = 20_000


class Job(NamedTuple):
    """What one group of copies runs."""

    n: int
    windows: tuple[int, ...]


class Difference(NamedTuple):
    """T of one job less T of another."""

    value: float
    stderr: float


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """What was counted, by job and copy."""

    system: System
    jobs: Sequence[Job]
    totals: Totals  # [.., jobs * copies]
    copies: int

    def by_copy(self, job: int) -> Totals:
        """Return the sums of a job's copies, [.., copies]."""
        own = slice(job * self.copies, (job + 1) * self.copies)
        return Totals(*(part[..., own] for part in self.totals.parts()))

    def speed(self, job: int) -> float:
        """Return T of a job, tokens/s."""
        total = self.by_copy(job)
        return float(total.commits.sum() / total.tau.sum()) / self.system.quantum_s

    def solution(self, job: int) -> Solution:
        """Return the long-run figures of a job with the standard error of T."""
        total = self.by_copy(job).weighted(np.ones(self.copies))
        stderr = _stderr(self._deviation(job))
        return solution(self.system, self.jobs[job].windows, total, stderr=stderr)

    def difference(self, job: int, other: int) -> Difference:
        """Return T of `job` less T of `other`, by paired copies."""
        deviation = self._deviation(job) - self._deviation(other)
        return Difference(self.speed(job) - self.speed(other), _stderr(deviation))

    def _deviation(self, job: int) -> Floats:
        total = self.by_copy(job)
        speed = total.commits.sum() / total.tau.sum()
        per_quantum = (total.commits - speed * total.tau) / total.tau.mean()
        return np.asarray(per_quantum / self.system.quantum_s, dtype=np.float64)


def _stderr(deviation: Floats) -> float:
    return float(deviation.std(ddof=1) / np.sqrt(len(deviation)))


def solve(
    system: System,
    windows: Sequence[int],
    *,
    n: int | None = None,
    copies: int = COPIES,
    events: int = EVENTS,
    seed: int = SEED,
) -> Solution:
    """Return the long run under `windows`, estimated."""
    job = Job(n or system.n, tuple(windows))
    return run(system, [job], copies=copies, events=events, seed=seed).solution(0)


def run(
    system: System,
    jobs: Sequence[Job],
    *,
    copies: int = COPIES,
    events: int = EVENTS,
    warm_up: int | None = None,
    seed: int = SEED,
) -> Runs:
    """Advance `copies` copies of each job side by side; `warm_up` events are not counted.

    Where those are fewer than it takes to forget the start, requests begin where they are found most.
    """
    needed = warm_up_events(system)
    skipped = needed if warm_up is None else warm_up
    counts = np.repeat([job.n for job in jobs], copies)
    # Phases keep the rhythm that they began with, so they must begin at the entry.
    hurried = skipped < needed and system.plain
    state = spread(system, counts) if hurried else start(system, counts)
    gates = np.repeat(np.array([job.windows for job in jobs], dtype=np.int64).T, copies, axis=1)
    router = Router(system, np.tile(np.arange(copies), len(jobs)), seed)
    totals = Totals.zero(system, copies * len(jobs))
    launch_due(system, state, gates)
    for at in range(skipped + events):
        event = advance(system, state)
        if at >= skipped:
            totals.add(system, state, event)
        router.route(state.k, event.done, event.finished)
        launch_due(system, state, gates)
    return Runs(system, jobs, totals, copies)


def spread(system: System, n: Ints) -> State:
    """Return the states in which the requests wait where they are found most, so that the start is soon forgotten.

    That is by visits times time of a step; a share of a request goes to the stations with the largest remainder.
    """
    size = system.n_stations
    balance = np.vstack([system.p.T - np.eye(size), np.ones(size)])
    visits = np.linalg.lstsq(balance, np.append(np.zeros(size), 1.0), rcond=None)[0]
    weight = np.maximum(visits, 0) * system.steps[system.model_of, 1]
    wanted = np.outer(weight / weight.sum(), n)
    state = start(system, n)
    state.k[:] = np.floor(wanted + 1e-9)
    rest = np.argsort(np.argsort(state.k - wanted, axis=0, kind="stable"), axis=0, kind="stable")
    state.k += rest < n - state.k.sum(axis=0)
    return state


def warm_up_events(system: System) -> int:
    """Return how many events let the start be forgotten.

    One request forgets where it was in about -1 / log |lambda| steps, lambda the second eigenvalue of P; each event ends at
    least one batch of M models. Eigenvalues of modulus 1 are rhythms of P that no wait removes.
    """
    modulus = np.abs(np.linalg.eigvals(system.p))
    slow = modulus[modulus < 1 - 1e-9]
    steps = -1 / np.log(slow.max()) if len(slow) and slow.max() > 1e-9 else 0.0
    return min(MOST_WARM_UP, 200 + int(5 * system.n_models * steps))
