"""Predicted against measured throughput of the demo pair, by hand-off probability, active requests and window.

    python benchmarks/windows_reality.py -o windows_reality.json [--quick] [--p 0.1 ...] [--clients 2 ...] [--markdown FILE]

Small writes and hands over by chance: with probability p its candidate is dropped and large writes the token. For each p
the step times L_m(b) are measured on this machine by the code of `trc profile`, alone and while the other model is busy, with
as many unread tokens on each return to large as this p leaves; from them the throughput model predicts tokens/s for every N
and every window of large. Then a server of two processes runs the same under N clients that ask again at once, and tokens are
counted. Every window is measured in each of several rounds, in another order each time, so that a machine that slows down on
the way does not favour one. `max_wait` is out of the way.

What is measured is written down at once: the same command goes on where it was stopped, with other cells it adds them, and
where nothing is left it only prints the table. Needs the demo pair and a machine with nothing else to do: what was measured
while others worked is thrown away and measured again.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import floor, log1p
from pathlib import Path

import msgspec
from others import Others

from tokenrouter.compiler.compile import compile_policy
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan import structs as s
from tokenrouter.profile.prompts import shipped
from tokenrouter.profile.structs import Machine, ModelTimes
from tokenrouter.profile.system import busy_sets, by_size, quantum
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.timing import Effort, step_times
from tokenrouter.server.alone import share_of_cores
from tokenrouter.server.profiling import machine
from tokenrouter.throughput.choose import solve
from tokenrouter.throughput.spec import BusyRates, Solution, Spec
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
MOST_ACTIVE = max(COUNTS)
NO_WAIT_MS = 60_000.0  # so that only windows decide
EFFORT = Effort(2**0.5, 16, 32, 1500.0, (192,))  # about the context of a request half-way
PATIENCE_S = 180.0  # for the first tokens of a group
SAMPLING = Sampling(max_tokens=300, ignore_eos=True)  # of a request
DRAWS = 64  # of the geometric law, by its quantiles
QUIET = 0.1  # cores that other work may take; what was measured beside more is measured again
SOME = 0.3  # likewise beside step times, which are taken over many steps
TRIES = 4  # of one measurement


class Cell(msgspec.Struct, kw_only=True):
    """One hand-off probability, number of active requests and window of large, as measured."""

    p: float
    n: int
    window: int
    tokens_per_s: list[float] = []  # by round
    moved: list[float] = []  # share of the tokens that large wrote
    batches: list[float] = []  # mean size of large's batches
    others: list[float] = []  # cores that other work took meanwhile

    @property
    def name(self) -> tuple[float, int, int]:
        """What tells it from others."""
        return self.p, self.n, self.window

    @property
    def handed_over(self) -> float:
        """Share of small's candidates that were dropped, as the draws had it: each left its token to large."""
        return min(0.99, max(0.001, statistics.fmean(self.moved)))

    @property
    def mean(self) -> float:
        """Tokens/s over the rounds."""
        return statistics.fmean(self.tokens_per_s)


class Record(msgspec.Struct, kw_only=True):
    """All that was measured so far."""

    program_hash: str
    machine: Machine
    seconds: float  # of one measurement
    times: dict[str, list[ModelTimes]] = {}  # by p
    cells: list[Cell] = []

    def cell(self, p: float, n: int, window: int) -> Cell:
        """Return a cell, which may be new."""
        for cell in self.cells:
            if (cell.p, cell.n, cell.window) == (p, n, window):
                return cell
        self.cells.append(Cell(p=p, n=n, window=window))
        return self.cells[-1]


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
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table for docs")
    args = parser.parse_args()
    if not all(0 < p < 1 for p in args.p) or not all(1 <= n <= MOST_ACTIVE for n in args.clients):
        parser.error(f"--p lies between 0 and 1, --clients between 1 and {MOST_ACTIVE}")
    probabilities, counts = ((0.1,), (1, 4)) if args.quick else (args.p, args.clients)
    seconds = args.seconds or (1.5 if args.quick else 4.0)
    rounds = args.rounds or (1 if args.quick else 3)
    plan = compiled()
    record = started(args.output, plan, seconds)

    def save() -> None:
        if args.output is not None:
            kept = args.output.with_suffix(".new")
            kept.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
            kept.replace(args.output)

    for at, p in enumerate(probabilities, 1):
        if not covered(record.times.get(f"{p:g}", []), max(counts)):
            say(f"step times for p = {p:g}, {at} of {len(probabilities)}")
            record.times[f"{p:g}"] = timed(plan, p, max(counts))
            save()
    cells = [record.cell(p, n, b) for p in probabilities for n in counts for b in range(1, n + 1)]
    asyncio.run(measure(plan, cells, rounds, seconds, save))
    text = table(record)
    print(text)
    if args.markdown is not None:
        args.markdown.write_text(text + "\n", encoding="utf-8")


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


def started(path: Path | None, plan: s.Plan, seconds: float) -> Record:
    """Return what was measured before, where it was the same; an empty record otherwise."""
    here = machine(share_of_cores(len(plan.models)), os.getloadavg()[0])
    fresh = Record(program_hash=plan.program_hash, machine=here, seconds=seconds)
    if path is None or not path.exists():
        return fresh
    old = msgspec.json.decode(path.read_bytes(), type=Record)
    same = (old.program_hash, old.seconds, old.machine.processor, old.machine.torch)
    if same != (plan.program_hash, seconds, here.processor, here.torch):
        raise SystemExit(f"{path}: measured otherwise or elsewhere; name another file")
    say(
        f"{path}: goes on, {sum(len(cell.tokens_per_s) for cell in old.cells)} measurements are there"
    )
    return old


