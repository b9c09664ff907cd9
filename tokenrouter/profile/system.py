"""The closed system of a plan: its step times and its traffic become stations, as docs/throughput-model.md has them.

A borrowed stay is a chain of phases, up to 16 of them. A longer stay takes each phase for more than one step: the phase
repeats with the probability that keeps the mean, so such a stay varies by a quarter of its mean at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import floor, log10, prod
from statistics import median

import msgspec
import numpy as np

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.structs import BusySet, Plan, Signal, System
from tokenrouter.profile.reference import REFERENCES, step_ms
from tokenrouter.profile.structs import ModelTimes, Profile
from tokenrouter.profile.ways import Traffic, Way, assumed, counted
from tokenrouter.signals import SIGNALS
from tokenrouter.throughput.check import MOST_MODELS, MOST_QUANTA, MOST_REQUESTS
from tokenrouter.throughput.phases import Stations, Stay, with_stays
from tokenrouter.throughput.spec import BusyRates, Objective, Spec

PHASES = 16  # of one stay
QUANTA = 50  # of the shortest step, at least
SLOWEST = 0.05  # rate of a slowed model
UNSLOWED = 0.02  # a loss of speed that is none


class Unmodelled(TokenRouterError):  # noqa: N818 - reads as what it says
    """The throughput model cannot tell of this plan; the message says why."""


def of_plan(plan: Plan, machine: str = "cpu") -> System:
    """Return the system of a plan that was not measured, on a stated machine; raises Unmodelled."""
    for program in plan.programs:
        for node in program.nodes:
            if isinstance(node, Signal) and SIGNALS[node.name].needs == "load":
                raise Unmodelled(
                    f"its rules read `{node.name}`, so how requests move depends on the load itself"
                )
    sizes = _sizes(plan)
    times = [step_ms(model, REFERENCES[machine], sizes) for model in plan.models]
    return _system(plan, times, assumed(plan), [])


def of_profile(plan: Plan, profile: Profile) -> System:
    """Return the system of a plan that was measured; raises Unmodelled."""
    sizes = _sizes(plan)
    times = [by_size(model, sizes) for model in profile.models]
    traffic = counted(plan, profile.ways)
    if not profile.machine.in_turn:
        return _system(plan, times, traffic, busy_sets(profile.models))
    after = [after_other(model, sizes) for model in profile.models]
    system = _system(plan, times, traffic, [])
    return msgspec.structs.replace(
        system, in_turn=True, after_ms=after, delta_ms=quantum([*times, *after])
    )


def spec_of(
    system: System,
    n: int | None = None,
    objective: Objective = "throughput",
    windows: list[int] | None = None,
) -> Spec:
    """Return a system as a specification for `n` active requests; as many as its step times cover without."""
    covered = min(map(len, system.step_ms))
    n = covered if n is None else n
    return Spec(
        n=n,
        step_ms=[list(row[:n]) for row in system.step_ms],
        p=system.p,
        c=system.c,
        delta_ms=system.delta_ms,
        windows=windows,
        objective=objective,
        entry=system.entry,
        mean_output_tokens=system.mean_output_tokens,
        model_of=system.model_of,
        busy=[BusyRates(models=busy.models, rates=busy.rates) for busy in system.busy],
        in_turn=system.in_turn,
        after_ms=[list(row[:n]) for row in system.after_ms] or None,
    )


def _sizes(plan: Plan) -> int:
    if len(plan.models) > MOST_MODELS:
        raise Unmodelled(f"it has {len(plan.models)} models, and at most {MOST_MODELS} are solved")
    return min(plan.windows.max_active, MOST_REQUESTS)


def _system(plan: Plan, times: list[list[float]], traffic: Traffic, busy: list[BusySet]) -> System:
    n = len(plan.models)
    pairs = dict.fromkeys(
        (way.source, way.target)
        for way in traffic.ways
        if way.borrowed and way.target is not None and way.p > 0
    )
    stations = _stations(n, traffic, traffic.ways, list(pairs))
    first = _stations(n, traffic, traffic.first, list(pairs)) if traffic.first else None
    entry = [*traffic.entry, *[0.0] * (len(stations.model_of) - n)]
    return System(
        step_ms=times,
        p=_whole_rows(stations.p),
        c=_short_rows(stations.c),
        first_p=[] if first is None else _whole_rows(first.p[:n]),
        first_c=[] if first is None else _short_rows(first.c[:n]),
        model_of=stations.model_of,
        entry=entry,
        mean_output_tokens=traffic.mean_output_tokens,
        busy=busy,
        delta_ms=quantum(times),
    )


def _stations(n: int, traffic: Traffic, ways: list[Way], pairs: list[tuple[int, int]]) -> Stations:
    """Return P and C of some ways, with the stays of these pairs of home and lender."""
    p, kept = np.zeros((n, n)), np.zeros((n, n))
    borrowed = {pair: [0.0, 0.0] for pair in pairs}
    for way in ways:
        if way.borrowed:
            assert way.target is not None
            if way.p > 0:
                share = borrowed[way.source, way.target]
                share[0] += way.p
                share[1] += way.p * way.kept
            continue
        # A request that ends makes place for another, which starts anew.
        row = np.array(traffic.entry) if way.target is None else np.eye(n)[way.target]
        p[way.source] += way.p * row
        kept[way.source] += way.p * way.kept * row
    stays = [
        _stay(home, lender, share, kept_share, traffic.lengths[home, lender])
        for (home, lender), (share, kept_share) in borrowed.items()
    ]
    for model in range(n):  # a model that is only borrowed from decides nothing
        if not any(way.source == model for way in ways):
            p[model] = traffic.entry
            kept[model] = traffic.entry
    c = np.divide(kept, p, out=np.zeros_like(p), where=p > 0)
    return with_stays(p.tolist(), c.tolist(), stays)


def _whole_rows(rows: list[list[float]]) -> list[list[float]]:
    """Return rows of P that sum to 1 to the last digit that is kept."""
    return _short_rows([[x / (sum(row) or 1.0) for x in row] for row in rows])


def _short_rows(rows: list[list[float]]) -> list[list[float]]:
    return [[round(x, 9) for x in row] for row in rows]


def _stay(home: int, lender: int, share: float, kept: float, lengths: list[float]) -> Stay:
    """Return a stay in at most 16 phases with the mean length of `lengths`."""
    mean = sum(k * f for k, f in enumerate(lengths, 1))
    hold = 0.0
    if len(lengths) > PHASES:
        shrunk = [0.0] * PHASES
        for k, f in enumerate(lengths, 1):
            shrunk[-(-k * PHASES // len(lengths)) - 1] += f
        phases = sum(q * f for q, f in enumerate(shrunk, 1))
        lengths, hold = shrunk, max(0.0, 1 - phases / mean)
    total = sum(lengths)
    return Stay(
        source=home,
        at=lender,
        back=home,
        p=share,
        lengths=[f / total for f in lengths],
        kept=kept / share if share else 0.0,
        hold=hold,
    )


def quantum(times: list[list[float]]) -> float:
    """Return a round quantum of time: at least 50 of it make the shortest step, and the longest is not too many."""
    shortest = min(map(min, times)) / QUANTA
    longest = max(map(max, times)) / MOST_QUANTA
    wanted = max(shortest, longest)
    power = 10.0 ** floor(log10(wanted))
    steps = [power * step for step in (1, 2, 5, 10)]
    fits = [step for step in steps if step <= wanted * (1 + 1e-9) and step >= longest]
    return float(f"{max(fits, default=steps[-1]):.4g}")


def by_size(model: ModelTimes, sizes: int) -> list[float]:
    """Return the measured L(b) for b = 1..sizes, ms, other models idle, as the mean over the contexts.

    Straight lines between the measured sizes; the last line goes on beyond them.
    """
    return _curve([(step.context, step.batch, step.idle.mean) for step in model.steps], sizes)


def after_other(model: ModelTimes, sizes: int) -> list[float]:
    """Return the same of steps that follow another model's; those that follow one's own stand in for what was not measured."""
    return _curve(
        [(step.context, step.batch, (step.after or step.idle).mean) for step in model.steps], sizes
    )


def _curve(measured: list[tuple[int, int, float]], sizes: int) -> list[float]:
    curves = []
    for at in sorted({context for context, _, _ in measured}):
        points = sorted((batch, ms) for context, batch, ms in measured if context == at)
        b, ms = np.array([p[0] for p in points]), np.array([p[1] for p in points])
        wanted = np.arange(1, sizes + 1)
        curve = np.interp(wanted, b, ms)
        if len(b) > 1:
            slope = max(0.0, (ms[-1] - ms[-2]) / (b[-1] - b[-2]))
            curve += np.maximum(0, wanted - b[-1]) * slope
        curves.append(curve)
    return [float(f"{ms:.4g}") for ms in np.mean(curves, axis=0)]


def busy_sets(models: Sequence[ModelTimes]) -> list[BusySet]:
    """Return the rates of every set of busy models: each other busy model slows a model by its own measured factor.

    The factor is the median over sizes and contexts, since something else may have run beside one of them.
    """
    n = len(models)
    measured: dict[tuple[int, int], list[float]] = {}
    for at, model in enumerate(models):
        short = min(step.context for step in model.steps)
        alone = {(step.context, step.batch): step.idle.mean for step in model.steps}
        for slow in model.slowed:
            at_rest = alone[slow.context or short, slow.batch]
            rate = min(1.0, max(SLOWEST, at_rest / slow.step.mean))
            measured.setdefault((at, slow.by), []).append(rate)
    factors = {pair: median(rates) for pair, rates in measured.items()}
    factors = {pair: 1.0 if rate > 1 - UNSLOWED else rate for pair, rate in factors.items()}
    out = []
    for size in range(2, n + 1):
        for busy in combinations(range(n), size):
            rates = [
                max(SLOWEST, prod(factors.get((m, other), 1.0) for other in busy if other != m))
                for m in busy
            ]
            if min(rates) < 1:
                out.append(
                    BusySet(models=list(busy), rates=[float(f"{rate:.4g}") for rate in rates])
                )
    return out
