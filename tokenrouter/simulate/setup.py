"""What is simulated: a plan's closed system, on this or another profile, at other speeds, under its or other windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.structs import Admit, Plan, System
from tokenrouter.profile.structs import Profile
from tokenrouter.profile.system import Unmodelled, of_plan, of_profile, spec_of
from tokenrouter.profile.ways import Way, assumed, counted
from tokenrouter.profile.windows import objective_of
from tokenrouter.simulate.prompts import Prompts
from tokenrouter.simulate.ways import First, Stops
from tokenrouter.throughput.check import MOST_REQUESTS, check
from tokenrouter.throughput.spec import Spec, SpecError
from tokenrouter.throughput.table import solve_table

PROMPT = 64  # tokens, where neither a profile nor the user says
STALL_MS = 250.0  # as `trc serve` has it

Choice = Literal["fixed", "off", "solve"]


class CannotSimulate(TokenRouterError):  # noqa: N818 - reads as what it says
    """The plan has no numbers to simulate, or an option does not fit it; the message is one line."""


class Setup(NamedTuple):
    """A specification that covers `max_active` requests, and the windows for it."""

    spec: Spec
    table: list[list[int]]  # by model, then N - 1
    max_wait_ms: float
    max_active: int
    source: str  # of the numbers
    prompts: Prompts
    first: First | None  # ways before a request's first token
    stops: Stops  # decisions that end a request


def prepare(
    plan: Plan,
    profile: Profile | None = None,
    *,
    speeds: Mapping[str, float] | None = None,  # by model, times as fast
    output_tokens: float | None = None,  # mean, instead of the system's
    prompt_tokens: int | None = None,  # mean, instead of the profile's
    max_active: int | None = None,
    windows: Choice = "fixed",
    stall_ms: float | None = STALL_MS,  # that a batch may take for prompts while others write
) -> Setup:
    """Return what to simulate; raises CannotSimulate."""
    try:
        if profile is not None:
            system, source = of_profile(plan, profile), "profile"
        elif plan.windows.system is not None:
            system, source = plan.windows.system, f"plan ({plan.windows.source})"
        else:
            system, source = of_plan(plan), "analytic"
    except Unmodelled as error:
        raise CannotSimulate(f"this plan cannot be simulated: {error}") from None
    most = max_active or plan.windows.max_active
    if most > MOST_REQUESTS:
        raise CannotSimulate(f"{most} active requests are too many; at most {MOST_REQUESTS}")
    spec = spec_of(system, objective=objective_of(plan.windows.objective))
    factors = _factors(plan, speeds or {})
    spec = msgspec.structs.replace(
        spec, n=most, mean_output_tokens=output_tokens or spec.mean_output_tokens
    )
    try:
        check(_sped(spec, system, [1.0] * len(factors)))
    except SpecError as error:
        raise CannotSimulate(f"these numbers ({source}) are no system: {error}") from None
    spec = _sped(spec, system, factors)
    try:
        check(spec)
    except SpecError as error:
        what, _, _ = str(error).partition("; ")
        raise CannotSimulate(
            f"at these speeds {what}, which cannot be simulated; give a --speed nearer to 1x"
        ) from None
    table = plan.windows.table
    if windows == "off":
        table = [[1] * most for _ in plan.models]
    elif windows == "solve":
        table = solve_table(spec, quick=True).windows
    prompts = Prompts(
        tokens=prompt_tokens or _mean_prompt(profile),
        curves=[
            [(n, ms / factor) for n, ms in curve]
            for curve, factor in zip(_reading(system, profile), factors, strict=True)
        ],
        eager=[
            any(isinstance(task, Admit) and task.prefill == "eager" for task in graph.tasks)
            for graph in plan.subservers
        ],
        stall_ms=stall_ms,
        hidden=[model.hidden_size for model in plan.models],
    )
    first = First(system.first_p, system.first_c) if system.first_p else None
    traffic = assumed(plan) if profile is None else counted(plan, profile.ways)
    stops = _stops(traffic.ways, len(plan.models), ends=output_tokens is None)
    return Setup(spec, table, plan.windows.max_wait_ms, most, source, prompts, first, stops)


def _stops(ways: list[Way], n_models: int, *, ends: bool) -> Stops:
    """Return the decisions that end a request; a plan's own estimates are those of the numbers that it has."""
    share, kept = [0.0] * n_models, [0.0] * n_models
    for way in ways:
        if way.target is None:
            share[way.source] += way.p
            kept[way.source] += way.p * way.kept
    return Stops(share, [k / p if p else 0.0 for k, p in zip(kept, share, strict=True)], ends)


def _mean_prompt(profile: Profile | None) -> int:
    if profile is None or not profile.ways.prompt_tokens:
        return PROMPT
    return round(profile.ways.prompt_tokens / profile.ways.requests)


def _reading(system: System, profile: Profile | None) -> list[list[tuple[int, float]]]:
    """Return by model what a prompt of n tokens takes: as measured, or as a step of as many requests would.

    Where measured steps get shorter with their requests, more tokens of a prompt still never take less time.
    """
    if profile is not None and all(model.reads for model in profile.models):
        return [[(read.tokens, read.time.mean) for read in model.reads] for model in profile.models]
    return [
        [(1, steps[0]), (len(steps), max(steps))] if len(steps) > 1 else [(1, steps[0])]
        for steps in system.step_ms
    ]


def _factors(plan: Plan, speeds: Mapping[str, float]) -> list[float]:
    names = [model.name for model in plan.models]
    for name in speeds:
        if name not in names:
            raise CannotSimulate(f"the plan has no model `{name}`; it has {', '.join(names)}")
    return [speeds.get(name, 1.0) for name in names]


def _sped(spec: Spec, system: System, factors: list[float]) -> Spec:
    """Return a specification whose models are so many times as fast as the system's."""
    return msgspec.structs.replace(
        spec,
        step_ms=_at_speed(system.step_ms, factors, spec.n),
        after_ms=_at_speed(system.after_ms, factors, spec.n) if system.after_ms else None,
        delta_ms=spec.delta_ms / max(1.0, *factors),
    )


def _at_speed(
    times: list[list[float]], factors: list[float], sizes: int
) -> list[float | list[float]]:
    """Return the times of models so many times as fast, for batches of up to so many requests."""
    return [
        [ms / factor for ms in _extended(steps, sizes)]
        for steps, factor in zip(times, factors, strict=True)
    ]


def _extended(steps: list[float], sizes: int) -> list[float]:
    """Return L(b) up to so many requests; beyond the given ones the last rise goes on."""
    rise = max(0.0, steps[-1] - steps[-2]) if len(steps) > 1 else 0.0
    more = [steps[-1] + rise * at for at in range(1, sizes - len(steps) + 1)]
    return [*steps, *more][:sizes]
