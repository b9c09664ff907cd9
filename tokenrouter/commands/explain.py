"""`trc explain`: a plan as a page, or what a diagnostic's code means."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.plan.structs import Plan

NAME = "explain"
HELP = "show a plan the way a database shows a query plan, or the page of a diagnostic"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("what", metavar="PLAN|CODE", help="a plan file, or a code such as TR2301")
    page = parser.add_mutually_exclusive_group()
    page.add_argument(
        "--analyze",
        metavar="TRACE",
        help="set what a trace of `trc run --trace` shows beside what is expected",
    )
    page.add_argument(
        "--kernel",
        action="store_true",
        help="show the Triton kernels that a GPU runs for the route programs",
    )


def run(args: argparse.Namespace) -> int:
    """Print the page."""
    if re.fullmatch(r"[Tt][Rr]\d+", args.what):
        return _code(args.what.upper())
    from tokenrouter.plan.io import named
    from tokenrouter.plan.show import show

    plan = named(args.what)
    if args.kernel:
        return _kernels(plan)
    if args.analyze is None:
        print(show(plan), end="")
        return 0
    from tokenrouter.plan.analyze import analyze, read_trace

    print(analyze(plan, read_trace(args.analyze, plan)), end="")
    return 0


def _kernels(plan: Plan) -> int:
    """Print the kernels of a plan's route programs."""
    from tokenrouter.runtime.kernel.layout import why_not
    from tokenrouter.runtime.kernel.source import source

    texts = []
    for model, declared in enumerate(plan.models):
        reason = why_not(plan, model)
        text = f"# `{declared.name}` runs as torch operations: {reason}\n"
        texts.append(source(plan, model) if reason is None else text)
    print("\n\n".join(texts), end="")
    return 0


def _code(code: str) -> int:
    """Print what a code means."""
    from tokenrouter.diagnostics import CODES
    from tokenrouter.dsl.nearest import nearest
    from tokenrouter.dsl.pages import page
    from tokenrouter.errors import UsageError

    text = page(code)
    if text is None:
        near = nearest(code, CODES)
        hint = f"; did you mean `{near}`?" if near else ""
        raise UsageError(f"there is no code `{code}`{hint}")
    print(text, end="" if text.endswith("\n") else "\n")
    return 0
