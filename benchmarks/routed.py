"""The routed pair against the same policy over ordinary servers, by pair of models, policy and number of clients.

    python benchmarks/routed.py -o routed.json [--pair demo] [--policy p10] [--clients 8] [--tokens 128]
                                [--sides baseline llama.cpp vllm] [--dtype bfloat16] [--alone] [--quick] [--markdown FILE]

Beside the plan's server stand ordinary servers, one a model: our own (`trc bench --baseline`), llama.cpp's, and vLLM's. In front
of each two is the same dispatcher, which asks for a token at a time, with prefix caching on. All read the same weights,
ours in one type, others in that which they are fastest with; where ours are int8, llama.cpp's are its Q8_0 (`engines/peers.py`). They are measured with the same requests in turn, each warm; the order turns round with every round.
Servers stay up over all numbers of clients, and ordinary ones over all policies. An ordinary server has as many threads as it is
fastest with (`threads_of`). What is measured
is written down at once: the same command goes on where it was stopped, and a side that is named later gets the requests that others had. `--apart` measures one side after the other, with the
same requests, where memory does not hold two stacks of a pair.

`--alone` measures, with the same requests, each model of the pair without any routing: what the longer context of longer
answers costs by itself. Pairs of random weights (`dummy:`) have the shapes of published models; what they write means
nothing, and so do the entropies that `stitch` goes by there. Needs a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
from engines.peers import PEERS, Peer, cores, served, type_of
from others import Others
from routing.cases import ALONE, PAIRS, POLICIES, SIGNALS, WEIGHTS, source
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
from tokenrouter.plan.io import read, write

CLIENTS = (1, 4, 8, 16)
PROMPT = 96  # tokens
WARM = 8  # tokens that each side writes before it is measured
PROMPTS = 8  # by which engines are held to the same weights
ALIKE = 0.5  # of their next tokens at least: two roundings part where two tokens are as likely
ALIKE_IN_8_BITS = 0.25  # coarser roundings part more often; of other weights none would be the same
REST_S = 3.0  # after a measurement: vLLM's processes look for more to do for a second
NAMES = [*POLICIES, f"{ALONE}:small", f"{ALONE}:large"]
ASK = Ask(temperature=0.0)


def main() -> None:
    """Measure what is missing, and print the table."""
    args = arguments()
    record = started(args.output, args.dtype)
    for pair in args.pair:
        names = [ALONE + ":small", ALONE + ":large"] if args.alone else args.policy
        todo = [
            record.cell(pair, policy, clients, args.tokens)
            for policy in names
            for clients in args.clients
        ]
        everyone = [ROUTED] if args.alone else [ROUTED, *args.sides]
        for group in [[side] for side in everyone] if args.apart else [everyone]:
            for single in (True, False):  # servers have other threads for one client
                cells = [cell for cell in todo if (cell.clients == 1) == single]
                while left := [cell for cell in cells if lacking(cell, group, args)]:
                    wanted = {side for cell in left for side in lacking(cell, group, args)}
                    own = [side for side in group if side in wanted]
                    measure(pair, left, own, args, record)
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
    add("--dtype", choices=WEIGHTS, default="bfloat16", help="of ours (%(default)s)")
    add("--windows", choices=("fixed", "adaptive", "off"), default="fixed", help="as of trc serve")
    add("--threads", type=int, help="of each model of ours (as trc serve has it)")
    add(
        "--peer-threads",
        type=int,
        help="of each ordinary server (those it is fastest with)",
    )
    add("--apart", action="store_true", help="one side after the other: for what memory is short")
    add("--alone", action="store_true", help="measure the models without routing instead")
    add("--quick", action="store_true", help="the demo pair, p10, 1 and 4 clients, 32 tokens")
    add("--markdown", type=Path, metavar="FILE", help="write the table for docs")
    args = parser.parse_args()
    if min(args.clients) < 1 or args.tokens < 2 or args.rounds < 1:
        parser.error("--clients and --rounds are 1 or more, --tokens 2 or more")
    if args.dtype == "float32" and set(args.sides) & set(PEERS):
        parser.error(
            "other engines hold the weights that ours has in bfloat16; leave them out of --sides"
        )
    if args.dtype == "int8" and "vllm" in args.sides:
        parser.error("vllm is not measured in 8 bits; leave it out of --sides")
    if args.quick:
        args.pair, args.policy, args.clients = ["demo"], ["p10"], [1, 4]
        args.tokens, args.rounds = 32, 1
    return args


def sides(cell: Cell, group: Sequence[str]) -> list[str]:
    """Return who of a group is measured in a cell: other engines follow no policy whose signals they do not tell."""
    return [side for side in group if side not in PEERS or cell.policy not in SIGNALS]


def lacking(cell: Cell, group: Sequence[str], args: argparse.Namespace) -> list[str]:
    """Return which sides of a group have yet to be measured in a cell: those that have the fewest rounds."""
    own = sides(cell, group)
    for side in own:
        known = cell.threads.get(side)
        if side != ROUTED and cell.runs.get(side) and known != threads_of(side, cell.clients, args):
            raise SystemExit(
                f"{cell.pair} {cell.policy}, {cell.clients} clients: {side} was measured with {known} threads; name another file"
            )
        kind = cell.types.get(side, "bfloat16")
        if side in PEERS and cell.runs.get(side) and kind != type_of(side, args.dtype):
            raise SystemExit(
                f"{cell.pair} {cell.policy}, {cell.clients} clients: {side} was measured in {kind}; name another file"
            )
    fewest = min((cell.rounds([side]) for side in own), default=args.rounds)
    return [side for side in own if cell.rounds([side]) == fewest < args.rounds]


def threads_of(side: str, clients: int, args: argparse.Namespace) -> int:
    """Return the threads of each ordinary server, those with which it has the most tokens/s.

    One client keeps but one server busy at a time, and ours then have all cores. With more they are best with a share of them; so are
    vLLM's always, whose threads spin for a while on a core that the other server needs, and llama.cpp's are best with all.
    """
    if args.peer_threads is not None:
        return int(args.peer_threads)
    all_cores = side == "llama.cpp" or (side == BASELINE and clients == 1)
    return cores() if all_cores else max(1, cores() // 2)


@contextlib.contextmanager
def peers(
    pair: str, names: Sequence[str], single: bool, args: argparse.Namespace
) -> Iterator[dict[str, list[Peer]]]:
    """Give the servers of other engines over a pair, by engine."""
    found = {}
    with contextlib.ExitStack() as stack:
        for name in names:
            say(f"starting {name} over {pair}")
            models = [PAIRS[pair].small, PAIRS[pair].large]
            context = PROMPT + args.tokens + 32
            most = 1 if single else max(args.clients)
            threads = threads_of(name, most, args)
            kind = type_of(name, args.dtype)
            made = served(name, models, kind=kind, clients=most, context=context, threads=threads)
            up = stack.enter_context(made)
            if up is not None:
                found[name] = up
        yield found


def measure(
    pair: str,
    cells: Sequence[Cell],
    group: Sequence[str],
    args: argparse.Namespace,
    record: Record,
) -> None:
    """Add one round of a group of sides to cells of a pair."""
    clients = max(cell.clients for cell in cells)
    own_threads = ["--threads", str(threads_of(BASELINE, clients, args))]
    with (
        peers(pair, [peer for peer in PEERS if peer in group], clients == 1, args) as others,
        contextlib.closing(Ordinary(own_threads)) as ordinary,
    ):
        if gone := set(group) - {ROUTED, BASELINE, *others}:
            raise SystemExit(f"{', '.join(gone)} cannot be had here; name other --sides")
        for policy, own in itertools.groupby(cells, key=lambda cell: cell.policy):
            with serving(pair, policy, group, ordinary, others, args) as here:
                for cell in own:
                    text = f"{pair} {policy}: {cell.clients} clients, {cell.tokens} tokens each"
                    say(text)
                    begun = Others()
                    own_sides = lacking(cell, group, args)
                    asyncio.run(add_round(cell, own_sides, here))
                    for side in own_sides:
                        cell.commit[side] = commit()
                        if side != ROUTED:
                            cell.threads[side] = threads_of(side, cell.clients, args)
                        if side in PEERS:
                            cell.types[side] = type_of(side, args.dtype)
                    cell.others.append(begun.cores())
                    cell.when = datetime.now(UTC).date().isoformat()
                    if cell.others[-1] > QUIET:
                        say(f"{cell.others[-1]:.2f} cores worked for others meanwhile")
                    save(record, args.output)


class Ordinary:
    """Our own servers of one model each, kept for the next policy where it wants the same."""

    def __init__(self, options: list[str]) -> None:
        self._options = options
        self._serve: list[Any] = []
        self._stack = contextlib.ExitStack()
        self._urls: list[str] = []

    def urls(self, plans: list[tuple[str, Path]]) -> list[str]:
        """Return where plans of these models and programs are served; their windows are of one request, which waits for nobody."""
        serve = [(plan.models, plan.programs) for plan in (read(path) for _, path in plans)]
        if serve != self._serve:
            self.close()
            found = self._stack.enter_context(servers.started(plans, self._options))
            self._serve, self._urls = serve, [url for _, url in found]
        return self._urls

    def close(self) -> None:
        """End them."""
        self._stack.close()
        self._serve = []


@dataclass(frozen=True)
class Course:
    """What serves one policy."""

    served: course.Served
    tokens: str  # the server that makes prompts
    urls: dict[str, list[str]]  # of our own sides
    others: dict[str, list[Peer]]  # of other engines


@contextlib.contextmanager
def serving(
    pair: str,
    policy: str,
    group: Sequence[str],
    ordinary: Ordinary,
    others: dict[str, list[Peer]],
    args: argparse.Namespace,
) -> Iterator[Course]:
    """Serve a policy on the sides of a group."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        path = Path(directory) / "policy.route"
        path.write_text(source(pair, policy, args.dtype), encoding="utf-8")
        plan = compile_policy(path)
        where = Path(directory) / "plan.json"
        write(plan, where)
        served = course.Served(plan=plan, path=where, baseline=not args.alone, options=[])
        routed, *alone = stack.enter_context(served.plans())
        urls = {}
        if ROUTED in group:
            own = ["--windows", args.windows]
            if args.threads is not None:
                own += ["--threads", str(args.threads)]
            found = stack.enter_context(servers.started([routed], own))
            urls[ROUTED] = [url for _, url in found]
        if BASELINE in group:
            urls[BASELINE] = ordinary.urls(alone)
        # Somebody has to make tokens of text: where other engines are alone, the smallest of ours.
        makes = next(iter(urls.values()), None) or ordinary.urls(alone[:1])
        yield Course(
            served, makes[0], urls, {name: others[name] for name in group if name in others}
        )


