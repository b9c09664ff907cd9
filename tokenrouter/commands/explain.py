"""`trc explain`: a plan as a page, or what a diagnostic's code means."""

from __future__ import annotations

import argparse

NAME = "explain"
HELP = "show a plan the way a database shows a query plan, or the page of a diagnostic"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("what", metavar="PLAN|CODE", help="a plan file, or a code such as TR2301")


def run(args: argparse.Namespace) -> int:
    """Print the page."""
    from tokenrouter.plan.io import read
    from tokenrouter.plan.show import show

    print(show(read(args.what)), end="")
    return 0
