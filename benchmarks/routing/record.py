"""What `routed.py` has measured so far, kept in a file, and the table of it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

import msgspec
from routing.cases import ALONE, POLICIES

from tokenrouter.bench.figures import Figures
from tokenrouter.bench.report import ROUTED
from tokenrouter.machine import machine

QUIET = 0.3  # cores that others may use


class Cell(msgspec.Struct, kw_only=True):
    """What was measured of one pair, policy, number of clients and length of answer."""

    pair: str
    policy: str
    clients: int
    tokens: int
    runs: dict[str, list[Figures]] = {}  # by side, one a round
    others: list[float] = []  # cores that other work took, by round
    when: str = ""
    commit: dict[str, str] = {}  # of this project, by side, where it was last measured
    threads: dict[str, int] = {}  # of each ordinary server, by side
    types: dict[str, str] = {}  # of other engines' weights, by side; bfloat16 where nothing is said
    alike: dict[
        str, float
    ] = {}  # share of next tokens of some prompts that are our own servers', by side

    def rounds(self, sides: Sequence[str]) -> int:
        """Return how often all of these sides were measured."""
        return min(len(self.runs.get(side, [])) for side in sides)


class Record(msgspec.Struct, kw_only=True):
    """All that was measured so far."""

    machine: str
    dtype: str
    cells: list[Cell] = []

    def cell(self, pair: str, policy: str, clients: int, tokens: int) -> Cell:
        """Return a cell, which may be new."""
        key = (pair, policy, clients, tokens)
        for cell in self.cells:
            if (cell.pair, cell.policy, cell.clients, cell.tokens) == key:
                return cell
        self.cells.append(Cell(pair=pair, policy=policy, clients=clients, tokens=tokens))
        return self.cells[-1]


def started(path: Path | None, dtype: str) -> Record:
    """Return what was measured before, a new record where nothing was; ends where another machine measured it."""
    here = machine()
    if path is None or not path.exists():
        return Record(machine=here, dtype=dtype)
    old = msgspec.json.decode(path.read_bytes(), type=Record)
    if (old.machine, old.dtype) != (here, dtype):
        raise SystemExit(f"{path}: measured on {old.machine} in {old.dtype}; name another file")
    return old


def save(record: Record, path: Path | None) -> None:
    """Write down what there is."""
    if path is not None:
        kept = path.with_suffix(".new")
        kept.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
        kept.replace(path)


def table(record: Record) -> str:
    """Return the record as a Markdown table: medians over rounds, ranges in brackets."""
    others = list(dict.fromkeys(side for cell in record.cells for side in cell.runs))
    others = [side for side in others if side != ROUTED]
    alone = {
        (c.pair, c.policy, c.clients, c.tokens): c.runs[ROUTED]
        for c in record.cells
        if ROUTED in c.runs
    }
    lines = [
        f"| pair | policy | clients | tokens an answer | by large | routed, tokens/s | {' | '.join(others)} | ratio to the best "
        f"| ms a token, routed | {' | '.join(others)} | large alone, tokens/s |",
        "|---" * (9 + 2 * len(others)) + "|",
    ]
    for cell in sorted(record.cells, key=lambda c: (c.pair, c.tokens)):
        if ROUTED not in cell.runs:
            continue
        if cell.policy.startswith(ALONE) and any(c.policy in POLICIES for c in record.cells):
            continue  # it has a column
        routed = cell.runs[ROUTED]
        found = [cell.runs.get(side, []) for side in others]
        best = max((middle(speeds(runs)) for runs in found if runs), default=None)
        ratio = "" if best is None else f"**{middle(speeds(routed)) / best:.2f}**"
        large = middle([(one.share or {}).get("large", 0.0) for one in routed])
        noisy = "*" if max(cell.others) > QUIET else ""
        parts = [
            *(cell.pair, f"{cell.policy}{noisy}", f"{cell.clients}", f"{cell.tokens}"),
            *(f"{100 * large:.0f} %", spread(routed), *map(spread, found), ratio),
            *(delay(routed), *map(delay, found)),
            spread(alone.get((cell.pair, f"{ALONE}:large", cell.clients, cell.tokens), [])),
        ]
        lines.append(f"| {' | '.join(parts)} |")
    dates = sorted({cell.when for cell in record.cells if cell.when})
    when = " to ".join(dict.fromkeys(dates[:1] + dates[-1:]))
    types = dict.fromkeys(item for cell in record.cells for item in cell.types.items())
    told = [f"{side} in {kind}" for side, kind in types if len(types) > 1 or kind != record.dtype]
    lines += ["", f"{', '.join([record.machine, record.dtype, *told])}; measured {when}."]
    if any(max(cell.others, default=0) > QUIET for cell in record.cells):
        lines[-1] += " Cells with a star were measured beside other work."
    return "\n".join(lines)


def speeds(runs: Sequence[Figures]) -> list[float]:
    """Return tokens/s by round."""
    return [one.tokens_per_s for one in runs]


def delay(runs: Sequence[Figures]) -> str:
    """Return the median time of a token after the first, in ms."""
    found = [one.tpot_ms.p50 for one in runs if one.tpot_ms is not None]
    return f"{middle(found):.1f}" if found else ""


def spread(runs: Sequence[Figures]) -> str:
    """Return median and range of tokens/s."""
    values = speeds(runs)
    if not values:
        return ""
    text = f"{middle(values):.1f}"
    return text if len(values) < 2 else f"{text} ({min(values):.1f}-{max(values):.1f})"


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)