def covered(models: list[ModelTimes], n: int) -> bool:
    """Return whether batches of up to n requests were timed."""
    return bool(models) and all(max(step.batch for step in m.steps) >= n for m in models)


def timed(plan: s.Plan, p: float, n: int) -> list[ModelTimes]:
    """Return the step times of batches up to n. A request comes back to large with a geometric number of small's tokens, from 0 on, and to small with one."""
    settings = Settings(threads=share_of_cores(len(plan.models)), windows="off")
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
    plan: s.Plan, cells: list[Cell], rounds: int, seconds: float, save: Callable[[], None]
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
    client = Client(plan)
    await client.start(progress=say)
    began, done = time.monotonic(), 0

    def told(cell: Cell) -> None:
        nonlocal done
        done += 1
        save()
        left = (time.monotonic() - began) / done * (missing - done)
        say(
            f"p = {cell.p:g}, N = {cell.n}, window {cell.window}: {cell.tokens_per_s[-1]:.1f} tokens/s; "
            f"{done} of {missing}, about {left:.0f} s left"
        )

    try:
        for at in range(rounds):
            # Clients stay while only the window changes, so that no prompt is read on the way.
            groups = sorted({(cell.p, cell.n) for cell in cells})
            random.Random(at).shuffle(groups)
            for p, n in groups:
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
        self.tasks = [asyncio.create_task(self.ask(at)) for at in range(n)]

    async def ask(self, at: int) -> None:
        """Ask for ever."""
        while True:
            sampling = msgspec.structs.replace(SAMPLING, seed=self.seeds.getrandbits(63))
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
            client.adapter.put(list(rows(cell.window)))
            await clients.sleep(max(0.5, seconds / 4))
            others = Others()
            before, sizes, began = list(clients.counted), batches(client), time.monotonic()
            await clients.sleep(seconds)
            passed = time.monotonic() - began
            if others.cores() > QUIET:
                say(f"{others.cores():.2f} cores worked for others; once more, later")
                continue
            small, large = (now - then for now, then in zip(clients.counted, before, strict=True))
            ran, through = (b - a for b, a in zip(batches(client), sizes, strict=True))
            cell.tokens_per_s.append(round((small + large) / passed, 2))
            cell.moved.append(round(large / max(1, small + large), 4))
            cell.batches.append(round(through / ran, 3) if ran else 0.0)
            cell.others.append(round(others.cores(), 3))
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


def rows(window: int) -> Iterator[list[int]]:
    """Yield a table with one window for large, as far as it is feasible."""
    yield [1] * MOST_ACTIVE
    yield [min(window, n) for n in range(1, MOST_ACTIVE + 1)]


def predicted(models: list[ModelTimes], cell: Cell, p: float) -> Solution:
    """Return what the throughput model says of a cell where small hands over with this probability."""
    times = [by_size(model, cell.n) for model in models]
    spec = Spec(
        n=cell.n,
        step_ms=list(times),
        p=[[1 - p, p], [1, 0]],
        c=[[1, 0], [1, 0]],
        delta_ms=quantum(times),
        busy=[BusyRates(models=busy.models, rates=busy.rates) for busy in busy_sets(models)],
    )
    return solve(build(spec), [1, cell.window])


def table(record: Record) -> str:
    """Return the comparison as a Markdown table and a few sums."""
    where = record.machine
    done = [cell for cell in record.cells if cell.tokens_per_s]
    speed = {cell.name: predicted(record.times[f"{cell.p:g}"], cell, cell.p) for cell in done}
    lines = [
        f"{where.processor}, {where.cores} cores, {where.threads} threads a model, load {where.load:.1f} before.",
        "",
        "| p | N | window of large | predicted tokens/s | measured | off | handed over | off, for that share | large's batch predicted | measured |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    errors, drawn, losses = [], [], {}
    for p, n in sorted({(cell.p, cell.n) for cell in done}):
        own = sorted((c for c in done if (c.p, c.n) == (p, n)), key=lambda c: c.window)
        chosen = max(own, key=lambda c: speed[c.name].tokens_per_s)
        best = max(own, key=lambda c: c.mean)
        losses[p, n] = 1 - chosen.mean / best.mean
        for cell in own:
            told, share = speed[cell.name], cell.handed_over
            fitting = predicted(record.times[f"{p:g}"], cell, share)
            errors.append(told.tokens_per_s / cell.mean - 1)
            drawn.append(fitting.tokens_per_s / cell.mean - 1)
            names = "".join(
                f" ({name})" for name, at in (("chosen", chosen), ("best", best)) if at is cell
            )
            lines.append(
                f"| {p:g} | {n} | {cell.window}{names} | {told.tokens_per_s:.1f} | {cell.mean:.1f} | {100 * errors[-1]:+.1f} % "
                f"| {share:.3f} | {100 * drawn[-1]:+.1f} % "
                f"| {told.per_model[1].mean_batch:.2f} | {statistics.fmean(cell.batches):.2f} |"
            )
    lines += [
        "",
        f"{len(record.cells) - len(done)} windows of the record are not measured. Predictions for p: {_told(errors)}. "
        f"For the share that was handed over: {_told(drawn)}. "
        f"The window that the model chooses loses at most {100 * max(losses.values()):.1f} % against the best measured.",
    ]
    return "\n".join(lines)


def _told(errors: list[float]) -> str:
    within = sum(abs(error) <= 0.1 for error in errors)
    return (
        f"{within} of {len(errors)} within 10 %, mean {100 * statistics.fmean(errors):+.1f} %, "
        f"standard deviation {100 * statistics.pstdev(errors):.1f} %, worst {100 * max(errors, key=abs):+.1f} %"
    )


if __name__ == "__main__":
    main()
