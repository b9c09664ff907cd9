"""`trc diff`: what changed in meaning between two plans, and what only in tuning."""

from __future__ import annotations

import argparse

NAME = "diff"
HELP = "tell what changed in meaning between two plans"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("old", help="a plan file")
    parser.add_argument("new", help="a plan file")
    parser.add_argument(
        "--exit-code", action="store_true", help="exit with 1 where the meaning differs"
    )


def run(args: argparse.Namespace) -> int:
    """Print the differences."""
    from tokenrouter.plan.diff import diff
    from tokenrouter.plan.hash import hashes
    from tokenrouter.plan.io import read

    old, new = read(args.old), read(args.new)
    print(diff(old, new) or "the plans mean the same and are tuned the same\n", end="")
    changed = hashes(old).program != hashes(new).program
    return 1 if args.exit_code and changed else 0
