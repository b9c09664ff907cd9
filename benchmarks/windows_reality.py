"""Predicted against measured throughput of the demo pair, by hand-off probability, active requests and window.

    python benchmarks/windows_reality.py -o windows_reality.json [--quick] [--p 0.1 ...] [--clients 2 ...] [--markdown FILE]

Small writes and hands over by chance: with probability p its candidate is dropped and large writes the token. For each p
the step times L_m(b) are measured on this machine by the code of `trc profile`, alone and beside or after the other model's, with
as many unread tokens on each return to large as this p leaves; from them the throughput model predicts tokens/s for every N
and every window of large, small's being 1, and the best pair of windows. Then a server of two processes runs the same under N clients that ask again at once, and tokens are
counted. Every window is measured in each of several rounds, in another order each time, so that a machine that slows down on
the way does not favour one. `max_wait` is out of the way. Models step in turn where they share cores, as in the server; with
`--threads 1` each keeps to its own, and under `taskset` they fight for fewer.

What is measured is written down at once: the same command goes on where it was stopped, with other cells it adds them, and
where nothing is left it only prints the table. Needs the demo pair and a machine with nothing else to do: what was measured
while others worked is thrown away and measured again.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import floor, log1p
from pathlib import Path

import msgspec
from others import Others
from windows_table import Cell, Record, best, groups, short_table, table

from tokenrouter.compiler.compile import compile_policy
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan import structs as s
from tokenrouter.profile.prompts import shipped
from tokenrouter.profile.structs import ModelTimes
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.timing import Effort, step_times
from tokenrouter.runtime.turns import in_turn, share_of_cores
from tokenrouter.server.profiling import machine

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
MOST_ACTIVE = max(COUNTS)
TIMING = 3  # goes up when step times are measured otherwise; older ones are then measured anew
NO_WAIT_MS = 60_000.0  # so that only windows decide
EFFORT = Effort(2**0.5, 16, 32, 1000.0, (192,), ())  # about the context of a request half-way
PATIENCE_S = 180.0  # for the first tokens of a group
SAMPLING = Sampling(max_tokens=300, ignore_eos=True)  # of a request
DRAWS = 64  # of the geometric law, by its quantiles
QUIET = 0.1  # cores that other work may take; what was measured beside more is measured again
SOME = 0.3  # likewise beside step times, which are taken over many steps
TRIES = 4  # of one measurement


def main() -> None:
    """Time, measure, predict, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the record, gone on with"
    )
    parser.add_argument("--p", type=float, nargs="+", default=PROBABILITIES, metavar="P")
    parser.add_argument("--clients", type=int, nargs="+", default=COUNTS, metavar="N")
    parser.add_argument(
        "--quick", action="store_true", help="p = 0.1, 1 and 4 clients, one short round"
    )
    parser.add_argument("--seconds", type=float, metavar="S", help="of one measurement (4)")
    parser.add_argument("--rounds", type=int, metavar="R", help="measurements of a window (3)")
    parser.add_argument(
        "--threads", type=int, metavar="T", help="of each model (its share of the cores)"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table for docs")
    args = parser.parse_args()
    if not all(0 < p < 1 for p in args.p) or not all(1 <= n <= MOST_ACTIVE for n in args.clients):
        parser.error(f"--p lies between 0 and 1, --clients between 1 and {MOST_ACTIVE}")
    probabilities, counts = ((0.1,), (1, 4)) if args.quick else (args.p, args.clients)
    seconds = args.seconds or (1.5 if args.quick else 4.0)
    rounds = args.rounds or (1 if args.quick else 3)
    plan = compiled()
    threads = args.threads or share_of_cores(len(plan.models))
    record = started(args.output, plan, seconds, threads)

    def save() -> None:
        if args.output is not None:
            kept = args.output.with_suffix(".new")
            kept.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
            kept.replace(args.output)

    for at, p in enumerate(probabilities, 1):
        if not covered(record.times.get(f"{p:g}", []), max(counts)):
            say(f"step times for p = {p:g}, {at} of {len(probabilities)}")
            record.times[f"{p:g}"] = timed(plan, p, max(counts), threads)
            save()
    cells = []
    for p in probabilities:
        for n in counts:
            cells += [record.cell(p, n, b) for b in range(1, n + 1)]
            small, large = best(record.times[f"{p:g}"], n, p)
            if small > 1:  # what a compiled plan would have
                cells.append(record.cell(p, n, large, small))
    asyncio.run(measure(plan, cells, rounds, seconds, threads, save))
    say("predicting")
    done = groups(record)
    print(table(record.machine, done))
    if args.markdown is not None:
        args.markdown.write_text(short_table(done) + "\n", encoding="utf-8")


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


def compiled() -> s.Plan:
    """Return the plan of the policy, with windows of 1 that only the benchmark changes."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "by_chance.route"
        path.write_text(POLICY, encoding="utf-8")
        plan = compile_policy(path)
    windows = s.Windows(
        max_active=MOST_ACTIVE,
        table=[[1] * MOST_ACTIVE for _ in plan.models],
        max_wait_ms=NO_WAIT_MS,
        objective="throughput",
        source="none",
    )
    return msgspec.structs.replace(plan, windows=windows)


def started(path: Path | None, plan: s.Plan, seconds: float, threads: int) -> Record:
    """Return what was measured before, where it was the same; an empty record otherwise."""
    turns = in_turn(plan, Settings(threads=threads))
    here = machine(threads, os.getloadavg()[0], in_turn=turns)
    fresh = Record(program_hash=plan.program_hash, machine=here, seconds=seconds, timing=TIMING)
    if path is None or not path.exists():
        return fresh
    old = msgspec.json.decode(path.read_bytes(), type=Record)
    now = msgspec.structs.replace(here, load=old.machine.load)
    if (old.program_hash, old.seconds, old.machine) != (plan.program_hash, seconds, now):
        raise SystemExit(f"{path}: measured otherwise or elsewhere; name another file")
    if old.timing != TIMING:
        old.timing, old.times = TIMING, {}
    say(
        f"{path}: goes on, {sum(len(cell.tokens_per_s) for cell in old.cells)} measurements are there"
    )
    return old


def covered(models: list[ModelTimes], n: int) -> bool:
    """Return whether batches of up to n requests were timed."""
    return bool(models) and all(max(step.batch for step in m.steps) >= n for m in models)


def timed(plan: s.Plan, p: float, n: int, threads: int) -> list[ModelTimes]:
    """Return the step times of batches up to n. A request comes back to large with a geometric number of small's tokens, from 0 on, and to small with one."""
    settings = Settings(threads=threads, windows="off")
    windows = msgspec.structs.replace(
        plan.windows, max_active=n, table=[[1] * n for _ in plan.models]
    )
    params = [msgspec.structs.replace(param, value=p) for param in plan.params]
    plan = msgspec.structs.replace(plan, windows=windows, params=params)
    runs = [floor(log1p(-(at + 0.5) / DRAWS) / log1p(-p)) for at in range(DRAWS)]
    for _ in range(TRIES):
        others = Others()
        times = step_times(plan, settings, EFFORT, [[1], runs], SAMPLING, say)
        if others.cores() <= SOME:
            return times
        say(f"{others.cores():.2f} cores worked for others; once more")
    raise SystemExit("other work runs all the time; these step times would say nothing")


async def measure(
    plan: s.Plan,
    cells: list[Cell],
    rounds: int,
    seconds: float,
    threads: int,
    save: Callable[[], None],
) -> None:
    """Add what is missing up to so many rounds."""
    missing = sum(max(0, rounds - len(cell.tokens_per_s)) for cell in cells)
    if not missing:
        return
    say(f"{len(cells)} windows; {missing} measurements of {seconds:g} s are missing")
    tokenizer = TextTokenizer.of(plan, Path())
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": text}]) for text in shipped()
    ]
    client = Client(plan, threads=threads)
    await client.start(progress=say)
    began, done = time.monotonic(), 0

    def told(cell: Cell) -> None:
        nonlocal done
        done += 1
        save()
        left = (time.monotonic() - began) / done * (missing - done)
        say(
            f"p = {cell.p:g}, N = {cell.n}, window {cell.label}: {cell.tokens_per_s[-1]:.1f} tokens/s; "
            f"{done} of {missing}, about {left:.0f} s left"
        )

    try:
        for at in range(rounds):
            # Clients stay while only the window changes, so that no prompt is read on the way.
            asked = sorted({(cell.p, cell.n) for cell in cells})
            random.Random(at).shuffle(asked)
            for p, n in asked:
                own = [c for c in cells if (c.p, c.n) == (p, n) and len(c.tokens_per_s) == at]
                random.Random(at).shuffle(own)
                if own:
                    await group(client, own, prompts, seconds, f"{p:g} {n} {at}", told)
    finally:
        await client.close(0)


