"""`trc simulate` against `trc bench`: the demo under arrivals at a rate, as foretold from its profile and as served.

    python benchmarks/simulate_reality.py [DIR] [--rates 0.5 1 1.5] [--requests 48] [--output-tokens 64] [--max-active 64]

Compiles the demo, profiles it on prompts of its own, compiles it again with that profile, serves it under each rate, and simulates the same
arrivals with the same lengths of prompts and answers, many times with other luck. All that is measured is kept in DIR, one file a step: what is
there is not measured again, and each step tells the command that makes it. `--until profile` ends after the profile. Without DIR nothing is kept.

Served answers do not end by themselves, and what the models write after an end of sequence is another text than what the profile saw. So the
arrivals are simulated twice: with the ways that the profile counted, and with the shares and hand-offs that the server counted.

Every request of a rate has a prompt of its own and each rate a server of its own, so that no prefix is known but that of the one request
that warms it up; it is left out of the trace's prompts too. Needs a machine with nothing else to do.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import msgspec

from tokenrouter import cli
from tokenrouter.bench.figures import Figures
from tokenrouter.bench.load import arrivals
from tokenrouter.bench.report import Result
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.io import read
from tokenrouter.profile.io import read as read_profile
from tokenrouter.profile.prompts import shipped
from tokenrouter.profile.structs import Move

POLICY = Path(__file__).parents[1] / "examples" / "demo.route"
LUCKS = 20  # simulations of one rate
PARTS = ("mean", "p50", "p90")


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, nargs="?", metavar="DIR")
    parser.add_argument("--rates", type=float, nargs="+", default=[0.5, 1.0, 1.5], metavar="R")
    parser.add_argument("--requests", type=int, default=48, metavar="N", help="of each rate (48)")
    parser.add_argument("--output-tokens", type=int, default=64, metavar="N", help="(64)")
    parser.add_argument("--max-active", type=int, default=64, metavar="N", help="(64)")
    parser.add_argument("--until", choices=("profile", "bench", "table"), default="table")
    args = parser.parse_args()
    if args.directory is None:
        with tempfile.TemporaryDirectory() as directory:
            compare(Path(directory), args)
    else:
        args.directory.mkdir(parents=True, exist_ok=True)
        compare(args.directory, args)


def compare(where: Path, args: argparse.Namespace) -> None:
    """Do what is missing in a directory, and print the table."""
    (where / "prompts.jsonl").write_bytes(
        b"".join(msgspec.json.encode({"prompt": text}) + b"\n" for text in prompts(args.requests))
    )
    most = ("--max-active", str(args.max_active))
    made(where / "first.json", "compile", str(POLICY), *most, "-o")
    asked = ("--raw", "--prompts", str(where / "prompts.jsonl"))
    limit = ("--max-tokens", str(args.output_tokens))
    made(where / "profile.json", "profile", str(where / "first.json"), *asked, *limit, "-o")
    profile = ("--profile", str(where / "profile.json"))
    made(where / "plan.json", "compile", str(POLICY), *most, *profile, "-o")
    if args.until == "profile":
        return
    for rate in args.rates:
        load = ("--rate", f"{rate:g}", "--requests", str(args.requests), "--warmup", "1")
        lengths = ("--prompts", str(where / "prompts.jsonl"))
        tokens = ("--output-tokens", str(args.output_tokens))
        plan = str(where / "plan.json")
        made(where / f"bench-{rate:g}.json", "bench", plan, *load, *lengths, *tokens, "--json")
    if args.until == "bench":
        return
    print(table(where, args.rates, args.requests, args.output_tokens))


def prompts(n: int) -> list[str]:
    """Return n texts that begin otherwise each, of the shipped prompts' lengths."""
    given = shipped()
    return [f"{at + 1}. {given[at % len(given)]}" for at in range(n)]


