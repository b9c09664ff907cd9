"""`trc decompile`: a plan becomes policy text again, which compiles to the same meaning."""

from __future__ import annotations

import argparse

NAME = "decompile"
HELP = "write the policy of a plan"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("plan", help="a plan file")
    parser.add_argument(
        "--python", action="store_true", help="write restricted Python, not a .route file"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file, not to stdout")


def run(args: argparse.Namespace) -> int:
    """Write the policy."""
    from pathlib import Path

    from tokenrouter.compiler.decompile import decompile
    from tokenrouter.plan.io import named

    plan = named(args.plan)
    if args.output:
        from tokenrouter.compiler.gather import moved

        plan = moved(plan, Path(args.plan).parent, Path(args.output).parent)
    text = decompile(plan)
    if args.python:
        from tokenrouter.compiler.python_text import python_text
        from tokenrouter.dsl.load import parse_text

        text = python_text(parse_text(text, one=True).only())
    if args.output:
        Path(args.output).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0
