"""The routed pair against the same policy over ordinary servers, by pair of models, policy and number of clients.

    python benchmarks/routed.py -o routed.json [--pair demo] [--policy p10] [--clients 8] [--tokens 128]
                                [--sides baseline llama.cpp vllm] [--alone] [--quick] [--markdown FILE]

Beside the plan's server stand ordinary servers, one a model: our own (`trc bench --baseline`), llama.cpp's, and vLLM's. In front
of each two is the same dispatcher, which asks for a token at a time, with prefix caching on. All read the same weights
in the same type. They are measured with the same requests in turn, each warm; the order turns round with every round.
Servers stay up over all numbers of clients, and those of other engines over all policies. What is measured
is written down at once: the same command goes on where it was stopped.

`--alone` measures, with the same requests, each model of the pair without any routing: what the longer context of longer
answers costs by itself. Pairs of random weights (`dummy:`) have the shapes of published models; what they write means
nothing, so their policies hand over by chance only. Needs a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from engines.peers import PEERS, Peer, served
from others import Others
from routing.cases import ALONE, PAIRS, POLICIES, SIGNALS, source
from routing.record import QUIET, Cell, Record, save, started, table

from tokenrouter.bench import course, run, servers
from tokenrouter.bench.dispatch import Dispatcher
from tokenrouter.bench.http import Http
from tokenrouter.bench.prompts import Lengths
from tokenrouter.bench.report import BASELINE, ROUTED, Level
from tokenrouter.bench.sample import Ask, Asker
from tokenrouter.bench.stream import Stream
from tokenrouter.compiler.compile import compile_policy
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.io import write

CLIENTS = (1, 4, 8, 16)
PROMPT = 96  # tokens
WARM = 8  # tokens that each side writes before it is measured
REST_S = 3.0  # after a measurement: vLLM's processes look for more to do for a second
NAMES = [*POLICIES, f"{ALONE}:small", f"{ALONE}:large"]
ASK = Ask(temperature=0.0)


def main() -> None:
    """Measure what is missing, and print the table."""
    args = arguments()
    record = started(args.output, args.dtype)
    for pair in args.pair:
        names = [ALONE + ":small", ALONE + ":large"] if args.alone else args.policy
        policies = [name for name in names if pair == "demo" or name not in SIGNALS]
        todo = [
            record.cell(pair, policy, clients, args.tokens)
            for policy in policies
            for clients in args.clients
        ]
        while left := [cell for cell in todo if cell.rounds(sides(args, cell)) < args.rounds]:
            wanted = {side for cell in left for side in sides(args, cell)}
            with peers(pair, [peer for peer in PEERS if peer in wanted], args) as others:
                if gone := wanted - {ROUTED, BASELINE, *others}:
                    raise SystemExit(f"{', '.join(gone)} cannot be had here; name other --sides")
                for _, cells in itertools.groupby(left, key=lambda cell: cell.policy):
                    own = list(cells)
                    measure(own, sides(args, own[0]), others, args, record)
    text = table(record)
    print(text)
    if args.markdown is not None:
        args.markdown.write_text(text + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("-o", "--output", type=Path, metavar="FILE", help="the record, gone on with")
    add("--pair", nargs="+", choices=PAIRS, default=list(PAIRS), help="of models")
    add("--policy", nargs="+", choices=POLICIES, default=list(POLICIES), help="over the pair")
    add("--sides", nargs="+", choices=(BASELINE, *PEERS), default=[BASELINE], help="beside ours")
    add("--clients", type=int, nargs="+", default=CLIENTS, metavar="N", help="at a time")
    add("--tokens", type=int, default=128, metavar="N", help="of an answer (%(default)s)")
    add("--rounds", type=int, default=2, metavar="R", help="of each cell (%(default)s)")
    add("--dtype", choices=("bfloat16", "float32"), default="bfloat16", help="(%(default)s)")
    add("--windows", choices=("fixed", "adaptive", "off"), default="fixed", help="as of trc serve")
    add("--threads", type=int, help="of each model of ours (as trc serve has it)")
    add("--peer-threads", type=int, default=1, help="of each ordinary server (%(default)s)")
    add("--alone", action="store_true", help="measure the models without routing instead")
    add("--quick", action="store_true", help="the demo pair, p10, 1 and 4 clients, 32 tokens")
    add("--markdown", type=Path, metavar="FILE", help="write the table for docs")
    args = parser.parse_args()
    if min(args.clients) < 1 or args.tokens < 2 or args.rounds < 1:
        parser.error("--clients and --rounds are 1 or more, --tokens 2 or more")
    if args.dtype != "bfloat16" and set(args.sides) & set(PEERS):
        parser.error("other engines are given weights in bfloat16; leave them out of --sides")
    if args.quick:
        args.pair, args.policy, args.clients = ["demo"], ["p10"], [1, 4]
        args.tokens, args.rounds = 32, 1
    return args


def sides(args: argparse.Namespace, cell: Cell) -> list[str]:
    """Return who is measured in a cell: other engines follow no policy whose signals they do not tell."""
    if cell.policy.startswith(ALONE):
        return [ROUTED]
    beside = [side for side in args.sides if side == BASELINE or cell.policy not in SIGNALS]
    return [ROUTED, *beside]


@contextlib.contextmanager
def peers(
    pair: str, names: Sequence[str], args: argparse.Namespace
) -> Iterator[dict[str, list[Peer]]]:
    """Give the servers of other engines over a pair, by engine."""
    found = {}
    with contextlib.ExitStack() as stack:
        for name in names:
            say(f"starting {name} over {pair}")
            models = [PAIRS[pair].small, PAIRS[pair].large]
            context = PROMPT + args.tokens + 32
            most = max(args.clients)
            made = served(name, models, clients=most, context=context, threads=args.peer_threads)
            up = stack.enter_context(made)
            if up is not None:
                found[name] = up
        yield found


def measure(
    cells: Sequence[Cell],
    beside: Sequence[str],
    others: dict[str, list[Peer]],
    args: argparse.Namespace,
    record: Record,
) -> None:
    """Add one round to the cells of one policy."""
    first = cells[0]
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "policy.route"
        path.write_text(source(first.pair, first.policy, args.dtype), encoding="utf-8")
        plan = compile_policy(path)
        where = Path(directory) / "plan.json"
        write(plan, where)
        ours = course.Served(plan=plan, path=where, baseline=BASELINE in beside, options=[])
        own = ["--windows", args.windows]
        if args.threads is not None:
            own += ["--threads", str(args.threads)]
        with contextlib.ExitStack() as stack:
            routed, *alone = stack.enter_context(ours.plans())
            up = stack.enter_context(servers.started([routed], own))
            ordinary = ["--threads", str(args.peer_threads)]
            up += stack.enter_context(servers.started(alone, ordinary))
            urls = [url for _, url in up]
            for cell in cells:
                say(f"{cell.pair} {cell.policy}: {cell.clients} clients, {cell.tokens} tokens each")
                begun = Others()
                asyncio.run(add_round(cell, ours, urls, beside, others))
                cell.others.append(begun.cores())
                cell.when = datetime.now(UTC).date().isoformat()
                if cell.others[-1] > QUIET:
                    say(f"{cell.others[-1]:.2f} cores worked for others meanwhile")
                save(record, args.output)


async def add_round(
    cell: Cell,
    ours: course.Served,
    urls: Sequence[str],
    beside: Sequence[str],
    others: dict[str, list[Peer]],
) -> None:
    """Measure every side of a cell once, with the same requests."""
    https = [Http(url) for url in urls]
    tokenizer = TextTokenizer.of(ours.plan, ours.path.parent)
    alone = {BASELINE: https[1:], **others}
    askers: dict[str, Asker] = {
        side: Stream(https[0], ASK)
        if side == ROUTED
        else Dispatcher(ours.plan, tokenizer, alone[side], ASK)
        for side in beside
    }
    turn = len(cell.runs.get(ROUTED, []))
    if turn % 2:
        askers = dict(reversed(askers.items()))
    lengths = Lengths(prompt=PROMPT, output=cell.tokens, shared=0)
    settings = run.Settings(
        levels=[Level(concurrency=cell.clients)],
        requests=cell.clients,
        warmup=0,
        lengths=lengths,
        seed=1000 * cell.clients + 100 * NAMES.index(cell.policy) + turn,
        ask=ASK,
    )
    benches = {
        side: run.Bench(settings, https[0], {side: ask}, say) for side, ask in askers.items()
    }
    try:
        for side, bench in benches.items():
            for job in await bench.jobs(1, 0):
                await askers[side](msgspec.structs.replace(job, max_tokens=WARM))
            for row in await bench.measure():
                cell.runs.setdefault(side, []).extend(row.runs)
            await asyncio.sleep(REST_S if side == "vllm" else 0.2)
    finally:
        for http in [*https, *(peer.http for up in others.values() for peer in up)]:
            await http.close()


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
