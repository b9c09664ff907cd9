"""The best windows for N active requests: B* = argmax over the feasible B.

Small chains are solved exactly for every feasible vector, or, where the vectors are many (models in turn have small chains
also for many requests), for those of a coarse grid and on from the best to their neighbours. Beyond that a contest: a coarse grid on few copies, then round by
round the vectors that are not surely worse than the leader, and the leader's neighbours, on more copies; «surely» is
three standard errors of the paired difference. Contests for several N run side by side in one set of arrays.
Among the last, those within 0.1 % of the best count as equal, and the smallest sum wins: it waits least.

Objectives, for N in the system (**beyond** the source):

    throughput       T(B)
    speed_at_least   T(B); a request's mean speed is T / N, so for a given N the bound is met by the best T or by none
    latency          the longest mean admission delay of any model, least. The mean time for a token is N / T whatever
                     the windows (Little), so it is already served by throughput; what is left is how long a pause gets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from tokenrouter.throughput import exact, sampled
from tokenrouter.throughput.branches import Routing, TooManyStates
from tokenrouter.throughput.candidates import Windows, count, every, grid, neighbours
from tokenrouter.throughput.sampled import Job, Runs
from tokenrouter.throughput.spec import Objective, Solution, SpecError, Speed
from tokenrouter.throughput.system import Floats, System

NEAR = 0.001  # of the best: counts as equal
SURE = 3.0  # standard errors
MOST_EXACT = 60  # vectors that are solved exactly
MOST_ASKED = 3_000  # where only the exact solver was asked for
EXACT_STATES = 1_500  # of the chain without windows, for which that is quicker than a contest
LEADERS = 2  # whose neighbours are tried
CLIMB_STATES = 400  # of the chain without windows, for which that is quicker than a contest
MOST_CLIMBED = 300  # vectors


class Round(NamedTuple):
    """How much one round of a contest samples, and how far it looks around its leaders."""

    copies: int
    events: int
    ratio: float | None  # to the neighbours that join for the next round; None: none join
    kept: int  # survivors
    warm_up: int = 200  # events at most that are not counted; few where only the worst are dropped


ROUNDS = (
    Round(8, 300, 2**0.5, 8),
    Round(16, 300, 2**0.25, 8),
    Round(32, 400, 2**0.125, 6),
    Round(64, 500, None, 6, 600),
)
QUICK = (
    Round(8, 200, 2**0.5, 6),
    Round(16, 250, 2**0.25, 6),
    Round(48, 400, None, 6, 600),
)
QUICK_PHASES = (  # an event of a system with phases takes several times as long
    Round(6, 150, 2**0.5, 6, 150),
    Round(24, 250, None, 5, 400),
)


def search(
    system: System,
    counts: Sequence[int],
    objective: Objective = "throughput",
    solver: Literal["auto", "exact", "sampled"] = "auto",
    rounds: Sequence[Round] = ROUNDS,
) -> list[Solution]:
    """Return the long run under the best windows for each number of active requests."""
    found: dict[int, Solution] = {}
    routing = Routing(system)
    if solver != "sampled":
        for n in counts:
            small = exact_best(system, n, objective, routing, every_size=solver == "exact")
            if small is None:
                break  # more requests make no smaller chain
            found[n] = small
    left = [n for n in counts if n not in found]
    found |= zip(left, _contests(system, left, objective, rounds), strict=True)
    return [found[n] for n in counts]


def meets(objective: Objective, n: int, tokens_per_s: float) -> bool:
    """Return whether the bound of the objective holds for n active requests."""
    return not isinstance(objective, Speed) or tokens_per_s / n >= objective.speed_at_least


def exact_best(
    system: System, n: int, objective: Objective, routing: Routing, *, every_size: bool = False
) -> Solution | None:
    """Return the best of all feasible windows; None where the chain or their number is too large for that."""
    if not every_size and count(n, system.n_models) > MOST_EXACT:
        return _climbed(system, n, objective, routing)
    if count(n, system.n_models) > MOST_ASKED:
        raise SpecError(
            f"{count(n, system.n_models)} vectors of windows are too many for the exact solver; "
            f"give `windows`, or leave the solver to `auto`"
        )
    most = exact.MOST_STATES if every_size else EXACT_STATES
    tried = _Tried(system, n, most, routing)
    try:
        tried.solve(every(n, system.n_models))
    except TooManyStates:
        if every_size:
            raise
        return None
    return tried.best(objective)


def _climbed(system: System, n: int, objective: Objective, routing: Routing) -> Solution | None:
    """Return the best of a grid and of all that lies on the way from its best ones upwards; None where the chain is large."""
    tried = _Tried(system, n, CLIMB_STATES, routing)
    wanted = grid(n, system.n_models)  # the first has the largest chain
    if len(wanted) > MOST_CLIMBED:
        return None
    try:
        for ratio in (2**0.5, 1.0):  # by as much as the grid leaves open, then by 1
            while wanted and len(tried) + len(wanted) <= MOST_CLIMBED:
                tried.solve(wanted)
                near = [
                    b for leader in tried.leaders(objective) for b in neighbours(leader, ratio, n)
                ]
                wanted = [b for b in dict.fromkeys(near) if b not in tried]
            near = [
                b for leader in tried.leaders(objective)[:1] for b in neighbours(leader, 1.0, n)
            ]
            wanted = [b for b in near if b not in tried]
    except TooManyStates:
        return None
    return tried.best(objective)


class _Tried:
    """Vectors that were solved exactly, or have no one steady state."""

    def __init__(self, system: System, n: int, most_states: int, routing: Routing) -> None:
        self.system, self.n, self.most_states, self.routing = system, n, most_states, routing
        self.found: dict[Windows, Solution] = {}
        self.unsettled: dict[Windows, exact.Rhythms] = {}

    def __len__(self) -> int:
        return len(self.found) + len(self.unsettled)

    def __contains__(self, windows: Windows) -> bool:
        return windows in self.found or windows in self.unsettled

    def solve(self, wanted: Sequence[Windows]) -> None:
        """Solve those that were not yet tried; raises TooManyStates."""
        for windows in wanted:
            if windows in self:
                continue
            try:
                self.found[windows] = exact.solve(
                    self.system,
                    windows,
                    n=self.n,
                    most_states=self.most_states,
                    routing=self.routing,
                )
            except exact.Rhythms as error:
                self.unsettled[windows] = error

    def leaders(self, objective: Objective) -> list[Windows]:
        """Return the best few."""
        value = {b: _value(solution, objective) for b, solution in self.found.items()}
        return sorted(value, key=lambda b: (-value[b], sum(b)))[:LEADERS]

    def best(self, objective: Objective) -> Solution:
        """Return the best; raises Rhythms where under none of them the requests settle."""
        if not self.found:
            raise next(iter(self.unsettled.values()))
        solved = list(self.found.values())
        return solved[pick([_value(s, objective) for s in solved], [s.windows for s in solved])]


def pick(values: Sequence[float], windows: Sequence[Sequence[int]]) -> int:
    """Return the place of the smallest sum of windows within 0.1 % of the best value."""
    best = max(values)
    equal = [at for at, value in enumerate(values) if value >= best - NEAR * abs(best)]
    return min(equal, key=lambda at: (sum(windows[at]), -values[at]))


def _value(solution: Solution, objective: Objective) -> float:
    return -solution.worst_delay_ms if objective == "latency" else solution.tokens_per_s


def _contests(
    system: System, counts: Sequence[int], objective: Objective, rounds: Sequence[Round]
) -> list[Solution]:
    """Return the winners of one contest for each n, all run side by side."""
    if not counts:
        return []
    running = [grid(n, system.n_models) for n in counts]
    warm_up = sampled.warm_up_events(system)
    winners: list[Solution] = []
    for at, size in enumerate(rounds):
        jobs = [Job(n, b) for n, each in zip(counts, running, strict=True) for b in each]
        last = at == len(rounds) - 1
        runs = sampled.run(
            system,
            jobs,
            copies=size.copies,
            events=size.events,
            warm_up=min(warm_up, size.warm_up),
            seed=sampled.SEED + at,
        )
        first = 0
        for contest, n in enumerate(counts):
            own = range(first, first + len(running[contest]))
            first = own.stop
            if last:
                scores = [_score(runs, job, objective)[0] for job in own]
                winners.append(runs.solution(own[pick(scores, [jobs[job].windows for job in own])]))
            else:
                running[contest] = _survivors(runs, own, objective, size, n)
    return winners


def _survivors(runs: Runs, own: range, objective: Objective, size: Round, n: int) -> list[Windows]:
    """Return who goes on: the best, those that may yet equal them with small sums, the neighbours of the leaders."""
    scored = sorted(
        ((*_score(runs, job, objective), runs.jobs[job].windows) for job in own),
        key=lambda each: -each[0],
    )
    best, best_deviation, _ = scored[0]
    open_still = []
    for value, deviation, windows in scored:
        error = float((deviation - best_deviation).std(ddof=1)) / len(deviation) ** 0.5
        if value - best + SURE * error >= -NEAR * abs(best):
            open_still.append(windows)
    half = size.kept // 2
    kept = set(open_still[:half]) | set(sorted(open_still, key=sum)[: size.kept - half])
    if size.ratio is not None:
        for _, _, windows in scored[:LEADERS]:
            kept |= set(neighbours(windows, size.ratio, n))
    return sorted(kept)


def _score(runs: Runs, job: int, objective: Objective) -> tuple[float, Floats]:
    """Return the value of a job and how far each copy is off, both more the better."""
    total = runs.by_copy(job)
    if objective != "latency":
        return _ratio(total.commits, total.tau)
    delays = [
        _ratio(-waiting, through)
        for waiting, through in zip(total.waiting, total.through, strict=True)
        if through.any()
    ]
    return min(delays, key=lambda each: each[0])


def _ratio(above: Floats, below: Floats) -> tuple[float, Floats]:
    value = float(above.sum() / below.sum())
    return value, np.asarray((above - value * below) / below.mean(), dtype=np.float64)