def made(path: Path, *command: str) -> None:
    """Let a command of `trc` write a file that is not there."""
    if path.exists():
        return
    print(f"trc {' '.join(command)} {path}", file=sys.stderr, flush=True)
    unsure = path.with_suffix(".new")
    subprocess.run([sys.executable, "-m", "tokenrouter.cli", *command, str(unsure)], check=True)
    unsure.replace(path)


def table(where: Path, rates: list[float], n: int, tokens: int) -> str:
    """Return the comparison as Markdown."""
    lines = [
        "| requests/s | | tokens/s | first token: mean, p50, p90, s | whole answer: mean, p50, p90, s | large wrote |",
        "|---|---|---|---|---|---|",
    ]
    for rate in rates:
        result = msgspec.json.decode((where / f"bench-{rate:g}.json").read_bytes(), type=Result)
        [run] = result.rows[0].runs
        assert run.ttft_ms is not None and run.e2e_ms is not None
        first = [getattr(run.ttft_ms, part) for part in PARTS]
        whole = [getattr(run.e2e_ms, part) for part in PARTS]
        share = "" if run.share is None else f"{100 * run.share.get('large', 0.0):.0f} %"
        lines.append(
            f"| {rate:g} | served | {run.tokens_per_s:.1f} | {_told(first)} | {_told(whole)} | {share} |"
        )
        profiles = {
            "simulated, ways of the profile": where / "profile.json",
            "simulated, ways as served": as_served(where, rate, run),
        }
        for name, profile in profiles.items():
            seen = simulated(where, rate, n, tokens, profile)
            speed = statistics.fmean(each["tokens_per_s"] for each in seen)
            means = {
                what: [statistics.fmean(each[what][part] for each in seen) for part in PARTS]
                for what in ("first_token", "latency")
            }
            lines.append(
                f"| | {name} | {speed:.1f} | {_told(means['first_token'])} | {_told(means['latency'])} | |"
            )
    return "\n".join(lines)


def as_served(where: Path, rate: float, run: Figures) -> Path:
    """Write the profile with the ways that the server counted: the demo drops a candidate of small, or goes on after one of large."""
    assert run.share is not None and run.handoffs_per_token is not None
    there = round(run.handoffs_per_token / 2 * run.output_tokens)  # and as many back
    small, large = (round(run.share[name] * run.output_tokens) for name in ("small", "large"))
    ways = [(0, 0, False, 1, there), (0, 1, True, 0, small)]
    ways += [(1, 0, True, 0, there), (1, 1, True, 1, large - there)]
    profile = read_profile(where / "profile.json")
    moves = [Move(model=m, rule=r, keep=k, to=t, n=n) for m, r, k, t, n in ways]
    path = where / f"profile-{rate:g}.json"
    served = msgspec.structs.replace(profile.ways, moves=moves)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(profile, ways=served)))
    return path


def simulated(where: Path, rate: float, n: int, tokens: int, profile: Path) -> list[dict]:  # type: ignore[type-arg]
    """Return what simulations of the same arrivals show, each with other luck."""
    tokenizer = TextTokenizer.of(read(where / "plan.json"), where)
    trace = where / f"trace-{rate:g}.jsonl"
    lines = [
        {"at": at, "output_tokens": tokens, "prompt_tokens": max(1, len(tokenizer.encode(text)))}
        for at, text in zip(arrivals(n, rate, 0), prompts(n), strict=True)
    ]
    lines[0]["prompt_tokens"] = 1  # its prompt warmed the server up
    trace.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    found = []
    for luck in range(LUCKS):
        asked = ("--profile", str(profile), "--trace", str(trace))
        with redirect_stdout(StringIO()) as told, redirect_stderr(StringIO()):
            cli.main(["simulate", str(where / "plan.json"), *asked, "--seed", str(luck), "--json"])
        found.append(msgspec.json.decode(told.getvalue()))
    return found


def _told(ms: list[float]) -> str:
    return ", ".join(f"{each / 1000:.2f}" for each in ms)


if __name__ == "__main__":
    main()
