"""Windows into a plan: its closed system is solved for every number of active requests, and the table written down.

Where the model cannot tell of a plan, every window is 1 and the plan says why. Estimates and the system are outside the
hashes, the table is in the tuning hash.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from tokenrouter.plan.hash import seal
from tokenrouter.plan.structs import Estimates, Load, ModelLoad, Plan, System, Visit, Windows
from tokenrouter.profile.flow import flow
from tokenrouter.profile.reference import REFERENCES
from tokenrouter.profile.structs import Machine, Profile
from tokenrouter.profile.system import Unmodelled, of_plan, of_profile, spec_of
from tokenrouter.profile.ways import counted, rule_shares
from tokenrouter.throughput.spec import Objective, Solution, SpecError, Speed
from tokenrouter.throughput.table import Table, solve_table

PATIENCE = 4.0  # times the longest mean delay at a gate

Number = TypeVar("Number", int, float)


def with_windows(
    plan: Plan,
    profile: Profile | None = None,
    machine: str = "cpu",
    *,
    patient: bool = False,
    cached: bool = True,
) -> Plan:
    """Return the plan with windows from the throughput model: of its profile, or of a stated machine without one.

    Where `patient`, the longest wait is raised to several times the longest delay that the windows are expected to cause:
    a shorter one would launch most batches before their windows are full.
    """
    if profile is not None:
        plan = msgspec.structs.replace(plan, estimates=measured(plan, profile))
    try:
        if profile is None:
            system, source, where = of_plan(plan, machine), "analytic", REFERENCES[machine].text
        else:
            system, source, where = of_profile(plan, profile), "profile", told(profile.machine)
        table = solve(system, plan.windows.objective, cached=cached)
    except (Unmodelled, SpecError) as error:
        return _untuned(plan, str(error))
    most = plan.windows.max_active
    windows = Windows(
        max_active=most,
        table=[_long(row, most) for row in table.windows],
        max_wait_ms=_patience(plan.windows.max_wait_ms, table)
        if patient
        else plan.windows.max_wait_ms,
        objective=plan.windows.objective,
        source="analytic" if source == "analytic" else "profile",
        optimality_gap=None if table.optimality_gap is None else round(table.optimality_gap, 4),
        gap_at=table.gap_at,
        machine=where,
        note=_floor(table, most),
        system=system,
    )
    return _sealed(plan, windows, _predicted(plan.estimates, table, most))


def solve(system: System, objective: str = "throughput", *, cached: bool = True) -> Table:
    """Return the window table of a system; raises SpecError where it has no steady state."""
    spec = spec_of(system, objective=objective_of(objective))
    return solve_table(spec, cached=cached, quick=True)


def objective_of(text: str) -> Objective:
    """Return a plan's objective as the solver takes it; raises SpecError."""
    goal, _, bound = text.partition(" where speed >= ")
    if goal == "latency":
        return "latency"
    if goal != "throughput":
        raise SpecError(f"there is no objective `{text}`")
    if not bound:
        return "throughput"
    try:
        return Speed(speed_at_least=float(bound))
    except ValueError:
        raise SpecError(f"the objective `{text}` names no speed") from None


def told(machine: Machine) -> str:
    """Return a measured machine in one line."""
    where = machine.processor if machine.device == "cpu" else machine.device
    turns = ", models step in turn" if machine.in_turn else ""
    return f"{where}, {machine.cores} cores, {machine.threads} threads a model{turns}"


def _patience(least: float, table: Table) -> float:
    """Return the longest wait, to two digits."""
    longest = max(solution.worst_delay_ms for solution in table.solutions)
    return max(least, float(f"{PATIENCE * longest:.2g}"))


def measured(plan: Plan, profile: Profile) -> Estimates:
    """Return the estimates that follow from a profile's counts."""
    traffic = counted(plan, profile.ways)
    found = flow(traffic.steps(), traffic.entry, traffic.mean_output_tokens)
    cost = sum(share * model.cost for share, model in zip(found.shares, plan.models, strict=True))
    return Estimates(
        source="profile",
        by_model=[
            Visit(
                share=round(share, 4),
                handoffs_per_token=round(handoffs, 4),
                reached=round(reached, 4),
            )
            for share, handoffs, reached in zip(
                found.shares, found.handoffs, found.reached, strict=True
            )
        ],
        cost_per_token=round(cost, 4),
        rules=rule_shares(plan, profile.ways),
        start=[round(n / profile.ways.requests, 4) for n in profile.ways.start],
    )


def _untuned(plan: Plan, why: str) -> Plan:
    windows = msgspec.structs.replace(
        plan.windows,
        table=[[1] * plan.windows.max_active for _ in plan.models],
        source="none",
        optimality_gap=None,
        gap_at=None,
        machine="",
        note=f"not solved: {why}",
        system=None,
    )
    return _sealed(
        plan, windows, msgspec.structs.replace(plan.estimates, tokens_per_s=[], loads=[])
    )


def _sealed(plan: Plan, windows: Windows, estimates: Estimates) -> Plan:
    return seal(msgspec.structs.replace(plan, windows=windows, estimates=estimates))


def _floor(table: Table, most: int) -> str:
    """Return what is to be said where the objective's speed is not kept for every N."""
    solved = table.solved[-1]
    if table.enough_speed_up_to >= solved:
        return ""
    if table.enough_speed_up_to == 0:
        return "the speed that the objective asks for is not expected at any N"
    return f"the speed that the objective asks for is expected up to N={table.enough_speed_up_to} of {most}"


def _predicted(estimates: Estimates, table: Table, most: int) -> Estimates:
    loads = [
        Load(n=n, tokens_per_s=_figure(solution.tokens_per_s), by_model=_by_model(solution))
        for n, solution in zip(table.solved, table.solutions, strict=True)
    ]
    speeds = [_figure(speed) for speed in table.tokens_per_s]
    return msgspec.structs.replace(estimates, tokens_per_s=_long(speeds, most), loads=loads)


def _by_model(solution: Solution) -> list[ModelLoad]:
    return [
        ModelLoad(
            utilisation=round(model.utilisation, 3),
            mean_batch=_figure(model.mean_batch),
            admission_delay_ms=_figure(model.admission_delay_ms),
        )
        for model in solution.per_model
    ]


def _long(row: Sequence[Number], most: int) -> list[Number]:
    """Return a row for every N up to `most`; what holds at the largest solved N is feasible for more."""
    out = list(row)
    return out + out[-1:] * (most - len(out))


def _figure(value: float) -> float:
    """Return a prediction to the digits that it can claim."""
    return float(f"{value:.3g}")