class Clients:
    """So many clients that ask again at once, and what they are told."""

    def __init__(
        self, client: Client, p: float, n: int, prompts: list[list[int]], luck: str
    ) -> None:
        self.client, self.p = client, p
        self.prompts = prompts
        self.counted = [0, 0]  # tokens, by model
        self.seeds = random.Random(luck)
        # Their first requests are of all lengths: in lockstep all contexts would be short in one measurement and long in the next.
        first = [SAMPLING.max_tokens * (2 * at + 1) // (2 * n) for at in range(n)]
        self.tasks = [asyncio.create_task(self.ask(at, first[at])) for at in range(n)]

    async def ask(self, at: int, tokens: int) -> None:
        """Ask for ever, for so many tokens at first."""
        while True:
            sampling = msgspec.structs.replace(
                SAMPLING, max_tokens=tokens, seed=self.seeds.getrandbits(63)
            )
            tokens = SAMPLING.max_tokens
            prompt = self.prompts[at % len(self.prompts)]
            ticket = self.client.submit(prompt, sampling, {"p": self.p})
            try:
                async for token in ticket:
                    self.counted[token.model] += 1
            except asyncio.CancelledError:
                self.client.abort(ticket.request)
                raise

    async def sleep(self, seconds: float) -> None:
        """Sleep, and raise what went wrong with a client."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            ended, _ = await asyncio.wait(self.tasks, timeout=min(left, 1.0))
            for task in ended:
                task.result()

    async def started(self) -> None:
        """Wait until the prompts are read."""
        latest = time.monotonic() + PATIENCE_S
        while sum(self.counted) < 4 * len(self.tasks):
            if time.monotonic() > latest:
                raise SystemExit(f"no tokens within {PATIENCE_S:g} s; the machine is too busy")
            await self.sleep(0.05)

    async def close(self) -> None:
        """Give up all requests."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                while self.client.status().running:
                    await asyncio.sleep(0.01)


async def group(
    client: Client,
    cells: Sequence[Cell],
    prompts: list[list[int]],
    seconds: float,
    luck: str,
    told: Callable[[Cell], None],
) -> None:
    """Measure the windows of one number of clients and one probability; each cell is told when it is measured."""
    clients = Clients(client, cells[0].p, cells[0].n, prompts, luck)
    try:
        await clients.started()
        cells_before = {cell.name: len(cell.tokens_per_s) for cell in cells}
        left = [cell for _ in range(TRIES) for cell in cells]
        for cell in left:
            if len(cell.tokens_per_s) > cells_before[cell.name]:
                continue
            client.adapter.put(list(rows(cell.small, cell.window)))
            await clients.sleep(max(0.5, seconds / 4))
            others = Others()
            before, sizes, ways = list(clients.counted), batches(client), decisions(client)
            began, worked = time.monotonic(), time.process_time()
            await clients.sleep(seconds)
            passed, worked = time.monotonic() - began, time.process_time() - worked
            if others.cores() > QUIET:
                say(f"{others.cores():.2f} cores worked for others; once more, later")
                continue
            small, large = (now - then for now, then in zip(clients.counted, before, strict=True))
            ran, through = (b - a for b, a in zip(batches(client), sizes, strict=True))
            dropped, decided = (b - a for b, a in zip(decisions(client), ways, strict=True))
            cell.dropped += [None] * (len(cell.tokens_per_s) - len(cell.dropped))
            cell.dropped.append(round(dropped / decided, 4) if decided else None)
            cell.tokens_per_s.append(round((small + large) / passed, 2))
            cell.moved.append(round(large / max(1, small + large), 4))
            cell.batches.append(round(through / ran, 3) if ran else 0.0)
            cell.others.append(round(others.cores(), 3))
            cell.front.append(round(worked / passed, 4))
            told(cell)
    finally:
        await clients.close()


def batches(client: Client) -> tuple[int, int]:
    """Return large's batches since the start, and the requests in them."""
    tally = client.tallies.get(1)
    if tally is None:
        return 0, 0
    sizes = tally.batch_sizes
    return sum(sizes.values()), sum(size * n for size, n in sizes.items())


def decisions(client: Client) -> tuple[int, int]:
    """Return how many of small's candidates were dropped since the start, and how many there were."""
    tally = client.tallies.get(0)
    if tally is None:
        return 0, 0
    return sum(m.n for m in tally.moves if m.target == 1), sum(m.n for m in tally.moves)


def rows(small: int, large: int) -> Iterator[list[int]]:
    """Yield a table with these windows, as far as they are feasible."""
    second = [min(large, n) for n in range(1, MOST_ACTIVE + 1)]
    yield [min(small, n - b + 1) for n, b in enumerate(second, 1)]
    yield second


if __name__ == "__main__":
    main()
