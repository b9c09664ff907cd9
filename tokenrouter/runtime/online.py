"""What the running system shows of the throughput model's numbers: P, C and L_m(b), and whether they have drifted.

Estimates come from the latest `SPAN` looks at the subservers' tallies, so they forget. A station is a (model, home, steps
left) triple as `meter.station` tells them apart, so a borrowed stay keeps its length. L_m(b) is what the subserver saw,
whatever else was busy meanwhile: the plan's rates for busy sets are not applied again. Where models step in turn there are two,
of steps that follow one's own and of those that follow another model's; one that was not seen changes as the other does.

    drift of P   sum over stations of (share of steps) * (total variation between its row then and now)
    drift of L   largest |log(L now / L then)| over batch sizes that are used

It knows nothing of processes and clocks.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tokenrouter.plan.structs import Plan
from tokenrouter.profile.windows import objective_of
from tokenrouter.runtime.messages import Tally
from tokenrouter.throughput.check import MOST_REQUESTS
from tokenrouter.throughput.spec import Spec

SPAN = 6  # looks
LEAST_STEPS = 400  # of requests, in all, before anything is believed
LEAST_BATCHES = 5  # of one size
NEAR_P, NEAR_L = 0.05, 0.15  # drifts below these are none
QUANTA = 60  # of the shortest step, at least

Station = tuple[int, int, int]  # model, home, steps left


class Drift(NamedTuple):
    """How far the estimates are from those behind the table."""

    p: float
    step: float

    @property
    def matters(self) -> bool:
        """Whether another table may be worth its solving."""
        return self.p > NEAR_P or self.step > NEAR_L


class Estimate(NamedTuple):
    """The numbers of one stretch of time."""

    steps: Mapping[tuple[Station, Station], tuple[int, int]]  # between stations: steps, kept
    times: Mapping[tuple[int, int], float]  # by model and batch size, ms
    after: Mapping[tuple[int, int], float]  # those that follow another's
    entered: Mapping[int, int]  # by model
    ended: int
    ended_tokens: int

    @property
    def n_steps(self) -> int:
        """Steps of requests in all."""
        return sum(n for n, _ in self.steps.values())


class Online:
    """The estimates of one plan's run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._latest: dict[int, Tally] = {}
        self._looks: deque[dict[int, Tally]] = deque([{}], maxlen=SPAN)  # before this one

    def take(self, tally: Tally) -> None:
        """Note what a subserver has counted."""
        self._latest[tally.model] = tally

    def look(self) -> Estimate | None:
        """Return the estimate of the latest looks, this one included; None where too little happened."""
        before = self._looks[0]
        self._looks.append(dict(self._latest))
        steps: Counter[tuple[Station, Station]] = Counter()
        kept: Counter[tuple[Station, Station]] = Counter()
        times: dict[tuple[int, int], float] = {}
        after: dict[tuple[int, int], float] = {}
        entered: Counter[int] = Counter()
        ended = ended_tokens = 0
        for model, tally in self._latest.items():
            base = before.get(model)
            if base is not None and base.epoch != tally.epoch:
                base = None  # it counts from 0 again
            for sign, part in ((1, tally), (-1, base)):
                if part is None:
                    continue
                for move in part.moves:
                    way = (
                        (model, move.home, move.left),
                        (move.target, move.target_home, move.target_left),
                    )
                    steps[way] += sign * move.n
                    kept[way] += sign * move.kept
                entered[model] += sign * part.entered
                ended += sign * part.ended
                ended_tokens += sign * part.ended_tokens
            known = {} if base is None else {(t.size, t.after): t.n for t in base.times}
            for time in tally.times:
                if time.n - known.get((time.size, time.after), 0) >= LEAST_BATCHES:
                    (after if time.after else times)[model, time.size] = time.median_ms
        found = Estimate(
            {way: (n, kept[way]) for way, n in steps.items() if n > 0},
            times,
            after,
            +entered,
            ended,
            ended_tokens,
        )
        return found if found.n_steps >= LEAST_STEPS else None


def drift(then: Estimate, now: Estimate) -> Drift:
    """Return how far the numbers have gone."""
    old, new = _rows(then), _rows(now)
    total = sum(sum(row.values()) for row in new.values())
    moved = 0.0
    for station, row in new.items():
        here = sum(row.values())
        before = old.get(station, {})
        there = sum(before.values())
        ways = set(row) | set(before)
        apart = sum(abs(row.get(w, 0) / here - before.get(w, 0) / max(there, 1)) for w in ways) / 2
        # Two samples of the same row are about this far apart.
        noise = math.sqrt(len(ways) / here) + math.sqrt(len(ways) / there) if there else 0.0
        moved += here / total * max(0.0, apart - noise / 2)
    ratios = [
        abs(math.log(late[at] / early[at]))
        for early, late in ((then.times, now.times), (then.after, now.after))
        for at in set(early) & set(late)
    ]
    return Drift(moved, max(ratios, default=0.0))


