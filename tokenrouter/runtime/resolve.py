"""Solving a window table off the hot path: `python -m tokenrouter.runtime.resolve`, a specification in, a table out.

A process of its own with the lowest priority: no thread of the front end or of a subserver waits for it. It ends with its
parent. `solve` is the caller's side.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys

import msgspec

from tokenrouter.throughput.spec import Spec, SpecError
from tokenrouter.throughput.table import Table, solve_table

NICE = 19
PR_SET_PDEATHSIG = 1


async def solve(spec: Spec) -> Table | None:
    """Return the table of a specification from a process of its own; None, where it has no steady state."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "tokenrouter.runtime.resolve"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        out, _ = await process.communicate(msgspec.json.encode(spec))
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        return None
    return msgspec.json.decode(out, type=Table)


def solve_here(spec: Spec) -> Table | None:
    """Return the table of a specification; None where it has no steady state."""
    try:
        return solve_table(spec, cached=False)
    except SpecError:
        return None


def main() -> int:
    """Read, solve, write; returns the exit status."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICE)
    table = solve_here(msgspec.json.decode(sys.stdin.buffer.read(), type=Spec))
    if table is None:
        return 1
    sys.stdout.buffer.write(msgspec.json.encode(table))
    return 0


if __name__ == "__main__":
    sys.exit(main())
