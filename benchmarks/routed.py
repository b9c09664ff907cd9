"""The routed pair against the same policy over ordinary servers, by pair of models, policy and number of clients.

    python benchmarks/routed.py -o routed.json [--pair demo] [--policy p10] [--clients 8] [--tokens 128] [--quick] [--markdown FILE]

Each cell starts the plan's server and, beside it, one ordinary server a model with a dispatcher that asks for a token at a
time (`trc bench --baseline`), and measures both with the same requests in turn; the order turns round with every round. What
is measured is written down at once: the same command goes on where it was stopped.

`--alone` measures, with the same requests, each model of the pair without any routing: what the longer context of longer
answers costs by itself. Pairs of random weights (`dummy:`) have the shapes of published models; what they write means
nothing, so their policies hand over by chance only. Needs a machine with nothing else to do.
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

from tokenrouter.bench import course, run
from tokenrouter.bench.figures import Figures
from tokenrouter.bench.prompts import Lengths
from tokenrouter.bench.report import BASELINE, ROUTED, Level, Row
from tokenrouter.bench.sample import Ask
from tokenrouter.compiler.compile import compile_policy
from tokenrouter.plan.io import write

ALONE = "alone"
PAIRS = {
    "demo": ('"demo:small"', '"demo:large"', "float32", 2.7),
    "0.6b+1.7b": ('"dummy:qwen3-0.6b"', '"dummy:qwen3-1.7b"', "bfloat16", 2.9),
    "0.6b+4b": ('"dummy:qwen3-0.6b"', '"dummy:qwen3-4b"', "bfloat16", 6.8),
}
MODELS = """route 1
model small {{ use {small}  dtype {dtype}  cost 1 }}
model large {{ use {large}  dtype {dtype}  cost {cost} }}
"""
BY_CHANCE = """
policy by_chance {{
  start small
  at small {{
    when chance < {p}% -> retry large
    otherwise -> commit
  }}
  at large {{
    otherwise -> commit then small
  }}
}}
"""
STITCH = """
policy stitch {
  start small
  at small {
    when entropy > 3.3 -> retry large
    otherwise -> commit
  }
  at large {
    when entropy <= 3.3 -> commit then small
    otherwise -> commit
  }
}
"""
MIXTURE = """
policy mixture {
  start mix { small: 0.7  large: 0.3 }
  at any {
    otherwise -> commit then mix { small: 0.7  large: 0.3 }
  }
}
"""
ONLY = """
policy only_{name} {{
  start {name}
  at {name} {{
    otherwise -> commit
  }}
}}
"""
POLICIES = {
    "p05": BY_CHANCE.format(p=5),
    "p10": BY_CHANCE.format(p=10),
    "p35": BY_CHANCE.format(p=35),
    "stitch": STITCH,
    "mixture": MIXTURE,
}
TRAINED_ONLY = {"stitch"}  # policies that read what random weights do not have
CLIENTS = (1, 4, 8, 16)
PROMPT = 96  # tokens
QUIET = 0.3  # cores that others may use


class Cell(msgspec.Struct, kw_only=True):
    """What was measured of one pair, policy, number of clients and length of answer."""

    pair: str
    policy: str
    clients: int
    tokens: int
    runs: dict[str, list[Figures]] = {}  # by side, one a round
    others: list[float] = []  # cores that other work took, by round
    when: str = ""

    def of(self, side: str) -> Row:
        """Return all rounds of one side."""
        return Row(side=side, level=Level(concurrency=self.clients), runs=self.runs[side])


class Record(msgspec.Struct, kw_only=True):
    """All that was measured so far."""

    machine: str
    cells: list[Cell] = []

    def cell(self, pair: str, policy: str, clients: int, tokens: int) -> Cell:
        """Return a cell, which may be new."""
        for cell in self.cells:
            if (cell.pair, cell.policy, cell.clients, cell.tokens) == (
                pair,
                policy,
                clients,
                tokens,
            ):
                return cell
        self.cells.append(Cell(pair=pair, policy=policy, clients=clients, tokens=tokens))
        return self.cells[-1]


def main() -> None:
    """Measure what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the record, gone on with"
    )
    parser.add_argument(
        "--pair",
        nargs="+",
        choices=PAIRS,
        default=list(PAIRS),
        metavar="PAIR",
        help=", ".join(PAIRS),
    )
    parser.add_argument(
        "--policy",
        nargs="+",
        choices=POLICIES,
        default=list(POLICIES),
        metavar="POLICY",
        help=", ".join(POLICIES),
    )
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS, metavar="N")
    parser.add_argument("--tokens", type=int, default=128, metavar="N", help="of an answer (128)")
    parser.add_argument("--rounds", type=int, default=2, metavar="R", help="of each cell (2)")
    parser.add_argument(
        "--windows", choices=("fixed", "adaptive", "off"), default="fixed", help="as of `trc serve`"
    )
    parser.add_argument(
        "--alone", action="store_true", help="measure the models without routing instead"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="the demo pair, p10, 1 and 4 clients, one round of 32 tokens",
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table for docs")
    args = parser.parse_args()
    if min(args.clients) < 1 or args.tokens < 2 or args.rounds < 1:
        parser.error("--clients and --rounds are 1 or more, --tokens 2 or more")
    if args.quick:
        args.pair, args.policy, args.clients, args.tokens, args.rounds = (
            ["demo"],
            ["p10"],
            [1, 4],
            32,
            1,
        )
    record = started(args.output)
    policies = ["alone:small", "alone:large"] if args.alone else args.policy
    for pair in args.pair:
        for policy in policies:
            if pair != "demo" and policy in TRAINED_ONLY:
                continue
            for clients in args.clients:
                cell = record.cell(pair, policy, clients, args.tokens)
                while len(next(iter(cell.runs.values()), [])) < args.rounds:
                    measure(cell, args.windows)
                    save(record, args.output)
    text = table(record)
    print(text)
    if args.markdown is not None:
        args.markdown.write_text(text + "\n", encoding="utf-8")


def started(path: Path | None) -> Record:
    """Return what was measured before on the same machine; an empty record otherwise."""
    here = run.machine().rpartition(",")[0]
    if path is None or not path.exists():
        return Record(machine=here)
    old = msgspec.json.decode(path.read_bytes(), type=Record)
    if old.machine != here:
        raise SystemExit(f"{path}: measured on {old.machine}; name another file")
    return old


def save(record: Record, path: Path | None) -> None:
    """Write down what there is."""
    if path is not None:
        kept = path.with_suffix(".new")
        kept.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1))
        kept.replace(path)


