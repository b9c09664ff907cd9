"""`trc simulate`: a plan under an arrival process, or under clients that ask again at once, on step times alone."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.plan.structs import Plan
    from tokenrouter.simulate.outcome import Outcome, Spread
    from tokenrouter.simulate.setup import Setup

NAME = "simulate"
HELP = "predict queues, latencies and speeds of a plan under load, without running a model"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("plan", type=Path, help="plan.json, as `trc compile` writes it")
    load = parser.add_mutually_exclusive_group(required=True)
    load.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help='JSON lines of arrivals: {"at": seconds, "output_tokens": tokens, "prompt_tokens": tokens}',
    )
    load.add_argument("--rate", type=positive, metavar="R", help="requests a second, at random")
    load.add_argument(
        "--clients", type=count, metavar="N", help="requests in flight; each ends and is followed"
    )
    parser.add_argument(
        "--n", type=count, default=2000, metavar="N", help="requests of --rate (%(default)s)"
    )
    parser.add_argument(
        "--tokens", type=count, default=20000, metavar="N", help="tokens of --clients (%(default)s)"
    )
    parser.add_argument("--profile", type=Path, metavar="FILE", help="from `trc profile`")
    parser.add_argument(
        "--speed",
        action="append",
        default=[],
        type=speed,
        metavar="MODEL=2x",
        help="that model's steps so many times as fast; may be given for each model",
    )
    parser.add_argument(
        "--output-tokens",
        type=positive,
        metavar="MEAN",
        help="mean length of an answer, whatever the policy would stop",
    )
    parser.add_argument(
        "--prompt-tokens",
        type=count,
        metavar="MEAN",
        help="length of a prompt (the profile's mean; 64 without one)",
    )
    parser.add_argument(
        "--max-active", type=count, metavar="N", help="requests that are admitted (the plan's)"
    )
    parser.add_argument(
        "--windows",
        choices=("fixed", "off", "solve"),
        default="fixed",
        help="the plan's, none, or solved for these numbers (%(default)s)",
    )
    parser.add_argument(
        "--max-stall",
        type=positive,
        default=250.0,
        metavar="MS",
        help="as of `trc serve`: what prompts may take of a batch while others write (%(default)g)",
    )
    parser.add_argument("--seed", type=int, default=0, help="(%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--plot", type=Path, metavar="DIR", help="write throughput.svg and windows.svg there"
    )


def positive(text: str) -> float:
    """Return a positive finite number."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"`{text}` is no positive number")
    return value


def count(text: str) -> int:
    """Return a positive whole number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no positive whole number")
    return int(text)


def speed(text: str) -> tuple[str, float]:
    """Return a model's name and a factor."""
    name, equals, factor = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"`{text}` is not of the form small=2x")
    return name, positive(factor.removesuffix("x"))


def run(args: argparse.Namespace) -> int:
    """Simulate and print."""
    from tokenrouter.plan.io import named
    from tokenrouter.profile.io import check_fits
    from tokenrouter.profile.io import read as read_profile
    from tokenrouter.simulate.setup import prepare

    plan = named(args.plan)
    profile = None
    if args.profile is not None:
        profile = read_profile(args.profile)
        check_fits(profile, plan, str(args.profile))
    setup = prepare(
        plan,
        profile,
        speeds=dict(args.speed),
        output_tokens=args.output_tokens,
        prompt_tokens=args.prompt_tokens,
        max_active=args.max_active,
        windows=args.windows,
        stall_ms=args.max_stall,
    )
    outcome = _simulate(args, plan, setup)
    print(_json(outcome, setup) if args.json else _page(outcome, setup))
    if args.plot is not None:
        _plot(args, plan, setup)
    return 0


