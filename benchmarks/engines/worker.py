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
from typing import Any

BEGINNING = 8  # ids of an answer that are told
Ids = list[int]
Run = Callable[
    [list[Ids], int], tuple[float, float, list[Ids]]
]  # prompts, tokens -> s to first, s of the rest, what was written


def serve(run: Run) -> None:
    """Answer until stdin ends."""
    tell({})
    for line in sys.stdin:
        asked = json.loads(line)
        source = prompts(asked["requests"], asked["prompt"], asked["load"])
        first, rest, ids = run(source, asked["tokens"])
        begun = [list(map(int, each[:BEGINNING])) for each in ids]
        tell({"first_s": first, "decode_s": rest, "memory_mb": memory_mb(), "ids": begun})
    sys.stdout.flush()
    os._exit(0)


def tell(what: dict[str, Any]) -> None:
    """Write one answer."""
    print(json.dumps({"bench": what}), flush=True)


def prompts(n: int, length: int, load: int) -> list[Ids]:
    """Return the same prompts for every engine: no two with the same beginning, and new ones for every load, so that no engine has read them."""
    source = random.Random(load)
    return [[source.randrange(1000, 40000) for _ in range(length)] for _ in range(n)]


def memory_mb() -> float:
    """Return the resident memory of this process and its children, what several of them have counted once: the most that one shares."""
    own, shared = 0, [0]
    for process in [os.getpid(), *children(os.getpid())]:
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.endswith("kB")}
        own += sizes["Private_Clean"] + sizes["Private_Dirty"]
        shared.append(sizes["Shared_Clean"] + sizes["Shared_Dirty"])
    return (own + max(shared)) * 1024 / 1e6


def children(parent: int) -> list[int]:
    """Return all processes below one."""
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += [int(child), *children(int(child))]
    return found
