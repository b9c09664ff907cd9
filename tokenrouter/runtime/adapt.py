"""Windows that follow the running system: look now and then, solve again where the numbers have drifted, swap in whole.

A table reaches the subservers through the book, which refuses one that is not feasible for each of its counts. The first look
that has seen enough always solves, so a plan whose windows are for another machine, or for models that run side by side where they
step in turn here, is put right within the first looks; fixed windows stay, and one line says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.messages import Tally
from tokenrouter.runtime.online import Drift, Estimate, Online, Problem, drift, problem
from tokenrouter.runtime.resolve import solve, solve_here
from tokenrouter.runtime.settings import Settings, WindowMode
from tokenrouter.runtime.turns import in_turn
from tokenrouter.throughput.table import Table

log = logging.getLogger("tokenrouter")

LOOK_S = 10.0  # between two looks


class WindowsStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where the windows in force come from."""

    mode: WindowMode
    source: str  # of the table in force: the plan's source, `off`, `live` or `given`
    table: list[list[int]]  # by model, then N - 1
    swaps: int  # tables that were solved and put in force since the start
    drift_p: float  # since the table was solved; design: «Online»
    drift_step: float


class Adapter:
    """The windows of one plan's run, under one mode."""

    def __init__(
        self, plan: Plan, mode: WindowMode, set_windows: Callable[[list[list[int]]], None]
    ) -> None:
        self.plan = plan
        self.mode = mode
        self._set_windows = set_windows
        self._online = Online(plan)
        self._in_turn = False  # whether models step in turn here
        self._behind: Estimate | None = None  # what the table in force was solved from
        self._drift = Drift(0.0, 0.0)
        self._source: str = "off" if mode == "off" else plan.windows.source
        self._table = plan.windows.table
        if mode == "off":
            self._table = [[1] * plan.windows.max_active for _ in plan.models]
        self._swaps = 0

    @property
    def status(self) -> WindowsStatus:
        """The table in force and how it got there."""
        return WindowsStatus(
            mode=self.mode,
            source=self._source,
            table=self._table,
            swaps=self._swaps,
            drift_p=self._drift.p,
            drift_step=self._drift.step,
        )

    def take(self, tally: Tally) -> None:
        """Note what a subserver has counted."""
        self._online.take(tally)

    def put(self, table: list[list[int]]) -> None:
        """Put a table in force that somebody chose."""
        self._table, self._source = table, "given"
        self._set_windows(table)

    async def run(self, every_s: float = LOOK_S, settings: Settings | None = None) -> None:
        """Look, and solve again in a process of its own, until cancelled; by its settings, models step in turn or not."""
        self._in_turn = settings is not None and in_turn(self.plan, settings)
        if self.mode == "fixed":
            self._compare()
        while self.mode == "adaptive":
            await asyncio.sleep(every_s)
            wanted = self._look()
            if wanted is not None:
                estimate, to_solve = wanted
                self._adopt(estimate, to_solve, await solve(to_solve.spec))

    def _compare(self) -> None:
        """Say so where the plan's windows were solved for models that share the cores otherwise than they do here.

        Of a measured plan that is a warning: it was measured elsewhere. Others are for a stated machine, which this one seldom is.
        """
        system = self.plan.windows.system
        if system is None or system.in_turn == self._in_turn:
            return
        there, here = "run side by side", "step in turn on shared cores"
        if system.in_turn:
            there, here = "step in turn", "run side by side"
        log.log(
            logging.WARNING if self.plan.windows.source == "profile" else logging.INFO,
            "the plan's windows were solved for models that %s, and here they %s: serve with --windows adaptive, "
            "or compile with what `trc profile` measures here",
            there,
            here,
        )

    def look_here(self) -> None:
        """Look once, and solve in this thread; for engines, whose clock stands meanwhile."""
        wanted = self._look()
        if wanted is not None:
            estimate, to_solve = wanted
            self._adopt(estimate, to_solve, solve_here(to_solve.spec))

    def _look(self) -> tuple[Estimate, Problem] | None:
        now = self._online.look()
        if now is None:
            return None
        if self._behind is not None:
            self._drift = drift(self._behind, now)
            if not self._drift.matters:
                return None
        to_solve = problem(self.plan, now, in_turn=self._in_turn)
        return None if to_solve is None else (now, to_solve)

    def _adopt(self, estimate: Estimate, solved: Problem, table: Table | None) -> None:
        """Put a table in force, whole."""
        self._behind = estimate
        self._drift = Drift(0.0, 0.0)
        if table is None:
            log.warning("the live numbers have no steady state; the windows stay as they are")
            return
        self._table = solved.table(table.windows, len(self.plan.models))
        self._source = "live"
        self._swaps += 1
        self._set_windows(self._table)