def _simulate(args: argparse.Namespace, plan: Plan, setup: Setup) -> Outcome:
    import random

    from tokenrouter.simulate.arrivals import poisson, read
    from tokenrouter.simulate.events import Simulation
    from tokenrouter.simulate.outcome import closed_run, open_run
    from tokenrouter.simulate.setup import CannotSimulate

    names = [model.name for model in plan.models]
    simulation = Simulation(
        setup.spec,
        setup.table,
        setup.max_wait_ms,
        setup.max_active,
        seed=args.seed,
        prompts=setup.prompts,
        first=setup.first,
        stops=setup.stops,
    )
    if args.clients is not None:
        tell(f"simulating {args.clients} clients over {args.tokens} tokens")
        return closed_run(simulation, args.clients, args.tokens, names)
    if args.trace is not None:
        arrivals = read(args.trace)
    else:
        arrivals = list(poisson(args.rate, args.n, random.Random(args.seed)))
    if setup.spec.mean_output_tokens is None and any(a.tokens is None for a in arrivals):
        raise CannotSimulate(
            "nothing says how long an answer is; give --output-tokens, or `output_tokens` in each line of the trace"
        )
    tell(f"simulating {len(arrivals)} requests")
    return open_run(simulation, arrivals, names)


def _plot(args: argparse.Namespace, plan: Plan, setup: Setup) -> None:
    from tokenrouter.simulate.landscape import curves, landscape
    from tokenrouter.simulate.plot import heat_map, line_chart

    names = [model.name for model in plan.models]
    args.plot.mkdir(parents=True, exist_ok=True)
    chart = line_chart(
        f"{plan.policy}: predicted throughput", curves(setup.spec, setup.table, tell)
    )
    _write(args.plot / "throughput.svg", chart)
    if len(names) > 1:
        n = min(args.clients or setup.max_active, setup.max_active)
        drawn = landscape(setup.spec, n, (0, 1), tell)
        title = f"{plan.policy}: windows with {n} active"
        _write(args.plot / "windows.svg", heat_map(title, drawn, names))


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
    tell(f"wrote {path}")


def _json(outcome: Outcome, setup: Setup) -> str:
    import msgspec

    record = {"numbers": setup.source, "max_active": setup.max_active} | msgspec.to_builtins(
        outcome
    )
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode()


def _page(outcome: Outcome, setup: Setup) -> str:
    error = "" if outcome.stderr is None else f" (standard error {outcome.stderr:.1f})"
    lines = [
        f"{outcome.tokens_per_s:.1f} tokens/s{error}, {outcome.mean_active:.1f} of {setup.max_active} active, "
        f"{outcome.mean_queue:.1f} queued",
        f"{outcome.requests} requests in {outcome.seconds:.1f} s of simulated time; step times: {setup.source}; "
        f"prompts of {setup.prompts.tokens} tokens",
    ]
    if not outcome.kept_up:
        lines.append(
            f"the plan does not keep up: {outcome.longest_queue} requests were queued at once"
        )
    if outcome.latency is not None and outcome.first_token is not None:
        lines += [
            "",
            "                   mean       p50       p90       p99",
            _row("first token", outcome.first_token),
            _row("whole answer", outcome.latency),
        ]
        if outcome.speed is not None:
            lines.append(f"{outcome.speed:.1f} tokens/s for one request, once admitted")
    lines += ["", "model         busy  mean batch  wait at gate  launches"]
    for model in outcome.models:
        delay = model.admission_delay
        wait = "-" if delay is None else f"{delay.mean:.1f} ms"
        reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(model.launches.items()))
        lines.append(
            f"{model.name:<12} {100 * model.utilisation:4.0f} %  {model.mean_batch:10.2f}  {wait:>12}  {reasons}"
        )
    return "\n".join(lines)


def _row(name: str, spread: Spread) -> str:
    cells = "".join(
        f"{ms / 1000:8.2f} s" for ms in (spread.mean, spread.p50, spread.p90, spread.p99)
    )
    return f"{name:<14}{cells}"


def tell(line: str) -> None:
    """Print progress where it does not mix with output."""
    print(line, file=sys.stderr, flush=True)
