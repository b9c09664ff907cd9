"""What costly grammars do to those that write, and what many large ones leave in memory.

    python benchmarks/grammars.py [PLAN] [--seconds 40] [--schemas 30] [-- SERVER OPTIONS]

One stream writes, half of the time alone and half of it beside requests whose grammars are costly to compile and to follow,
each of them new to the server. Its gaps are those between two events. Then requests with large schemas, each another one,
are answered one after the other, and the resident memory of each process is told before, after each ten, and at the end.
Without PLAN, examples/demo.route is compiled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenrouter.bench.figures import percentile
from tokenrouter.bench.http import Http
from tokenrouter.bench.servers import started

ROOT = Path(__file__).parents[1]
AT_ONCE = 3  # requests with a costly grammar


def main() -> int:
    """Serve, measure, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path, nargs="?")
    parser.add_argument("--seconds", type=float, default=40.0, help="(%(default)g)")
    parser.add_argument("--schemas", type=int, default=30, help="(%(default)s)")
    parser.add_argument("options", nargs="*", help="of `trc serve`, after `--`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plan = args.plan or compiled(Path(directory))
        with started([("the server", plan)], args.options) as [(server, url)]:
            asyncio.run(measure(url, server.pid, args))
    return 0


def compiled(directory: Path) -> Path:
    """Return the demo's plan."""
    plan = directory / "plan.json"
    command = [sys.executable, "-m", "tokenrouter.cli", "compile", ROOT / "examples/demo.route"]
    subprocess.run([*map(str, command), "-o", str(plan)], check=True)
    return plan


async def measure(url: str, pid: int, args: argparse.Namespace) -> None:
    """Let the stream write alone, then beside costly grammars; then fill the memory."""
    http = Http(url)
    arrived: list[float] = []
    async with asyncio.TaskGroup() as group:
        stream = group.create_task(note(http, arrived))
        await asyncio.sleep(args.seconds / 2)
        begun = time.monotonic()
        counts = {"answered": 0, "refused": 0}
        others = [
            group.create_task(ask_on(http, counts, random.Random(at))) for at in range(AT_ONCE)
        ]
        await asyncio.sleep(args.seconds / 2)
        for task in (stream, *others):
            task.cancel()
    tell("alone", [at for at in arrived if at < begun])
    tell(f"beside {AT_ONCE} costly grammars at a time", [at for at in arrived if at >= begun])
    print(f"grammars: {counts['answered']} answered, {counts['refused']} refused as too costly")
    await fill(http, pid, args.schemas)
    await http.close()


async def note(http: Http, arrived: list[float]) -> None:
    """Note when each event of an endless stream comes."""
    body = {
        "prompt": "The sea",
        "max_tokens": 6000,
        "ignore_eos": True,
        "temperature": 1,
        "seed": 1,
    }
    with suppress(asyncio.CancelledError):
        async with aclosing(events(http, body)) as lines:
            async for _ in lines:
                arrived.append(time.monotonic())


async def events(http: Http, body: dict[str, Any]) -> AsyncIterator[str]:
    """Yield the events of a stream."""
    async with aclosing(http.lines("/completions", {**body, "stream": True})) as lines:
        async for line in lines:
            if line:
                yield line


async def ask_on(http: Http, counts: dict[str, int], rng: random.Random) -> None:
    """Ask for one costly grammar after the other."""
    with suppress(asyncio.CancelledError):
        while True:
            status, _ = await http.json("/completions", {**costly(rng), "temperature": 1})
            counts["answered" if status == 200 else "refused"] += 1


def costly(rng: random.Random) -> dict[str, Any]:
    """Return a grammar that takes long to compile or to follow, and that nobody has asked for before."""
    n = rng.randrange(1000)
    kind = rng.randrange(3)
    if kind == 0:  # its first mask
        return {"regex": f"a{{{900_000 - n}}}", "prompt": "x", "max_tokens": 4}
    if kind == 1:  # each of its masks
        return {"regex": f"a{{{60_000 - n}}}", "prompt": "x", "max_tokens": 8}
    words = [f"t{i}: /[a-z]{{{i % 40 + 1},{i % 50 + 60}}}/" for i in range(1200 + n % 100)]
    start = "start: (" + " | ".join(f"t{i}" for i in range(len(words))) + ")+"
    return {"grammar": "\n".join([start, *words]), "prompt": "x", "max_tokens": 8}


def schema(at: int) -> dict[str, Any]:
    """Return a large schema that no other one equals."""
    names = [f"field_{at}_{i}" for i in range(120)]
    properties = {name: {"type": "string", "maxLength": 200 + i} for i, name in enumerate(names)}
    return {"type": "object", "properties": properties, "required": names}


async def fill(http: Http, pid: int, n: int) -> None:
    """Ask for answers under `n` schemas, and tell the memory on the way."""
    await remember("before", pid)
    for at in range(n):
        form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema(at)}}
        messages = [{"role": "user", "content": "Write JSON."}]
        body = {"messages": messages, "max_tokens": 48, "temperature": 1, "response_format": form}
        status, reply = await http.json("/chat/completions", body)
        assert status == 200, reply
        if at % 10 == 9 or at == n - 1:
            await remember(f"after {at + 1} schemas of {len(json.dumps(schema(at)))} bytes", pid)


async def remember(when: str, pid: int) -> None:
    """Print the resident memory of the server's processes."""
    await asyncio.sleep(0.5)
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    sizes = [resident(int(each)) for each in (pid, *children)]
    print(
        f"{when}: " + ", ".join(f"{size / 2**20:.0f}" for size in sizes if size > 10 << 20) + " MiB"
    )


def resident(pid: int) -> int:
    """Return the bytes of a process that are in memory."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def tell(name: str, arrived: list[float]) -> None:
    """Print the gaps of a stream."""
    gaps = sorted(1e3 * (b - a) for a, b in pairwise(arrived))
    print(
        f"{name}: {len(arrived)} events, gaps p50 {percentile(gaps, 50):.0f} ms, "
        f"p99 {percentile(gaps, 99):.0f} ms, longest {gaps[-1]:.0f} ms"
    )


if __name__ == "__main__":
    sys.exit(main())
