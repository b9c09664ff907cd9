"""`trc decompile`: a plan becomes policy text again, which compiles to the same meaning."""

from __future__ import annotations

import argparse

NAME = "decompile"
HELP = "write the policy of a plan"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("plan", help="a plan file")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file, not to stdout")


def run(args: argparse.Namespace) -> int:
    """Write the policy."""
    from pathlib import Path

    from tokenrouter.compiler.decompile import decompile
    from tokenrouter.plan.io import read

    text = decompile(read(args.plan))
    if args.output:
        Path(args.output).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0
