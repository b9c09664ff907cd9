"""How long `trc check` takes from a cold process: 1,000 lines of several shapes, then 10,000 and 100,000 lines.

    python benchmarks/check.py [--repeat 5] [--short]

Prints medians of wall-clock and of processor seconds; where other work runs on the machine the wall clock tells of that
work too. The inputs are written anew each time: no rule of them is dead unless the shape says so. Byte code is written once
before anything is timed, into a folder of its own, as an installation by pip writes it.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

GOAL_S, GOAL_RATIO = 0.6, 12
HEAD = ["route 1", 'model small { use "s" }', 'model large { use "l" }']
BACK = "  at large { otherwise -> commit then small }"


def _policy(name: str, rules: list[str]) -> list[str]:
    body = [f"    {rule}" for rule in rules]
    return [f"policy {name} {{", "  start small", "  at small {", *body, *_rest()]


def _rest() -> list[str]:
    return ["    otherwise -> commit", "  }", BACK, "}"]


def one_block(lines: int) -> list[str]:
    """Return one block of rules, each of which fires where those before it do not."""
    n = lines - 10
    rules = [
        f"when entropy > {9 * (n - i) / n:.5f} and margin < {(i + 1) / n:.5f} -> retry large"
        for i in range(n)
    ]
    return [*HEAD, *_policy("p", rules)]


def boxes(lines: int) -> list[str]:
    """Return one block of rules on random pairs of four signals; most are covered by others."""
    draw = random.Random(1)
    high = {"entropy": 9.0, "margin": 1.0, "maxprob": 1.0, "position": 999.0}
    rules = []
    for _ in range(lines - 10):
        parts = [
            f"{name} {draw.choice('<>')} {draw.uniform(0, high[name]):.4f}"
            for name in draw.sample(sorted(high), 2)
        ]
        rules.append(f"when {' and '.join(parts)} -> retry large")
    return [*HEAD, *_policy("p", rules)]


def dead(lines: int) -> list[str]:
    """Return blocks of 40 rules, each of which can never fire."""
    rules = [f"when entropy > {60 + i} and margin < {i + 1}% -> retry large" for i in range(40)]
    return [*HEAD, *(line for i in range(lines // 47) for line in _policy(f"p{i}", rules))]


def tokens(lines: int) -> list[str]:
    """Return one block of rules on words."""
    rules = [f'when token is "w{i}" or token is "v{i}" -> retry large' for i in range(lines - 10)]
    return [*HEAD, *_policy("p", rules)]


def models(lines: int) -> list[str]:
    """Return one policy over as many models as there are lines for."""
    n = (lines - 4) // 2
    declared = [f'model m{i} {{ use "m{i}" }}' for i in range(n)]
    blocks = [
        f"  at m{i} {{ when entropy > {i % 7 + 1} -> commit then m{(i + 1) % n} otherwise -> commit }}"
        for i in range(n)
    ]
    return ["route 1", *declared, "policy p {", "  start m0", *blocks, "}"]


def nested(lines: int) -> list[str]:
    """Return rules whose conditions nest 40 deep."""
    deep = "(not " * 40 + "margin < {m:.5f}" + ")" * 40
    rules = [
        f"when entropy > 4 and {deep.format(m=(i + 1) / lines)} -> retry large"
        for i in range(lines - 10)
    ]
    return [*HEAD, *_policy("p", rules)]


def policies(lines: int) -> list[str]:
    """Return small policies, one behind the other."""
    out = list(HEAD)
    for i in range(lines // 9):
        rules = [
            f"when entropy > {1 + i % 70 / 10} and margin < {1 + i % 50}% -> retry large",
            f"when maxprob < {10 + i % 80}% -> borrow large for 4",
        ]
        out += _policy(f"p{i}", rules)
    return out


SHAPES: tuple[Callable[[int], list[str]], ...] = (
    policies,
    one_block,
    boxes,
    dead,
    tokens,
    models,
    nested,
)


def check(path: Path) -> None:
    """Check one file in a process of its own."""
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(path.parent / "pycache")}
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, "-m", "tokenrouter.cli", "check", str(path)]
    nothing = subprocess.DEVNULL
    subprocess.run(command, stdout=nothing, stderr=nothing, check=False, env=env)


def timed(path: Path, repeat: int) -> tuple[float, float]:
    """Return the medians of wall-clock and processor seconds of one cold check."""
    walls, works = [], []
    for _ in range(repeat):
        before, start = os.times(), time.perf_counter()
        check(path)
        walls.append(time.perf_counter() - start)
        after = os.times()
        works.append(
            after.children_user
            - before.children_user
            + after.children_system
            - before.children_system
        )
    return statistics.median(walls), statistics.median(works)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=3, help="runs of each 1,000 lines (3)")
    parser.add_argument("--short", action="store_true", help="leave out 10,000 and 100,000 lines")
    args = parser.parse_args()
    print(
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; goal {GOAL_S} s wall a cold check"
    )
    print(f"{'input':<22} {'lines':>7} {'wall s':>8} {'cpu s':>8}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "input.route"

        def row(name: str, lines: list[str], repeat: int) -> tuple[float, float]:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
            wall, work = timed(path, repeat)
            print(f"{name:<22} {len(lines):>7} {wall:>8.2f} {work:>8.2f}", flush=True)
            return wall, work

        path.write_text("\n".join(policies(20)) + "\n", encoding="utf-8")
        check(path)  # writes the byte code
        row("smallest", [*HEAD, *_policy("p", [])], args.repeat)
        for shape in SHAPES:
            row(shape.__name__.replace("_", " "), shape(1000), args.repeat)
        if args.short:
            return
        ten, hundred = (row("policies", policies(n), 1) for n in (10_000, 100_000))
        print(
            f"100,000 lines / 10,000 lines: {hundred[0] / ten[0]:.1f}x wall, {hundred[1] / ten[1]:.1f}x cpu"
            f"; goal {GOAL_RATIO}x"
        )


if __name__ == "__main__":
    main()
