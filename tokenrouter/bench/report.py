"""What a benchmark reports: figures by level and side, medians over repeats, and the ratio of the two sides."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import msgspec

from tokenrouter.bench.breakdown import Breakdown
from tokenrouter.bench.figures import Figures, Slo, Spread

Get = Callable[[Figures], float | None]
ROUTED, BASELINE = "routed", "baseline"


class Level(msgspec.Struct, frozen=True, kw_only=True):
    """One load: so many clients, or so many requests a second."""

    concurrency: int | None = None
    rate: float | None = None

    @property
    def name(self) -> str:
        """The load in a word."""
        return f"{self.concurrency}" if self.rate is None else f"{self.rate:g}/s"


class Median(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over the repeats of a level."""

    median: float
    low: float
    high: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """All repeats of one side at one level."""

    side: str
    level: Level
    runs: list[Figures]
    breakdown: list[Breakdown] = []  # of all repeats together, where it was asked for

    def of(self, get: Get) -> Median | None:
        """Return a figure's median and range; None where a run lacks it."""
        values = [get(run) for run in self.runs]
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return Median(median=statistics.median(known), low=min(known), high=max(known))


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Whether both sides wrote the same, at temperature 0."""

    compared: int  # requests
    same: int  # whose tokens are all the same
    first_difference: list[int | None]  # by request: the output position; None where there is none


class Ratio(msgspec.Struct, frozen=True, kw_only=True):
    """Routed against baseline at one level; above 1 the routed side is better."""

    level: Level
    tokens_per_s: float
    tpot: float | None
    e2e: float | None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What `--json` prints."""

    format: int = 1
    target: str  # URL or plan
    policy: str
    machine: str
    started: str  # RFC 3339, UTC
    settings: dict[str, str | int | float | bool | None]
    slo: Slo | None
    rows: list[Row]
    ratios: list[Ratio] = []
    agreement: Agreement | None = None


def ratios(rows: Sequence[Row]) -> list[Ratio]:
    """Return the ratios of medians, for every level that both sides were measured at."""
    found = []
    base = {row.level: row for row in rows if row.side == BASELINE}
    for row in rows:
        if row.side != ROUTED or row.level not in base:
            continue
        other = base[row.level]
        speed = _ratio(row.of(lambda f: f.tokens_per_s), other.of(lambda f: f.tokens_per_s))
        found.append(
            Ratio(
                level=row.level,
                tokens_per_s=speed or 0.0,
                tpot=_ratio(other.of(part("tpot_ms", "p50")), row.of(part("tpot_ms", "p50"))),
                e2e=_ratio(other.of(part("e2e_ms", "p50")), row.of(part("e2e_ms", "p50"))),
            )
        )
    return found


def part(name: str, part: str) -> Get:
    """Return how to get one number of one of a run's distributions."""

    def get(run: Figures) -> float | None:
        spread: Spread | None = getattr(run, name)
        value: float | None = None if spread is None else getattr(spread, part)
        return value

    return get


def _ratio(above: Median | None, below: Median | None) -> float | None:
    if above is None or below is None or not below.median:
        return None
    return above.median / below.median
