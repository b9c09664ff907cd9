"""What `benchmarks/gpu.py` makes of times: shares of the roofline, a table, a JSON file. Numbers in, numbers out; no device."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

FLUSH_BYTES = 256 << 20  # written between two runs, so that nothing is still in the cache


@dataclass(frozen=True, slots=True)
class Ceilings:
    """What the card was measured to do."""

    bytes_per_s: float
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class KernelTime:
    """One kernel at one size."""

    kernel: str
    size: str
    error: float  # largest difference from the reference, relative to the reference's largest
    right: bool
    ms: float
    replaced_ms: float
    roofline: float  # share of what the card could do, by bytes or FLOPs, whichever takes longer


@dataclass(frozen=True, slots=True)
class StepTime:
    """One decode step of a model's shape."""

    shape: str
    requests: int
    tokens: int
    context: int
    eager_ms: float
    graph_ms: float
    weights_ms: float  # reading all weights once at the measured bandwidth


@dataclass(frozen=True, slots=True)
class Routed:
    """The pair under some clients, tokens/s."""

    clients: int
    eager_windows: float
    solved_windows: float
    baseline: float


def share(ms: float, n_bytes: int, flops: int, ceilings: Ceilings) -> float:
    """Return the share of the roofline: the least time that the card needs over the time that it took."""
    least_s = max(n_bytes / ceilings.bytes_per_s, flops / ceilings.flops_per_s)
    return least_s / (ms / 1000)


def timed(run: Callable[[], float], repeat: int) -> float:
    """Return the median of some times."""
    return median(run() for _ in range(repeat))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows under a head, the first two columns to the left, numbers to the right."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(head))]

    def line(row: Sequence[str]) -> str:
        return "  ".join(
            cell.ljust(width) if at < 2 else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()

    return "\n".join([line(cells[0]), "  ".join("-" * w for w in widths), *map(line, cells[1:])])


def kernel_table(times: Sequence[KernelTime]) -> str:
    """Return what the kernels took."""
    rows = [
        [
            t.kernel,
            t.size,
            "yes" if t.right else f"NO ({t.error:.1e})",
            f"{t.ms:.4f}",
            f"{100 * t.roofline:.0f} %",
            f"{t.replaced_ms / t.ms:.2f}x",
        ]
        for t in times
    ]
    return table(["kernel", "size", "right", "ms", "of roofline", "against torch"], rows)


def step_table(times: Sequence[StepTime]) -> str:
    """Return what the steps took."""
    rows = [
        [
            t.shape,
            f"{t.requests} x {t.tokens} of {t.context}",
            f"{t.eager_ms:.3f}",
            f"{t.graph_ms:.3f}",
            f"{t.eager_ms / t.graph_ms:.2f}x",
            f"{t.graph_ms / t.weights_ms:.2f}x",
        ]
        for t in times
    ]
    return table(
        ["shape", "step", "eager ms", "graph ms", "eager / graph", "graph / weight read"], rows
    )


def routed_table(found: Sequence[Routed]) -> str:
    """Return what the pair served."""
    rows = [
        [
            "pair, p = 0.35",
            f"N = {r.clients}",
            f"{r.eager_windows:.0f}",
            f"{r.solved_windows:.0f}",
            f"{r.baseline:.0f}",
            f"{max(r.eager_windows, r.solved_windows) / r.baseline:.2f}x" if r.baseline else "-",
        ]
        for r in found
    ]
    return table(["routed", "clients", "windows of 1", "solved windows", "baseline", "ratio"], rows)


def write(
    path: Path,
    about: dict[str, str],
    ceilings: Ceilings,
    kernels: Sequence[KernelTime],
    steps: Sequence[StepTime],
    routed: Sequence[Routed],
) -> None:
    """Write all figures."""
    found = {
        "about": about,
        "ceilings": asdict(ceilings),
        "kernels": [asdict(t) for t in kernels],
        "steps": [asdict(t) for t in steps],
        "routed": [asdict(r) for r in routed],
    }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
