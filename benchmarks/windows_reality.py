"""Predicted against measured throughput of the demo pair, by hand-off probability, active requests and window.

    python benchmarks/windows_reality.py [--quick] [-o windows_reality.json] [--markdown table.md]

Small writes and hands over by chance: with probability p its candidate is dropped and large writes the token. First the step
times L_m(b) are measured on this machine as `trc profile` does it, alone and while the other model is busy; from them
the throughput model predicts tokens/s for every N and every window of large. Then a server of two processes runs the
same under N clients that ask again at once, and tokens are counted. Every window is measured in each of several
rounds, in another order each time, so that a machine that slows down on the way does not favour one. `max_wait` is
out of the way. Needs the demo pair and a machine with nothing else to do: the load at the start is written down.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from tokenrouter.compiler.compile import compile_policy
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan import structs as s
from tokenrouter.profile.prompts import shipped
from tokenrouter.profile.structs import Profile
from tokenrouter.profile.system import busy_sets, by_size, quantum
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.messages import Sampling
from tokenrouter.server.profiling import Wanted, profile
from tokenrouter.throughput.choose import solve
from tokenrouter.throughput.spec import BusyRates, Spec
from tokenrouter.throughput.system import build

POLICY = """route 1

model small { use "demo:small"  cost 1 }
model large { use "demo:large"  cost 2.9 }

param p: prob = 10% in [0%, 100%]