def _rows(estimate: Estimate) -> dict[Station, dict[Station, int]]:
    rows: dict[Station, dict[Station, int]] = {}
    for (source, target), (n, _) in estimate.steps.items():
        rows.setdefault(source, {})[target] = n
    return rows


class Problem(NamedTuple):
    """A specification over the models that are visited at all; the others have windows of 1."""

    spec: Spec
    models: list[int]

    def table(self, windows: list[list[int]], n_models: int) -> list[list[int]]:
        """Return a table for all models from one for those of the specification."""
        out = [[1] * self.spec.n for _ in range(n_models)]
        for model, row in zip(self.models, windows, strict=True):
            out[model] = row
        return out


def problem(plan: Plan, estimate: Estimate, *, in_turn: bool = False) -> Problem | None:
    """Return what to solve for a table of the plan's size; None where the numbers do not suffice."""
    ways = dict(estimate.steps)
    while True:  # a station that nobody was seen to leave is no station yet
        sources = {source for source, _ in ways}
        closed = {way: n for way, n in ways.items() if way[1] in sources}
        if len(closed) == len(ways):
            break
        ways = closed
    stations = sorted(sources)
    models = sorted({station[0] for station in stations})
    if not stations or any((m, -1, 0) not in sources and m in estimate.entered for m in models):
        return None
    n = min(plan.windows.max_active, MOST_REQUESTS)  # the last row serves every count beyond
    steps = [step_times(plan, estimate, model, n) for model in models]
    if any(not curve for curve in steps):
        return None
    after = [step_times(plan, estimate, model, n, after=True) for model in models if in_turn]
    size = len(stations)
    at = {station: i for i, station in enumerate(stations)}
    p, c = np.zeros((size, size)), np.zeros((size, size))
    for (source, target), (count, kept) in ways.items():
        p[at[source], at[target]] = count
        c[at[source], at[target]] = kept / count
    entry = np.zeros(size)
    for model, count in estimate.entered.items():
        if (model, -1, 0) in at:
            entry[at[model, -1, 0]] = count
    if not entry.any():
        entry[0] = 1.0
    tokens = estimate.ended_tokens / estimate.ended if estimate.ended else None
    shortest = min(min(curve) for curve in (*steps, *after))
    return Problem(
        Spec(
            n=n,
            step_ms=list(steps),
            p=(p / p.sum(axis=1, keepdims=True)).tolist(),
            c=c.tolist(),
            delta_ms=min(0.1, shortest / QUANTA),
            objective=objective_of(plan.windows.objective),
            entry=(entry / entry.sum()).tolist(),
            mean_output_tokens=None if tokens is None else max(1.0, tokens),
            model_of=[models.index(station[0]) for station in stations],
            in_turn=in_turn,
            after_ms=list(after) or None,
        ),
        models,
    )


def step_times(
    plan: Plan, estimate: Estimate, model: int, n: int, *, after: bool = False
) -> list[float]:
    """Return L_m(b) for b = 1..n, in ms, never falling; empty where nothing was measured.

    The plan's own curve is scaled by what was measured; without one, straight lines between the measured sizes, and
    beyond them the line through the first and the last. Where no step of the kind was seen, those of the other kind
    tell how far the curve is to be scaled.
    """
    seen = _of(estimate.after if after else estimate.times, model)
    of_kind = bool(seen)
    seen = seen or _of(estimate.times if after else estimate.after, model)
    if not seen:
        return []
    sizes = np.array(sorted(seen))
    values = np.array([seen[size] for size in sizes.tolist()])
    every = np.arange(1, n + 1)
    most = max(n, sizes[-1])
    prior = _prior(plan, model, most, after=after)
    if prior is not None:
        base = prior if of_kind else _prior(plan, model, most, after=not after)
        assert base is not None
        line = prior[:n] * np.interp(every, sizes, values / base[sizes - 1])
    else:
        slope = max(0.0, (values[-1] - values[0]) / max(1, sizes[-1] - sizes[0]))
        line = np.interp(every, sizes, values) + slope * np.maximum(0, every - sizes[-1])
    return [float(ms) for ms in np.maximum.accumulate(line)]


def _of(times: Mapping[tuple[int, int], float], model: int) -> dict[int, float]:
    return {size: ms for (m, size), ms in times.items() if m == model and ms > 0}


def _prior(plan: Plan, model: int, sizes: int, *, after: bool) -> np.ndarray | None:
    """Return the plan's curve up to a size; one for both kinds where it was solved for models that run side by side."""
    system = plan.windows.system
    if system is None:
        return None
    rows = system.after_ms if after and system.after_ms else system.step_ms
    curve = list(rows[model])
    return np.array([curve[min(b, len(curve)) - 1] for b in range(1, sizes + 1)])