def source(pair: str, policy: str) -> str:
    """Return the text of a policy over a pair."""
    small, large, dtype, cost = PAIRS[pair]
    lines = MODELS.format(small=small, large=large, dtype=dtype, cost=cost).splitlines()
    if not policy.startswith(f"{ALONE}:"):
        return "\n".join(lines) + POLICIES[policy]
    name = policy.partition(":")[2]
    own = [line for line in lines if line.startswith(("route", f"model {name} "))]
    return "\n".join(own) + ONLY.format(name=name)


def measure(cell: Cell, windows: str) -> None:
    """Add one round to a cell."""
    say(f"{cell.pair} {cell.policy}: {cell.clients} clients, {cell.tokens} tokens an answer")
    others = Others()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "policy.route"
        path.write_text(source(cell.pair, cell.policy), encoding="utf-8")
        alone = cell.policy.startswith(ALONE)
        plan = compile_policy(path)
        where = Path(directory) / "plan.json"
        write(plan, where)
        served = course.Served(plan=plan, path=where, baseline=not alone, options=[])
        served.options.extend(["--threads", str(served.threads(None)), "--max-waiting", "65536"])
        served.options.extend(["--windows", windows])
        result = asyncio.run(course.of_plan(settings(cell), served, say))
    for row in result.rows:
        cell.runs.setdefault(row.side, []).extend(row.runs)
    cell.others.append(others.cores())
    cell.when = datetime.now(UTC).date().isoformat()
    if cell.others[-1] > QUIET:
        say(f"{cell.others[-1]:.2f} cores worked for others meanwhile")


def settings(cell: Cell) -> run.Settings:
    """Return what one round of a cell asks: twice as many requests as clients for short answers, else as many."""
    requests = cell.clients * (2 if cell.tokens <= 256 else 1)
    return run.Settings(
        levels=[Level(concurrency=cell.clients)],
        requests=requests,
        warmup=1,
        lengths=Lengths(prompt=PROMPT, output=cell.tokens, shared=0),
        seed=len(next(iter(cell.runs.values()), [])),
        ask=Ask(temperature=0.0),
    )


def table(record: Record) -> str:
    """Return the record as a Markdown table: medians over rounds, ranges in brackets."""
    lines = [
        "| pair | policy | clients | tokens an answer | tokens/s | baseline | ratio | ms a token | baseline | by large |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for cell in record.cells:
        if not cell.runs:
            continue
        routed = cell.runs[ROUTED]
        base = cell.runs.get(BASELINE)
        noisy = "*" if max(cell.others) > QUIET else ""
        ratio = "" if base is None else f"**{middle(speeds(routed)) / middle(speeds(base)):.2f}**"
        large = middle([(one.share or {}).get("large", 0.0) for one in routed])
        lines.append(
            f"| {cell.pair} | {cell.policy}{noisy} | {cell.clients} | {cell.tokens} | {spread(speeds(routed))} "
            f"| {'' if base is None else spread(speeds(base))} | {ratio} | {delay(routed)} "
            f"| {'' if base is None else delay(base)} | {100 * large:.0f} % |"
        )
    dates = sorted({cell.when for cell in record.cells if cell.when})
    lines += [
        "",
        f"{record.machine}; measured {' to '.join(dict.fromkeys(dates[:1] + dates[-1:]))}.",
    ]
    if any(max(cell.others, default=0) > QUIET for cell in record.cells):
        lines[-1] += " Cells with a star were measured beside other work."
    return "\n".join(lines)


def speeds(runs: Sequence[Figures]) -> list[float]:
    """Return tokens/s by round."""
    return [one.tokens_per_s for one in runs]


def delay(runs: Sequence[Figures]) -> str:
    """Return the median time of a token after the first, in ms."""
    found = [one.tpot_ms.p50 for one in runs if one.tpot_ms is not None]
    return f"{middle(found):.1f}" if found else ""


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return statistics.median(values)


def spread(values: Sequence[float]) -> str:
    """Return median and range."""
    text = f"{middle(values):.1f}"
    return text if len(values) < 2 else f"{text} ({min(values):.1f}-{max(values):.1f})"


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
