"""What long prompts do to those that write: a stream's gaps, and a short request's first token, beside 128 prompts of 7,000 tokens.

    python benchmarks/long_prompts.py [PLAN] [--prompts 128] [--tokens 7000] [--seconds 60] [-- SERVER OPTIONS]

One stream writes alone for a third of the time. Then one call brings all prompts; a third later a short request
comes. The stream's gaps are those between two events. Without PLAN, examples/demo.route is compiled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from contextlib import aclosing, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from tokenrouter.bench.figures import percentile
from tokenrouter.bench.http import Http
from tokenrouter.bench.servers import started

ROOT = Path(__file__).parents[1]
VOCABULARY = 1000  # ids are drawn below this


def main() -> int:
    """Serve, measure, and print three lines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path, nargs="?")
    parser.add_argument("--prompts", type=int, default=128, help="(%(default)s)")
    parser.add_argument("--tokens", type=int, default=7000, help="of each prompt (%(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="(%(default)g)")
    parser.add_argument("options", nargs="*", help="of `trc serve`, after `--`")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plan = args.plan or compiled(Path(directory))
        with started([("the server", plan)], args.options) as [(_, url)]:
            asyncio.run(measure(url, args))
    return 0


def compiled(directory: Path) -> Path:
    """Return the demo's plan."""
    plan = directory / "plan.json"
    command = [sys.executable, "-m", "tokenrouter.cli", "compile", ROOT / "examples/demo.route"]
    subprocess.run([*map(str, command), "-o", str(plan)], check=True)
    return plan


async def measure(url: str, args: argparse.Namespace) -> None:
    """Let the stream write alone, then beside the prompts, and the short request come in the middle of them."""
    http = Http(url)
    rng = random.Random(0)
    third = args.seconds / 3
    prompts = [ids(rng, args.tokens) for _ in range(args.prompts)]
    async with asyncio.TaskGroup() as group:
        stream = group.create_task(events(http, ids(rng, 16), 6000))
        await asyncio.sleep(third)
        begun = time.monotonic()
        body = {"prompt": prompts, "max_tokens": 4, "stream": True}
        long = group.create_task(ask(http, body))
        await asyncio.sleep(third)
        sent = time.monotonic()
        short = group.create_task(events(http, ids(rng, 48), 8))
        await asyncio.sleep(third)
        ended = time.monotonic()
        for task in (stream, long, short):
            task.cancel()
    arrived, first = stream.result(), short.result()
    await http.close()
    tell("alone", [at for at in arrived if at < begun])
    tell(
        f"beside {args.prompts} prompts of {args.tokens} tokens",
        [at for at in arrived if begun <= at < ended],
    )
    when = (
        f"{first[0] - sent:.2f} s, whole after {first[-1] - sent:.2f} s"
        if first
        else f"not within {ended - sent:.0f} s"
    )
    print(f"short request ({len(first)} events): first event after {when}")


def ids(rng: random.Random, n: int) -> list[int]:
    """Return a prompt of `n` drawn ids."""
    return [rng.randrange(VOCABULARY) for _ in range(n)]


async def events(http: Http, prompt: list[int], most: int) -> list[float]:
    """Return when each event of a stream arrived, until its end or a cancellation."""
    body = {"prompt": prompt, "max_tokens": most, "temperature": 0.7, "seed": 1, "ignore_eos": True}
    arrived: list[float] = []
    with suppress(asyncio.CancelledError):
        async with aclosing(http.lines("/completions", {**body, "stream": True})) as lines:
            async for line in lines:
                if line.startswith(b"data: {") and json.loads(line[6:])["choices"]:
                    arrived.append(time.monotonic())
    return arrived


async def ask(http: Http, body: dict[str, Any]) -> None:
    """Send a request and read its answer to the end."""
    async with aclosing(http.lines("/completions", body)) as lines:
        async for _ in lines:
            pass


def tell(name: str, arrived: list[float]) -> None:
    """Print how long the gaps were."""
    gaps = sorted(after - before for before, after in pairwise(arrived))
    if not gaps:
        print(f"{name}: {len(arrived)} events, no gap to measure")
        return
    figures = ", ".join(f"p{p} {1000 * percentile(gaps, p):.0f}" for p in (50, 99))
    print(f"{name}: {len(arrived)} events, gaps in ms: {figures}, longest {1000 * gaps[-1]:.0f}")


if __name__ == "__main__":
    sys.exit(main())
