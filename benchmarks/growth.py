"""What a token costs against the length of the context, the number of requests, and the number of models.

    python benchmarks/growth.py [-o docs/growth.json] [--what context clients models] [--rounds 2] [--tokens 48] [--svg docs]

The demo pair in bfloat16, served; the context is that of the models, 8,192 tokens. Every prompt is read once before it is
measured, so that the prefix caches have it: what is measured is writing, not reading.

context    4 requests with one prompt, by its length: milliseconds from token to token, of each request
clients    prompts of 64 tokens, as many requests at a time: milliseconds of the machine a token, which is a request's time from
           token to token over the number of requests
models     8 requests in a ring of 1 to 5 models, all of them `demo:small`, each of which passes on every tenth token: likewise

Routed: small asks large at every tenth token, at random. Beside it stand both models alone. What is measured is written down at once: the
same command goes on where it was stopped. Needs a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from others import Others
from routing.cases import source
from routing.chart import Line, Point, chart

from tokenrouter.bench import load, servers
from tokenrouter.bench.figures import figures
from tokenrouter.bench.http import BenchError, Http
from tokenrouter.bench.prompts import Lengths, synthetic
from tokenrouter.bench.sample import Ask, Job
from tokenrouter.bench.stream import Stream
from tokenrouter.compiler.compile import compile_policy
from tokenrouter.machine import machine
from tokenrouter.plan.io import write

ASK = Ask(temperature=0.0)
SIDES = {"routed": "p10", "small alone": "alone:small", "large alone": "alone:large"}
PLACES = {
    "context": (128, 512, 1024, 2048, 4096, 8064),
    "clients": (1, 2, 4, 8, 16, 32, 64),
    "models": (1, 2, 3, 4, 5),
}
TITLES = {
    "context": (
        "A token's time against the context",
        "tokens of context",
        "ms from token to token",
    ),
    "clients": (
        "A token's cost against requests",
        "requests at a time",
        "ms of the machine a token",
    ),
    "models": ("A token's cost against models", "models in a ring", "ms of the machine a token"),
}
READERS, RING, PROMPT = 4, 8, 64
BUDGET = 3 << 30  # bytes of KV
OTHER = 1 << 40  # added to seeds, so that prompts are known and answers are not


class Cell(msgspec.Struct, kw_only=True):
    """One place of one line."""

    what: str
    side: str
    place: int
    tokens: int = 0  # of an answer
    ms: list[float] = []  # a token, by round
    others: list[float] = []  # cores that other work took, by round


class Record(msgspec.Struct, kw_only=True):
    """All that was measured so far."""

    machine: str
    when: str = ""
    cells: list[Cell] = []

    def cell(self, what: str, side: str, place: int, tokens: int) -> Cell:
        """Return a cell, which may be new; raises SystemExit where it was measured with other answers."""
        for cell in self.cells:
            if (cell.what, cell.side, cell.place) == (what, side, place):
                if cell.tokens != tokens:
                    raise SystemExit(
                        f"measured with answers of {cell.tokens} tokens before; name another file"
                    )
                return cell
        self.cells.append(Cell(what=what, side=side, place=place, tokens=tokens))
        return self.cells[-1]


def main() -> None:
    """Measure what is missing, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("-o", "--output", type=Path, metavar="FILE", help="the record, gone on with")
    add("--what", nargs="+", choices=PLACES, default=list(PLACES))
    add("--rounds", type=int, default=2, metavar="R", help="of each place (%(default)s)")
    add("--tokens", type=int, default=48, metavar="N", help="of an answer (%(default)s)")
    add("--most", type=int, default=8192, metavar="N", help="leave out places beyond it")
    add("--svg", type=Path, metavar="DIR", help="draw the plots there")
    args = parser.parse_args()
    record = begun(args.output)
    for what in args.what:
        for policies in served_together(what):
            measure(what, policies, args, record)
    for what in args.what:
        text = drawn(record, what)
        if args.svg is not None:
            (args.svg / f"growth-{what}.svg").write_text(text, encoding="utf-8")
    print(table(record))


def begun(path: Path | None) -> Record:
    """Return what was measured before, a new record where nothing was; ends where another machine measured it."""
    here = machine()
    if path is None or not path.exists():
        return Record(machine=here)
    old = msgspec.json.decode(path.read_bytes(), type=Record)
    if old.machine != here:
        raise SystemExit(f"{path}: measured on {old.machine}; name another file")
    return old


def served_together(what: str) -> list[tuple[str, str, Sequence[int]]]:
    """Return what is served for one question: line, policy, and the places that one server measures."""
    if what == "models":
        return [("ring", ring(n), [n]) for n in PLACES[what]]
    return [
        (side, source("demo", policy, "bfloat16"), PLACES[what]) for side, policy in SIDES.items()
    ]


