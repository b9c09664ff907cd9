"""Six threads on one core: `python -m tests.models.crowded MODEL` prints `equal` where their steps give the bits of one thread's.

They wait for each other through all that a barrier has: looks, turns, sleep. A process of its own, since a thread of the team keeps
the cores that it began with.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import torch

from tests.models.harness import Paged, native

TOKENS = [7, 70, 12, 90, 33, 5, 64, 18]


def logits(model, threads):
    """The logits of two requests over some steps."""
    torch.set_num_threads(threads)
    paged = Paged(model)
    return [
        paged.extend(*((row, at, [(token + row + at) % 99]) for row in (0, 1))).logits
        for at, token in enumerate(TOKENS)
    ]


@contextlib.contextmanager
def others(n):
    """Other programs that want the core all the time."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    with contextlib.ExitStack() as stack:
        for _ in range(n):
            stack.callback(subprocess.Popen(command).kill)
        yield


def main():
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    model = native(Path(sys.argv[1]), "float32")
    expected = logits(model, 1)
    with others(2):
        got = logits(model, 6)
    print("equal" if all(map(torch.equal, got, expected)) else "different")


if __name__ == "__main__":
    main()
