"""How much of the machine other processes took while something was measured, from /proc; nothing is known elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


class Others:
    """A stretch of time, from its making on."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.all, self.own = _all(), _own()

    def cores(self) -> float:
        """Return how many cores, on average, worked for processes that are neither this one nor its descendants."""
        passed = time.monotonic() - self.began
        return max(0.0, (_all() - self.all) - (_own() - self.own)) / passed


def _all() -> float:
    """Return the processor seconds of everything since the start."""
    try:
        words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = (int(word) for word in words[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS


def _own() -> float:
    """Return the processor seconds of this process and its descendants, those included that they have waited for."""
    parents, seconds = {}, {}
    for pid, parent, ticks in _processes():
        parents[pid], seconds[pid] = parent, ticks / TICKS
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(seconds.get(pid, 0.0) for pid in own)


def _processes() -> Iterator[tuple[int, int, int]]:
    """Yield number, parent and processor ticks of every process."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        yield int(path.parent.name), int(fields[1]), sum(map(int, fields[11:15]))