policy by_chance {
  start small
  at small {
    when chance < p -> retry large
    otherwise       -> commit
  }
  at large {
    otherwise -> commit then small
  }
}
"""
PROBABILITIES = (0.05, 0.1, 0.35)
COUNTS = (1, 2, 4, 8, 16)
NO_WAIT_MS = 60_000.0  # so that only windows decide


@dataclass
class Cell:
    """One hand-off probability, number of active requests and window of large; tokens/s."""

    p: float
    n: int
    window: int
    predicted: float
    measured: list[float] = field(default_factory=list)
    moved: float = 0.0  # share of small's steps that went to large, as counted

    @property
    def mean(self) -> float:
        """The mean over the rounds."""
        return statistics.fmean(self.measured)


def main() -> None:
    """Profile, predict, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a small part of it, to see it work")
    parser.add_argument("--seconds", type=float, metavar="S", help="of one measurement (4)")
    parser.add_argument("--rounds", type=int, metavar="R", help="measurements of a window (3)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="write JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table for docs")
    args = parser.parse_args()
    seconds = args.seconds or (1.5 if args.quick else 4.0)
    rounds = args.rounds or (1 if args.quick else 3)
    plan = compiled(max(COUNTS))
    wanted = Wanted(
        prompts=shipped()[:2],
        name="shipped",
        chat=True,
        max_tokens=8,
        temperature=1.0,
        quick=args.quick,
        dtype=None,
        threads=None,
    )
    load = os.getloadavg()[0]
    found = profile(plan, Path(), wanted, say)
    cells = [
        Cell(p, n, window, predicted(found, p, n, window))
        for p in (PROBABILITIES[1:2] if args.quick else PROBABILITIES)
        for n in ((1, 4) if args.quick else COUNTS)
        for window in range(1, n + 1)
    ]
    say(f"{len(cells)} windows, {rounds} rounds of {seconds:g} s each")
    asyncio.run(measure(plan, cells, rounds, seconds))
    print(table(cells, found, load))
    if args.markdown is not None:
        args.markdown.write_text(table(cells, found, load) + "\n", encoding="utf-8")
    if args.output is not None:
        record = {"load": load, "profile": found, "cells": [asdict(cell) for cell in cells]}
        args.output.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
        say(f"wrote {args.output}")


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


def compiled(max_active: int) -> s.Plan:
    """Return the plan of the policy, with windows of 1 that only the benchmark changes."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "by_chance.route"
        path.write_text(POLICY, encoding="utf-8")
        plan = compile_policy(path)
    windows = s.Windows(
        max_active=max_active,
        table=[[1] * max_active for _ in plan.models],
        max_wait_ms=NO_WAIT_MS,
        objective="throughput",
        source="none",
    )
    return msgspec.structs.replace(plan, windows=windows)


def predicted(found: Profile, p: float, n: int, window: int) -> float:
    """Return tokens/s of the throughput model."""
    times = [by_size(model, n) for model in found.models]
    spec = Spec(
        n=n,
        step_ms=list(times),
        p=[[1 - p, p], [1, 0]],
        c=[[1, 0], [1, 0]],
        delta_ms=quantum(times),
        busy=[BusyRates(models=busy.models, rates=busy.rates) for busy in busy_sets(found)],
    )
    return solve(build(spec), [1, window]).tokens_per_s


async def measure(plan: s.Plan, cells: list[Cell], rounds: int, seconds: float) -> None:
    """Add to every cell one measurement for each round."""
    tokenizer = TextTokenizer.of(plan, Path())
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}]) for text in shipped()
    ]
    client = Client(plan)
    await client.start(progress=say)
    began = time.monotonic()
    try:
        for at in range(rounds):
            # Clients stay while only the window changes, so that no prompt is read on the way.
            groups = sorted({(cell.p, cell.n) for cell in cells})
            random.Random(at).shuffle(groups)
            for number, (p, n) in enumerate(groups, 1):
                own = [cell for cell in cells if (cell.p, cell.n) == (p, n)]
                random.Random(at).shuffle(own)
                await group(client, own, prompts, seconds)
                say(
                    f"round {at + 1} of {rounds}, group {number} of {len(groups)}: p = {p:g}, N = {n}, "
                    f"{time.monotonic() - began:.0f} s"
                )
    finally:
        await client.close(0)


async def group(
    client: Client, cells: list[Cell], prompts: list[list[int]], seconds: float
) -> None:
    """Measure the windows of one number of clients and one probability."""
    counted = [0, 0]  # tokens, those of large
    seeds = iter(range(1, 1 << 30))

    async def ask(at: int) -> None:
        while True:
            sampling = Sampling(
                seed=next(seeds), temperature=1.0, top_k=50, max_tokens=300, ignore_eos=True
            )
            ticket = client.submit(prompts[at % len(prompts)], sampling, {"p": cells[0].p})
            try:
                async for token in ticket:
                    counted[0] += 1
                    counted[1] += token.model
            except asyncio.CancelledError:
                client.abort(ticket.request)
                raise

    tasks = [asyncio.create_task(ask(at)) for at in range(cells[0].n)]
    try:
        while counted[0] < 4 * len(tasks):  # prompts are read
            await asyncio.sleep(0.05)
        for cell in cells:
            client.adapter.put(list(rows(cell.window, client.plan.windows.max_active)))
            await asyncio.sleep(seconds / 4)
            before, began = list(counted), time.monotonic()
            await asyncio.sleep(seconds)
            tokens = counted[0] - before[0]
            cell.measured.append(tokens / (time.monotonic() - began))
            cell.moved = (counted[1] - before[1]) / max(1, tokens)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        while client.status().running:
            await asyncio.sleep(0.01)


def rows(window: int, max_active: int) -> Iterator[list[int]]:
    """Yield a table with one window for large, as far as it is feasible."""
    yield [1] * max_active
    yield [min(window, n) for n in range(1, max_active + 1)]


def table(cells: list[Cell], found: Profile, load: float) -> str:
    """Return the comparison as a Markdown table and a few sums."""
    machine = found.machine
    lines = [
        f"{machine.processor}, {machine.cores} cores, {machine.threads} threads a model, load {load:.1f} at the start, "
        f"{found.created[:10]}.",
        "",
        "| p | N | best window predicted | best measured | lost | predicted / measured by window of large |",
        "|---|---|---|---|---|---|",
    ]
    losses, errors = [], []
    for p, n in sorted({(cell.p, cell.n) for cell in cells}):
        own = [cell for cell in cells if (cell.p, cell.n) == (p, n)]
        chosen = max(own, key=lambda cell: cell.predicted)
        best = max(own, key=lambda cell: cell.mean)
        loss = 1 - chosen.mean / best.mean
        losses.append(loss)
        errors += [cell.predicted / cell.mean - 1 for cell in own]
        pairs = ", ".join(f"{c.window}: {c.predicted:.0f} / {c.mean:.0f}" for c in own)
        lines.append(
            f"| {p:g} | {n} | {chosen.window} | {best.window} | {100 * loss:.1f} % | {pairs} |"
        )
    within = sum(abs(error) <= 0.1 for error in errors)
    lines += [
        "",
        f"Predictions within 10 %: {within} of {len(errors)}; mean error {100 * statistics.fmean(errors):+.1f} %, "
        f"worst {100 * max(errors, key=abs):+.1f} %. The predicted best window loses at most {100 * max(losses):.1f} %.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