def ring(n: int) -> str:
    """Return a policy over n models, each of which passes on every tenth token at random."""
    lines = ["route 1"]
    lines += [f'model m{at} {{ use "demo:small"  dtype bfloat16  cost 1 }}' for at in range(n)]
    lines += ["policy ring {", "  start m0"]
    for at in range(n):
        passing = f"when chance < 10% -> commit then m{(at + 1) % n}" if n > 1 else ""
        lines += [f"  at m{at} {{", f"    {passing}", "    otherwise -> commit", "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def measure(
    what: str, served: tuple[str, str, Sequence[int]], args: argparse.Namespace, record: Record
) -> None:
    """Add the rounds that one line's places lack."""
    side, text, places = served
    todo = [record.cell(what, side, place, args.tokens) for place in places if place <= args.most]
    if all(len(cell.ms) >= args.rounds for cell in todo):
        return
    with tempfile.TemporaryDirectory() as directory:
        path, plan = Path(directory) / "policy.route", Path(directory) / "plan.json"
        path.write_text(text, encoding="utf-8")
        write(compile_policy(path, kv_budget=BUDGET), plan)
        with servers.started([(f"the server of {side}", plan)], ["--windows", "fixed"]) as [
            (_, url)
        ]:
            for cell in todo:
                while len(cell.ms) < args.rounds:
                    other = Others()
                    ms = asyncio.run(token_ms(cell, url, args.tokens))
                    cell.ms.append(ms)
                    cell.others.append(other.cores())
                    record.when = datetime.now(UTC).date().isoformat()
                    say(
                        f"{what} {cell.place}, {side}: {ms:.2f} ms a token, others {cell.others[-1]:.2f}"
                    )
                    save(record, args.output)


async def token_ms(cell: Cell, url: str, tokens: int) -> float:
    """Return what a token costs at one place, the prompts being known."""
    http = Http(url)
    try:
        jobs = await asked(cell, http, tokens)
        ask = Stream(http, ASK)
        known = jobs[:1] if cell.what == "context" else jobs
        reading = [msgspec.structs.replace(job, seed=OTHER + job.seed) for job in known]
        await load.closed(ask, reading, len(reading), lambda: None)
        found = figures(await load.closed(ask, jobs, len(jobs), lambda: None))
    finally:
        await http.close()
    if found.failed or found.tpot_ms is None:
        raise BenchError(f"{cell.what} {cell.place}: {found.first_error}")
    return found.tpot_ms.p50 if cell.what == "context" else found.tpot_ms.mean / len(jobs)


async def asked(cell: Cell, http: Http, tokens: int) -> list[Job]:
    """Return the requests of a place; no round has the prompts of another."""
    length = cell.place if cell.what == "context" else PROMPT
    n = {"context": 1, "clients": cell.place, "models": RING}[cell.what]
    lengths = Lengths(prompt=length, output=tokens, shared=0)
    jobs = await synthetic(http, n, lengths, 100 * cell.place + len(cell.ms))
    if cell.what != "context":
        return jobs
    return [msgspec.structs.replace(jobs[0], seed=at) for at in range(READERS)]


def save(record: Record, path: Path | None) -> None:
    """Write down what there is."""
    if path is not None:
        kept = path.with_suffix(".new")
        kept.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
        kept.replace(path)


def drawn(record: Record, what: str) -> str:
    """Return one question's plot: medians, with bars over the rounds."""
    by_side: dict[str, list[Point]] = {}
    for cell in sorted(record.cells, key=lambda cell: cell.place):
        if cell.what == what and cell.ms:
            point = Point(cell.place, statistics.median(cell.ms), min(cell.ms), max(cell.ms))
            by_side.setdefault(cell.side, []).append(point)
    title, under, up = TITLES[what]
    lines = [Line(side, by_side[side]) for side in (*SIDES, "ring") if side in by_side]
    up = f"{up}; demo pair, bfloat16, {record.machine}, {record.when}"
    return chart(title, under, up, lines, doubling=what != "models")


def table(record: Record) -> str:
    """Return all medians as Markdown."""
    lines = []
    for what, places in PLACES.items():
        lines += [
            "",
            f"| {what} | {' | '.join(map(str, places))} |",
            "|---" * (len(places) + 1) + "|",
        ]
        for side in (*SIDES, "ring"):
            found = {c.place: c.ms for c in record.cells if (c.what, c.side) == (what, side)}
            if any(found.values()):
                medians = (
                    f"{statistics.median(found[p]):.1f}" if found.get(p) else "" for p in places
                )
                lines.append(f"| {side} | {' | '.join(medians)} |")
    return "\n".join(lines[1:])


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
