"""What every engine's process does: say that it is ready, then run the loads that are asked for.

Imported by the scripts beside it, in the environment of each engine; it needs nothing but Python.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path

Run = Callable[
    [list[list[int]], int], tuple[float, float]
]  # prompts, tokens -> s to first, s of the rest


def serve(run: Run) -> None:
    """Answer until stdin ends."""
    tell({})
    for load, line in enumerate(sys.stdin):
        asked = json.loads(line)
        first, rest = run(prompts(asked["requests"], asked["prompt"], load), asked["tokens"])
        tell({"first_s": first, "decode_s": rest, "memory_mb": memory_mb()})
    sys.stdout.flush()
    os._exit(0)


def tell(what: dict[str, float]) -> None:
    """Write one answer."""
    print(json.dumps({"bench": what}), flush=True)


def prompts(n: int, length: int, load: int) -> list[list[int]]:
    """Return the same prompts for every engine: no two with the same beginning, and new ones for every load, so that no engine has read them."""
    source = random.Random(load)
    return [[source.randrange(1000, 40000) for _ in range(length)] for _ in range(n)]


def memory_mb() -> float:
    """Return the resident memory of this process and its children."""
    total = 0.0
    for process in [os.getpid(), *children(os.getpid())]:
        try:
            for line in Path(f"/proc/{process}/status").read_text().splitlines():
                if line.startswith("VmRSS"):
                    total += int(line.split()[1]) / 1024
        except OSError:
            continue
    return total


def children(parent: int) -> list[int]:
    """Return all processes below one."""
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found
