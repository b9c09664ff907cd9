"""What `windows_reality.py` has measured, beside what the throughput model says of it: records, predictions, tables.

Each measurement has two predictions. The nominal one is for the probability p that was asked for. In the seconds of one measurement small
hands over more or less often than p, by luck, and its decisions are counted: the other prediction is for the share of its candidates that
was dropped, which is what `trc profile` of those seconds would have put into P.

Both together take that luck out of a measurement (a control variate): measured * predicted(p) / predicted(counted share) is what would have
been measured had small handed over as often as p says, as far as the model is right about what one more hand-over costs. That is used to
judge which of several windows is the best, where each is measured by other luck; the raw figures stand beside it.

It is small's decisions that are counted, not large's tokens: those come in batches, and one batch more or less at the ends of a measurement
would count as luck of the draws.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Literal

import msgspec

from tokenrouter.profile.structs import Machine, ModelTimes
from tokenrouter.profile.system import after_other, busy_sets, by_size, quantum
from tokenrouter.throughput.choose import solve
from tokenrouter.throughput.search import pick, search
from tokenrouter.throughput.spec import BusyRates, Solution, Spec
from tokenrouter.throughput.system import build

NEAR = 0.1  # a prediction that is off by no more
LITTLE = 0.03  # of tokens/s that a chosen window may lose
MOST_EXACT = 4  # requests; beyond that the chain of measured times is too large, and looking at it takes time


class Cell(msgspec.Struct, kw_only=True):
    """One hand-off probability, number of active requests and window of large, as measured."""

    p: float
    n: int
    window: int
    small: int = 1  # window of small
    tokens_per_s: list[float] = []  # by round
    moved: list[float] = []  # share of the tokens that large wrote
    dropped: list[
        float | None
    ] = []  # share of small's candidates that were; None where not counted
    batches: list[float] = []  # mean size of large's batches
    others: list[float] = []  # cores that other work took meanwhile
    front: list[float] = []  # cores that the front end and the clients took, which are one process

    @property
    def name(self) -> tuple[float, int, int, int]:
        """What tells it from others."""
        return self.p, self.n, self.small, self.window

    @property
    def label(self) -> str:
        """Its windows in few words: large's, or small's and large's."""
        return str(self.window) if self.small == 1 else f"{self.small}, {self.window}"

    @property
    def mean(self) -> float:
        """Tokens/s over the rounds."""
        return statistics.fmean(self.tokens_per_s)


class Record(msgspec.Struct, kw_only=True):
    """All that was measured so far."""

    program_hash: str
    machine: Machine
    seconds: float  # of one measurement
    timing: int = 1  # of the step times: how they were measured
    times: dict[str, list[ModelTimes]] = {}  # by p
    cells: list[Cell] = []

    def cell(self, p: float, n: int, window: int, small: int = 1) -> Cell:
        """Return a cell, which may be new."""
        for cell in self.cells:
            if cell.name == (p, n, small, window):
                return cell
        self.cells.append(Cell(p=p, n=n, window=window, small=small))
        return self.cells[-1]


def specified(models: list[ModelTimes], n: int, p: float) -> Spec:
    """Return the system of n requests where small hands over with this probability."""
    times = [by_size(model, n) for model in models]
    turns = any(step.after is not None for model in models for step in model.steps)
    after = [after_other(model, n) for model in models] if turns else []
    return Spec(
        n=n,
        step_ms=list(times),
        p=[[1 - p, p], [1, 0]],
        c=[[1, 0], [1, 0]],
        delta_ms=quantum([*times, *after]),
        busy=[BusyRates(models=busy.models, rates=busy.rates) for busy in busy_sets(models)],
        in_turn=turns,
        after_ms=list(after) or None,
    )


def best(models: list[ModelTimes], n: int, p: float) -> list[int]:
    """Return the windows of both models that the compiler would choose."""
    return search(build(specified(models, n, p)), [n])[0].windows


def predicted(models: list[ModelTimes], cell: Cell, p: float) -> Solution:
    """Return what the throughput model says of a cell where small hands over with this probability."""
    spec = specified(models, cell.n, p)
    exact = spec.in_turn or cell.n <= MOST_EXACT  # in turn a chain is small for many requests too
    solver: Literal["auto", "sampled"] = "auto" if exact else "sampled"
    return solve(build(spec), [cell.small, cell.window], solver=solver)


class Row:
    """A cell beside its predictions."""

    def __init__(self, cell: Cell, models: list[ModelTimes]) -> None:
        self.cell, self.models = cell, models
        self.nominal = predicted(models, cell, cell.p)

    @cached_property
    def counted(self) -> list[float | None]:
        """Tokens/s predicted for the share that was dropped, by round; None where it was not counted."""
        cell = self.cell
        shares = [*cell.dropped, *[None] * (len(cell.tokens_per_s) - len(cell.dropped))]
        return [
            None
            if share is None
            else predicted(self.models, cell, min(0.99, max(0.001, share))).tokens_per_s
            for share in shares
        ]

    @property
    def told(self) -> float:
        """Tokens/s predicted for p."""
        return self.nominal.tokens_per_s

    @property
    def off(self) -> float:
        """How far the prediction for p is off."""
        return self.told / self.cell.mean - 1

    @property
    def by_round(self) -> list[float]:
        """Tokens/s without the luck of the hand-overs, by round; as measured where that was not counted."""
        pairs = zip(self.cell.tokens_per_s, self.counted, strict=True)
        return [
            measured if counted is None else measured * self.told / counted
            for measured, counted in pairs
        ]

    @property
    def corrected(self) -> float:
        """The same over the rounds."""
        return statistics.fmean(self.by_round)

    @property
    def share(self) -> float | None:
        """Share of small's candidates that were dropped, over the rounds that counted."""
        known = [share for share in self.cell.dropped if share is not None]
        return statistics.fmean(known) if known else None


