"""`trc diff`: what changed in meaning between two plans, and what only in tuning.

Exit status, as of diff(1): 0 where the two mean the same (their tuning may differ), 1 where the meaning differs, 2 where
they cannot be compared.
"""

from __future__ import annotations

import argparse

NAME = "diff"
HELP = "tell what changed in meaning between two plans"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.description = (
        "Tell what changed in meaning between two plans, and what only in tuning. "
        "Exit status: 0 same meaning, 1 other meaning, 2 trouble."
    )
    parser.add_argument("old", help="a plan file")
    parser.add_argument("new", help="a plan file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print the differences."""
    from tokenrouter.compiler.changes import places
    from tokenrouter.plan.diff import difference, encode
    from tokenrouter.plan.diff_text import text
    from tokenrouter.plan.io import named

    old, new = named(args.old), named(args.new)
    told = difference(old, new, places(old, new))
    print(encode(told) if args.json else text(told), end="")
    return 0 if told.same_meaning else 1
