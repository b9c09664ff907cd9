"""`trc compile`: a policy becomes a plan."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.dsl.hir import Resolved

NAME = "compile"
HELP = "compile a policy into a plan"

MOST_BYTES = 1 << 53  # beyond it JSON numbers are not exact


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", help="a .route file")
    parser.add_argument("-o", "--output", metavar="PLAN", help="where to write; stdout otherwise")
    parser.add_argument("--policy", metavar="NAME", help="which policy of the file")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="sets",
        metavar="NAME=VALUE",
        help="give a param another value, as in --set tau=0.2 (repeatable)",
    )
    parser.add_argument(
        "--emit",
        choices=("plan", "ir"),
        default="plan",
        help="what to write; `ir` needs no model files",
    )
    parser.add_argument(
        "--max-active", type=_positive, default=64, metavar="N", help="requests served at once (64)"
    )
    parser.add_argument(
        "--max-wait-ms",
        type=_time,
        metavar="MS",
        help="longest time that a batching window holds a request back (50, or 4 times the longest delay expected)",
    )
    parser.add_argument(
        "--kv-budget",
        type=_size,
        default=1 << 30,
        metavar="SIZE",
        help="memory for the KV pools of all models together, as in 512M or 4G (1G)",
    )
    parser.add_argument(
        "--profile",
        metavar="FILE",
        help="step times and probabilities that `trc profile` measured; a stated machine and assumptions otherwise",
    )
    parser.add_argument(
        "--assume",
        action="append",
        default=[],
        metavar="MODEL.RULE=SHARE|TRACE",
        help="share of a model's decisions on which a rule fires, as in small.0=10%% (`start.0` for start rules), "
        "or a trace of `trc run --trace` to count them in (repeatable); estimates and windows follow",
    )
    parser.add_argument(
        "--machine",
        choices=("cpu", "gpu"),
        default="cpu",
        help="the stated machine, where there is no profile (cpu)",
    )


def run(args: argparse.Namespace) -> int:
    """Compile one policy."""
    from pathlib import Path

    from tokenrouter.dsl.load import load

    resolved = load(args.file, args.policy, _sets(args.sets), one=True)
    text = _ir(resolved) if args.emit == "ir" else _plan(resolved, args)
    if args.output is None:
        print(text, end="")
    elif args.emit == "ir":
        Path(args.output).write_text(text, encoding="utf-8")
    return 0


def _plan(resolved: Resolved, args: argparse.Namespace) -> str:
    """Compile, write where a file is named, and return the plan's text."""
    from pathlib import Path

    from tokenrouter.compiler.compile import compile_resolved
    from tokenrouter.compiler.emit import Tuning
    from tokenrouter.dsl.render import print_diagnostics
    from tokenrouter.plan.io import encode, write
    from tokenrouter.plan.show import narrowed

    given, traces = _given(args.assume)
    tuning = Tuning(args.max_active, args.max_wait_ms, args.kv_budget, given)
    home = None if args.output is None else Path(args.output).parent
    if traces:
        from dataclasses import replace

        from tokenrouter.plan.analyze import read_trace, shares

        plan = compile_resolved(resolved, tuning, home, machine=args.machine).plan
        lines = [line for trace in traces for line in read_trace(trace, plan)]
        tuning = replace(tuning, given=shares(plan, lines) | given)
    compiled = compile_resolved(resolved, tuning, home, profile=args.profile, machine=args.machine)
    print_diagnostics(compiled.diagnostics, resolved.texts)
    plan = compiled.plan
    if args.output is not None:
        write(plan, args.output)
        names = ", ".join(model.name for model in plan.models)
        print(f"{args.output}: policy {plan.policy} over {names}; program {plan.program_hash[:16]}")
        if bound := narrowed(plan):
            print(f"{args.output}: {bound}; `--kv-budget` makes them larger", file=sys.stderr)
    return encode(plan)


def _ir(resolved: Resolved) -> str:
    from tokenrouter.compiler.analyse import analysed, together
    from tokenrouter.dsl.render import print_diagnostics

    auto, found = analysed(resolved)
    print_diagnostics(together(resolved, found), resolved.texts)
    return str(auto)


def _sets(given: list[str]) -> dict[str, str]:
    """Return `--set` arguments by name; raises UsageError."""
    from tokenrouter.errors import UsageError

    out = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise UsageError(f"--set {text}: write it as NAME=VALUE")
        out[name.strip()] = value.strip()
    return out


def _given(texts: list[str]) -> tuple[dict[str, dict[int, float]], list[str]]:
    """Return the shares of `--assume` by model and rule, and its traces; raises UsageError."""
    from tokenrouter.errors import UsageError

    given: dict[str, dict[int, float]] = {}
    traces = []
    for text in texts:
        if "=" not in text:
            traces.append(text)
            continue
        found = re.fullmatch(r"\s*(\w+)\.(\d+)\s*=\s*([\d.eE+-]+)\s*(%?)\s*", text)
        try:
            share = float(found[3]) / (100 if found[4] else 1) if found else -1.0
        except ValueError:
            share = -1.0
        if found is None or not 0.0 <= share <= 1.0:
            raise UsageError(
                f"--assume {text}: write it as MODEL.RULE=SHARE, as in small.0=10%, or name a trace"
            )
        given.setdefault(found[1], {})[int(found[2])] = share
    return given, traces


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def _time(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is no positive time")
    return value


def _size(text: str) -> int:
    """Return a number of bytes, as in 1048576, 512M, 4GiB."""
    units = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
    upper = text.strip().upper().removesuffix("IB").removesuffix("B")
    number, unit = (upper[:-1], upper[-1]) if upper[-1:] in units and upper[-1:] else (upper, "")
    try:
        value = int(float(number) * (1 << units[unit]))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text} is no size; write it as 512M or 4G") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no positive size")
    if value >= MOST_BYTES:
        raise argparse.ArgumentTypeError(f"{text} is more than any machine has")
    return value
