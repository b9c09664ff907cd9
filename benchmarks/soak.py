"""Load for minutes on a served plan: memory must stay flat, and nothing may be left at the end.

    python benchmarks/soak.py [PLAN] [--minutes 10]

Clients come and go, some leave in the middle of a stream. Every process of the server is sampled; the median resident
memory of the last third may exceed that of the middle third by 3 % and 8 MiB at most. Without PLAN, examples/demo.route is compiled.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing
from pathlib import Path

from tokenrouter.bench.http import Http
from tokenrouter.bench.prompts import Lengths, synthetic
from tokenrouter.bench.sample import Ask, Job
from tokenrouter.bench.servers import started
from tokenrouter.bench.stream import Stream

ROOT = Path(__file__).parents[1]
CLIENTS = 8
SAMPLE_S = 1.0
SHARE, BYTES = 0.03, 8 << 20


def main() -> int:
    """Run the soak and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path, nargs="?")
    parser.add_argument("--minutes", type=float, default=10.0, help="(%(default)g)")
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plan = args.plan or compiled(Path(directory))
        with started([("the server", plan)], []) as [(server, url)]:
            return asyncio.run(soak(url, server.pid, args.minutes * 60, args.seed))


def compiled(directory: Path) -> Path:
    """Return the demo's plan."""
    plan = directory / "plan.json"
    command = [
        sys.executable,
        "-m",
        "tokenrouter.cli",
        "compile",
        str(ROOT / "examples/demo.route"),
    ]
    subprocess.run([*command, "-o", str(plan)], check=True)
    return plan


async def soak(url: str, pid: int, seconds: float, seed: int) -> int:
    """Keep clients coming until the time is over, and judge."""
    http = Http(url)
    end = time.monotonic() + seconds
    counts = {"answered": 0, "left": 0, "failed": 0}
    memory: dict[int, list[int]] = {}
    names = {each: command(each) for each in family(pid)}
    async with asyncio.TaskGroup() as group:
        for at in range(CLIENTS):
            group.create_task(client(http, end, random.Random(seed * 1000 + at), counts))
        group.create_task(watch(pid, end, memory, counts))
    left = await settled(http)
    await http.close()
    print(f"{counts['answered']} answered, {counts['left']} left, {counts['failed']} failed")
    grown = [judge(names.get(each, str(each)), values) for each, values in memory.items()]
    if left:
        print(f"{left} requests are left")
    return 1 if left or counts["failed"] or not memory or any(grown) else 0


async def client(http: Http, end: float, rng: random.Random, counts: dict[str, int]) -> None:
    """Send one request after the other; leave one in four."""
    ask = Ask()
    stream = Stream(http, ask)
    while time.monotonic() < end:
        lengths = Lengths(prompt=rng.randint(8, 256), output=rng.randint(1, 64))
        [job] = await synthetic(http, 1, lengths, rng.randrange(1 << 30))
        if rng.random() < 0.25:
            await leave(http, ask, job, rng)
            counts["left"] += 1
            continue
        sample = await stream(job)
        counts["failed" if sample.error else "answered"] += 1
        if sample.error:
            print(sample.error, file=sys.stderr)


async def leave(http: Http, ask: Ask, job: Job, rng: random.Random) -> None:
    """Close a stream after some lines."""
    left = rng.randint(0, 20)
    async with aclosing(http.lines("/completions", {**ask.fields(job), "stream": True})) as lines:
        async for _ in lines:
            left -= 1
            if left < 0:
                return


async def watch(pid: int, end: float, memory: dict[int, list[int]], counts: dict[str, int]) -> None:
    """Sample the resident memory of a process and its children."""
    told = time.monotonic()
    while time.monotonic() < end:
        for each in family(pid):
            memory.setdefault(each, []).append(resident(each))
        if time.monotonic() - told > 15:
            told = time.monotonic()
            total = sum(values[-1] for values in memory.values()) >> 20
            print(f"{end - told:.0f} s to go, {total} MiB, {counts}", file=sys.stderr)
        await asyncio.sleep(SAMPLE_S)


def family(pid: int) -> list[int]:
    """Return a process and its children."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [pid, *map(int, text.split())]


def command(pid: int) -> str:
    """Return how a process was started, in short."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    return " ".join(word for word in words[2:] if word)[-48:]


def resident(pid: int) -> int:
    """Return the bytes of a process that are in memory; 0 where it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except FileNotFoundError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def judge(name: str, values: list[int]) -> bool:
    """Print how a process's memory went, and return whether it grew."""
    third = max(1, len(values) // 3)
    middle, last = statistics.median(values[third : 2 * third]), statistics.median(values[-third:])
    grew = last > middle * (1 + SHARE) + BYTES
    verdict = "grew" if grew else "flat"
    print(f"{name:48}  {middle / 2**20:8.1f} -> {last / 2**20:8.1f} MiB  {verdict}")
    return grew


async def settled(http: Http) -> int:
    """Return how many requests the models still hold after a while."""
    running = -1
    for _ in range(100):
        _, ready = await http.json("/ready", base=http.root)
        running = ready["running"] + ready["waiting"]
        if running == 0:
            return 0
        await asyncio.sleep(0.1)
    return running


if __name__ == "__main__":
    sys.exit(main())