class Group:
    """The windows of one p and one number of requests."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = sorted(rows, key=lambda row: row.cell.name)
        self.p, self.n = self.rows[0].cell.p, self.rows[0].cell.n
        vectors = [[row.cell.small, row.cell.window] for row in self.rows]
        at = pick([row.told for row in self.rows], vectors)
        self.chosen = self.rows[at]  # as the compiler chooses

    @property
    def loss(self) -> float:
        """What the chosen window loses against the best as measured."""
        return 1 - self.chosen.cell.mean / max(row.cell.mean for row in self.rows)

    @property
    def loss_corrected(self) -> float:
        """The same without the luck of the hand-overs."""
        return 1 - self.chosen.corrected / max(row.corrected for row in self.rows)


def groups(record: Record) -> list[Group]:
    """Return what is measured, by p and number of requests."""
    found: dict[tuple[float, int], list[Row]] = {}
    for cell in record.cells:
        if cell.tokens_per_s:
            row = Row(cell, record.times[f"{cell.p:g}"])
            found.setdefault((cell.p, cell.n), []).append(row)
    return [Group(found[at]) for at in sorted(found)]


def table(where: Machine, done: Sequence[Group]) -> str:
    """Return every cell in a line of Markdown, and the sums."""
    lines = [
        f"{where.processor}, {where.cores} cores, {where.threads} threads a model, load {where.load:.1f} before.",
        "",
        "| p | N | window of large, or of small and large | predicted tokens/s | measured | off | dropped | without that luck | off | large's batch predicted | measured |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for group in done:
        best = max(group.rows, key=lambda row: row.cell.mean)
        for row in group.rows:
            cell = row.cell
            names = "".join(
                f" ({name})" for name, at in (("chosen", group.chosen), ("best", best)) if at is row
            )
            lines.append(
                f"| {cell.p:g} | {cell.n} | {cell.label}{names} | {row.told:.1f} | {cell.mean:.1f} | {100 * row.off:+.1f} % "
                f"| {'' if row.share is None else f'{row.share:.3f}'} | {row.corrected:.1f} "
                f"| {100 * (row.told / row.corrected - 1):+.1f} % "
                f"| {row.nominal.per_model[1].mean_batch:.2f} | {statistics.fmean(cell.batches):.2f} |"
            )
    return "\n".join([*lines, "", *sums(done)])


def short_table(done: Sequence[Group]) -> str:
    """Return a line of Markdown for each p and number of requests, and the sums."""
    lines = [
        "| p | N | window of large, or windows of small and large: predicted / measured / without the luck of the hand-overs, tokens/s | the chosen window loses | without that luck |",
        "|---|---|---|---|---|",
    ]
    for group in done:
        cells = []
        for row in group.rows:
            mark = "**" if row is group.chosen else ""
            figures = " / ".join(map(_short, (row.told, row.cell.mean, row.corrected)))
            cells.append(f"{mark}{row.cell.label}: {figures}{mark}")
        lines.append(
            f"| {group.p:g} | {group.n} | {' · '.join(cells)} "
            f"| {100 * group.loss:.1f} % | {100 * group.loss_corrected:.1f} % |"
        )
    return "\n".join([*lines, "", *sums(done)])


def sums(done: Sequence[Group]) -> Iterator[str]:
    """Yield how good the predictions and the choices are, a line each."""
    rows = [row for group in done for row in group.rows]
    yield f"Predictions for p, of what was measured: {_told([row.off for row in rows])}."
    yield f"Of what is without the luck of the hand-overs: {_told([row.told / row.corrected - 1 for row in rows])}."
    for name, losses in (
        ("as measured", [group.loss for group in done]),
        ("without that luck", [group.loss_corrected for group in done]),
    ):
        little = sum(loss <= LITTLE for loss in losses)
        yield f"The chosen window loses at most {100 * LITTLE:g} % in {little} of {len(losses)} groups, {name}; at worst {100 * max(losses):.1f} %."
    counted = [row for row in rows if None not in row.counted]
    raw = _scatter([row.cell.tokens_per_s for row in counted])
    corrected = _scatter([row.by_round for row in counted])
    if raw is not None and corrected is not None:
        yield f"One round of a window differs from another by {100 * raw:.1f} % (standard deviation of one), without that luck by {100 * corrected:.1f} %."


def _scatter(rounds: Sequence[Sequence[float]]) -> float | None:
    """Return the standard deviation of one round about its cell's mean, as a share of it; None where each has but one."""
    several = [values for values in rounds if len(values) > 1]
    if not several:
        return None
    squares = sum(
        (value / statistics.fmean(values) - 1) ** 2 for values in several for value in values
    )
    return float((squares / sum(len(values) - 1 for values in several)) ** 0.5)


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _told(errors: Sequence[float]) -> str:
    within = sum(abs(error) <= NEAR for error in errors)
    return (
        f"{within} of {len(errors)} within {100 * NEAR:g} %, mean {100 * statistics.fmean(errors):+.1f} %, "
        f"standard deviation {100 * statistics.pstdev(errors):.1f} %, worst {100 * max(errors, key=abs):+.1f} %"
    )
