"""What another program on the machine's cores costs a server.

    python benchmarks/crowded.py [PLAN] [--clients 4] [--busy 1] [--rounds 3]

The demo pair under `p10` of `routed.py` where no plan is named. `trc bench` measures the plan in turn beside nothing and beside
programs that want a core each, all the time: tokens/s and the gaps between tokens, medians and ranges over rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
from routing.cases import source

from tokenrouter.bench.report import Result

TRC = [sys.executable, "-P", "-m", "tokenrouter.cli"]
PROMPT, OUTPUT = 96, 64  # tokens


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("plan", type=Path, nargs="?", help="plan.json (the demo pair, p10)")
    parser.add_argument("--clients", type=int, default=4, metavar="N", help="(%(default)s)")
    parser.add_argument("--busy", type=int, default=1, metavar="K", help="programs (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, metavar="R", help="(%(default)s)")
    args = parser.parse_args()
    if min(args.clients, args.busy, args.rounds) < 1:
        parser.error("--clients, --busy and --rounds are 1 or more")
    found: dict[int, list[tuple[float, float]]] = {0: [], args.busy: []}
    with tempfile.TemporaryDirectory() as directory:
        plan = args.plan or compiled(Path(directory))
        for turn in range(args.rounds):
            for n, rows in found.items():
                print(f"round {turn + 1} of {args.rounds}, {n} others", file=sys.stderr, flush=True)
                with others(n):
                    rows.append(measured(plan, args.clients, Path(directory) / "result.json"))
    print(f"{args.clients} clients, prompts of {PROMPT} tokens, answers of {OUTPUT}")
    for n, rows in found.items():
        speeds, gaps = zip(*rows, strict=True)
        print(f"{n} others: {told(speeds)} tokens/s, a gap between tokens {told(gaps)} ms (median)")


def compiled(directory: Path) -> Path:
    """Return a plan of the demo pair."""
    policy, plan = directory / "policy.route", directory / "plan.json"
    policy.write_text(source("demo", "p10", "bfloat16"), encoding="utf-8")
    command = [*TRC, "compile", str(policy), "-o", str(plan)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return plan


@contextlib.contextmanager
def others(n: int) -> Iterator[None]:
    """Keep `n` cores busy with other things until the end of the block."""
    command = [sys.executable, "-S", "-c", "while True: pass"]
    with contextlib.ExitStack() as stack:
        for _ in range(n):
            stack.callback(subprocess.Popen(command).kill)
        yield


def measured(plan: Path, clients: int, file: Path) -> tuple[float, float]:
    """Return tokens/s and the median gap between two tokens of a stream in ms."""
    sizes = ["--prompt-tokens", str(PROMPT), "--output-tokens", str(OUTPUT)]
    load = ["--concurrency", str(clients), "--requests", str(2 * clients), "--warmup", "1"]
    command = [*TRC, "bench", str(plan), *load, *sizes, "--json", str(file)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    result = msgspec.json.decode(file.read_bytes(), type=Result)
    [run] = result.rows[0].runs
    assert run.itl_ms is not None
    return run.tokens_per_s, run.itl_ms.p50


def told(values: tuple[float, ...]) -> str:
    """Return median and range."""
    return f"{statistics.median(values):.1f} ({min(values):.1f}-{max(values):.1f})"


if __name__ == "__main__":
    main()
