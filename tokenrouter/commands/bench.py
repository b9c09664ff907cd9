"""`trc bench`: load on a server, what its clients see, and the same policy without this project for comparison."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.bench.figures import Slo
    from tokenrouter.bench.report import Level, Result
    from tokenrouter.bench.run import Settings
    from tokenrouter.plan.structs import Plan

NAME = "bench"
HELP = "measure a running server, or a plan that is served for the purpose"
KEY_VARIABLE = "TOKENROUTER_API_KEY"
TIMES = {"ms": 1.0, "s": 1000.0}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "target", help="http://HOST:PORT/v1 of a server that runs, or plan.json to serve here"
    )
    load = parser.add_argument_group("load")
    load.add_argument(
        "--concurrency",
        type=_counts,
        metavar="N,N",
        help="clients, each of which waits for its answer (1)",
    )
    load.add_argument(
        "--rate", type=_rates, metavar="R,R", help="requests a second instead, Poisson arrivals"
    )
    load.add_argument(
        "--requests", type=_count, default=32, metavar="N", help="of each level (%(default)s)"
    )
    load.add_argument(
        "--repeat", type=_count, default=1, metavar="N", help="times for each level (%(default)s)"
    )
    load.add_argument(
        "--warmup", type=_any_count, default=2, metavar="N", help="before it counts (%(default)s)"
    )
    asked = parser.add_argument_group("requests")
    asked.add_argument("--prompts", type=Path, metavar="FILE", help="JSON lines with `prompt`")
    asked.add_argument(
        "--prompt-tokens", type=_count, default=128, metavar="N", help="synthetic (%(default)s)"
    )
    asked.add_argument(
        "--shared-tokens", type=_any_count, default=0, metavar="N", help="prefix of all (0)"
    )
    asked.add_argument(
        "--output-tokens", type=_count, default=64, metavar="N", help="(%(default)s)"
    )
    asked.add_argument("--stop-at-eos", action="store_true", help="let answers end early")
    asked.add_argument("--temperature", type=_number, default=0.0, metavar="T", help="(0)")
    asked.add_argument(
        "--seed", type=_any_count, default=0, metavar="N", help="of everything drawn"
    )
    asked.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="NAME=VALUE",
        help="a dial of the policy, as in --set tau=0.2 (repeatable)",
    )
    asked.add_argument(
        "--model", metavar="NAME", help="that is asked of a URL (the first it names)"
    )
    asked.add_argument("--api-key", metavar="KEY", help=f"for a URL; or ${KEY_VARIABLE}")
    told = parser.add_argument_group("what is told")
    told.add_argument(
        "--slo", type=_slo, metavar="S", help="for goodput, as in ttft=500ms,tpot=50ms,e2e=5s"
    )
    told.add_argument("--json", type=Path, metavar="FILE", help="write all figures; - is stdout")
    told.add_argument("--svg", type=Path, metavar="FILE", help="write a plot")
    told.add_argument(
        "--breakdown",
        action="store_true",
        help="say where the time of each model's steps goes, by phase (from /metrics)",
    )
    served = parser.add_argument_group("of a plan")
    served.add_argument(
        "--baseline",
        action="store_true",
        help="measure, in turn, one server a model and a dispatcher that asks for a token at a time",
    )
    served.add_argument("--dtype", choices=("float64", "float32", "bfloat16", "float16"))
    served.add_argument("--deterministic", action="store_true", help="as of `trc serve`")
    served.add_argument("--threads", type=_count, metavar="N", help="of each model, on both sides")


def run(args: argparse.Namespace) -> int:
    """Measure and report."""
    import asyncio
    import os

    from tokenrouter.bench import course
    from tokenrouter.bench.plot import svg
    from tokenrouter.errors import UsageError

    is_url = re.match(r"https?://", args.target) is not None
    if is_url and (args.baseline or args.dtype or args.deterministic or args.threads):
        raise UsageError(
            "--baseline, --dtype, --deterministic and --threads need a plan to serve, not a URL"
        )
    if is_url:
        settings = _settings(args, None)
        key = args.api_key or os.environ.get(KEY_VARIABLE) or None
        work = course.against_url(settings, args.target, key, _tell)
    else:
        from tokenrouter.plan.io import named

        plan = named(args.target)
        settings = _settings(args, plan)
        if args.baseline:
            _check_baseline(plan)
        served = course.Served(
            plan=plan,
            path=Path(args.target),
            baseline=args.baseline,
            options=_options(args),
            asked=args.threads,
        )
        work = course.of_plan(settings, served, _tell)
    result = asyncio.run(work)
    _report(args, result)
    if args.svg is not None:
        args.svg.write_text(svg(result), encoding="utf-8")
    return 0


def _check_baseline(plan: Plan) -> None:
    """Refuse a comparison before any server starts."""
    from tokenrouter.bench.single import single

    for model in range(len(plan.models)):
        single(plan, model)


def _report(args: argparse.Namespace, result: Result) -> None:
    import msgspec

    from tokenrouter.bench.table import table

    text = msgspec.json.format(msgspec.json.encode(result), indent=2).decode()
    if args.json is not None and str(args.json) != "-":
        args.json.write_text(text + "\n", encoding="utf-8")
    print(text if str(args.json) == "-" else table(result))


def _options(args: argparse.Namespace) -> list[str]:
    options = ["--max-waiting", str(1 << 20)]
    if args.dtype:
        options += ["--dtype", args.dtype]
    return options + (["--deterministic"] if args.deterministic else [])


def _settings(args: argparse.Namespace, plan: Plan | None) -> Settings:
    from tokenrouter.bench.prompts import Lengths
    from tokenrouter.bench.report import Level
    from tokenrouter.bench.run import Settings
    from tokenrouter.bench.sample import Ask
    from tokenrouter.errors import UsageError

    levels: list[Level] = [Level(concurrency=n) for n in args.concurrency or []]
    levels += [Level(rate=rate) for rate in args.rate or []]
    if args.shared_tokens >= args.prompt_tokens:
        raise UsageError("--shared-tokens leaves nothing of --prompt-tokens to differ")
    return Settings(
        levels=levels or [Level(concurrency=1)],
        requests=args.requests,
        repeat=args.repeat,
        warmup=args.warmup,
        lengths=Lengths(
            prompt=args.prompt_tokens, output=args.output_tokens, shared=args.shared_tokens
        ),
        prompts=args.prompts,
        seed=args.seed,
        ask=Ask(
            model=args.model if plan is None else None,
            temperature=args.temperature,
            ignore_eos=not args.stop_at_eos,
            params=_sets(args.sets, plan),
        ),
        slo=args.slo,
        breakdown=args.breakdown,
    )


def _sets(given: list[str], plan: Plan | None) -> dict[str, float | bool]:
    from tokenrouter.errors import UsageError

    known = None if plan is None else [param.name for param in plan.params]
    out: dict[str, float | bool] = {}
    for text in given:
        name, _, value = text.partition("=")
        if known is not None and name not in known:
            raise UsageError(f"--set {text}: the policy has no param `{name}`")
        try:
            out[name] = value == "true" if value in ("true", "false") else float(value)
        except ValueError:
            raise UsageError(f"--set {text}: write it as NAME=VALUE") from None
    return out


def _tell(line: str) -> None:
    """Print progress where it does not mix with the report."""
    print(line, file=sys.stderr, flush=True)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no positive whole number")
    return int(text)


def _any_count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"`{text}` is no whole number")
    return int(text)


def _counts(text: str) -> list[int]:
    return [_count(part) for part in text.split(",")]


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"`{text}` is no number from 0 on")
    return value


def _rates(text: str) -> list[float]:
    rates = [_number(part) for part in text.split(",")]
    if 0 in rates:
        raise argparse.ArgumentTypeError("a rate of 0 sends nothing")
    return rates


def _slo(text: str) -> Slo:
    from tokenrouter.bench.figures import Slo

    limits: dict[str, float] = {}
    for part in text.split(","):
        found = re.fullmatch(r"(ttft|tpot|e2e)=([0-9.]+)(ms|s)", part.strip())
        if found is None or found[2].count(".") > 1 or found[2] == ".":
            raise argparse.ArgumentTypeError(
                f"`{part}` is no limit; write ttft=500ms, tpot=50ms or e2e=5s"
            )
        limits[found[1]] = float(found[2]) * TIMES[found[3]]
    return Slo(**limits)