async def add_round(cell: Cell, own: Sequence[str], here: Course) -> None:
    """Measure sides of a cell once, with the requests of their round, the same for all."""
    tokens = Http(here.tokens)
    https = {side: [Http(url) for url in urls] for side, urls in here.urls.items()}
    tokenizer = TextTokenizer.of(here.served.plan, here.served.path.parent)
    found: dict[str, list[Any]] = {**https, **here.others}
    askers: dict[str, Asker] = {
        side: Stream(found[side][0], ASK)
        if side == ROUTED
        else Dispatcher(here.served.plan, tokenizer, found[side], ASK)
        for side in own
    }
    turn = cell.rounds(own)
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
    try:
        for side, ask in askers.items():
            bench = run.Bench(settings, tokens, {side: ask}, say)
            for job in await bench.jobs(1, 0):
                await ask(msgspec.structs.replace(job, max_tokens=WARM))
            if side in here.others and BASELINE in https and side not in cell.alike:
                prompts = [job.prompt for job in await bench.jobs(PROMPTS, 0)]
                cell.alike[side] = await alike(
                    prompts, https[BASELINE], here.others[side], tokenizer
                )
                say(
                    f"{side}: {100 * cell.alike[side]:.0f} % of next tokens are as our own servers'"
                )
                int8 = here.served.plan.models[0].quantize == "int8"
                if cell.alike[side] < (ALIKE_IN_8_BITS if int8 else ALIKE):
                    raise SystemExit(f"{side} and our own servers do not have the same weights")
            for row in await bench.measure():
                if row.runs[-1].failed:
                    raise SystemExit(f"{side} failed: {row.runs[-1].first_error}; not recorded")
                cell.runs.setdefault(side, []).extend(row.runs)
            await asyncio.sleep(REST_S if side == "vllm" else 0.2)
    finally:
        for each in [tokens, *itertools.chain(*https.values())]:
            await each.close()
        for peer in itertools.chain(*here.others.values()):
            await peer.http.close()


async def alike(
    prompts: Sequence[Any], ours: Sequence[Any], theirs: Sequence[Any], tokenizer: TextTokenizer
) -> float:
    """Return for which share of prompts and models two engines have the same likeliest token: with the same weights, for nearly all."""
    same = []
    for prompt in prompts:
        ids = tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        body = {"prompt": ids, "max_tokens": 1, "temperature": 0.0, "route": {"trace": True}}
        for servers_of_model in zip(ours, theirs, strict=True):
            one, other = [await each.ask("/completions", body) for each in servers_of_model]
            one, other = (each["choices"][0]["route"]["trace"][0]["id"] for each in (one, other))
            same.append(one == other)
    return sum(same) / len(same)


def commit() -> str:
    """Return which state of this project is measured."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return told.stdout.strip()


def say(text: str) -> None:
    """Tell of progress."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
