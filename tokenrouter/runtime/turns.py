"""Few cores and several models: who steps when, and on how many threads.

Where a model's share of the cores is one, each model has as many threads as there are cores. Where the threads of all models are more
than the cores, subservers take turns: a step holds a lock on a file of the front end's directory, from the forming of its batch to its last message. A model that has nothing to do then leaves no core idle, and no thread waits at a barrier for one that
another model keeps from running. `docs/performance.md` has the figures.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from pathlib import Path
from types import TracebackType

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.settings import Settings

FILE = "turn"
STAMP = struct.Struct("=qd")  # who stepped last, and when that ended


def cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0))


def share_of_cores(n_models: int) -> int:
    """Return the threads of each model where nobody says: its share of the cores, or all of them in turn."""
    share = cores() // n_models
    return share if share > 1 else cores()


def shared(threads: int | None, n_models: int) -> bool:
    """Return whether models have more threads than there are cores, so that they step in turn."""
    if n_models == 1 or threads is None:
        return False
    return threads * n_models > max(cores(), n_models)


def in_turn(plan: Plan, settings: Settings) -> bool:
    """Return whether all models of a plan step in turn where it is run so."""
    whole = all(model.tensor_parallel == 1 for model in plan.models)
    return whole and settings.device == "cpu" and shared(settings.threads, len(plan.models))


def shared_memory(file: int, size: int) -> mmap.mmap:
    """Return the first bytes of a file as memory that all who have it open share."""
    os.posix_fallocate(file, 0, size)
    return mmap.mmap(file, size)


class Turns:
    """A lock that one process at a time holds; the kernel frees it where its holder dies.

    Whoever waits for it holds another one meanwhile, so that a process that has just given it up cannot take it again before.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        self._next = os.open(path.with_suffix(".next"), flags, 0o600)
        self._stamp = shared_memory(self._file, STAMP.size)
        # s on a clock that all processes share: since when this turn follows another's; None where it follows one's own.
        self.since: float | None = None

    def __enter__(self) -> None:
        """Wait for one's turn."""
        stood = time.monotonic()
        fcntl.flock(self._next, fcntl.LOCK_EX)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        fcntl.flock(self._next, fcntl.LOCK_UN)
        holder, ended = STAMP.unpack_from(self._stamp)
        self.since = None if holder in (0, os.getpid()) else max(ended, stood)

    @property
    def alone(self) -> bool:
        """Whether nobody waits for this turn to end."""
        try:
            fcntl.flock(self._next, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(self._next, fcntl.LOCK_UN)
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let another one step."""
        STAMP.pack_into(self._stamp, 0, os.getpid(), time.monotonic())
        fcntl.flock(self._file, fcntl.LOCK_UN)
