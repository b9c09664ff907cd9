"""How long the window tables take: N = 1..64 with two models, N = 1..256 with three.

    python benchmarks/windows.py [--repeat 3]

`quick` is what `trc compile` solves. Prints the median of wall-clock and of processor seconds. Where other work runs on the machine the wall clock tells of
that work too; the processor's seconds are what the table costs. Nothing is read from or put into the cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable

from tokenrouter.throughput import exact, sampled
from tokenrouter.throughput.check import check
from tokenrouter.throughput.spec import Spec
from tokenrouter.throughput.system import build
from tokenrouter.throughput.table import solve_table

GOALS_S = {"M = 2, N = 1..64": 5, "M = 2 in turn, N = 1..64": 5, "M = 3, N = 1..256": 60}
SPECS = {
    "M = 2, N = 1..64": Spec(
        n=64,
        step_ms=[[6 + 0.05 * b for b in range(1, 65)], [20 + 0.8 * b for b in range(1, 65)]],
        p=[[0.65, 0.35], [1, 0]],
        c=[[1, 0], [1, 0]],
        mean_output_tokens=200.0,
    ),
    "M = 2 in turn, N = 1..64": Spec(
        n=64,
        step_ms=[[6 + 0.05 * b for b in range(1, 65)], [20 + 0.8 * b for b in range(1, 65)]],
        after_ms=[[9 + 0.05 * b for b in range(1, 65)], [22 + 0.8 * b for b in range(1, 65)]],
        in_turn=True,
        p=[[0.65, 0.35], [1, 0]],
        c=[[1, 0], [1, 0]],
        mean_output_tokens=200.0,
    ),
    "M = 3, N = 1..256": Spec(
        n=256,
        step_ms=[4.0, 9.0, 31.0],
        p=[[0.7, 0.25, 0.05], [0.8, 0.1, 0.1], [1, 0, 0]],
        c=[[1, 0, 0], [1, 1, 0], [1, 0, 0]],
    ),
}


def main() -> None:
    """Time the tables and one run of each solver."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="(%(default)s)")
    repeat = parser.parse_args().repeat
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} at the start, medians of {repeat}")
    print(f"{'':31}  {'wall s':>7}  {'cpu s':>7}  {'goal s':>7}")
    for name, spec in SPECS.items():
        show(name, [timed(lambda s=spec: solve_table(s, cached=False)) for _ in range(repeat)])
    for name, spec in SPECS.items():
        quick = [
            timed(lambda s=spec: solve_table(s, cached=False, quick=True)) for _ in range(repeat)
        ]
        show(f"{name}, quick", quick)
    pair = build(check(Spec(n=8, step_ms=[6.0, 27.9], p=[[0.65, 0.35], [1, 0]], c=[[1, 0]] * 2)))
    show("exact, N = 8, [1, 1]", [timed(lambda: exact.solve(pair, [1, 1])) for _ in range(repeat)])
    show("sampled, the same", [timed(lambda: sampled.solve(pair, [1, 1])) for _ in range(repeat)])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall-clock and processor seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def show(name: str, times: list[tuple[float, float]]) -> None:
    """Print the medians."""
    wall, cpu = (statistics.median(each) for each in zip(*times, strict=True))
    goal = GOALS_S.get(name, "")
    print(f"{name:31}  {wall:7.2f}  {cpu:7.2f}  {goal:>7}")


if __name__ == "__main__":
    main()
