"""`trc fmt`: lay policy files out, and nothing else."""

from __future__ import annotations

import argparse
import sys

NAME = "fmt"
HELP = "lay policy files out; comments, order and meaning stay"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a `.route` file; `-` is the standard input"
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 where a file would change"
    )
    parser.add_argument(
        "--diff", action="store_true", help="change nothing; print what would change"
    )


def run(args: argparse.Namespace) -> int:
    """Lay out every file; one with syntax errors is left alone."""
    from tokenrouter.dsl.source import SourceError

    status = 0
    for name in args.files:
        try:
            status = max(status, _file(name, args))
        except SourceError as error:  # the other files are laid out all the same
            print(f"trc fmt: {error}", file=sys.stderr)
            status = 2
    return status


def _file(name: str, args: argparse.Namespace) -> int:
    from tokenrouter.dsl.layout import layout
    from tokenrouter.dsl.parse import parse
    from tokenrouter.dsl.render import print_diagnostics
    from tokenrouter.dsl.source import Source, read_input

    if name.endswith(".py"):
        print(
            f"trc fmt: `{name}` is Python; lay it out with a formatter of Python", file=sys.stderr
        )
        return 2
    shown, old = read_input(name)
    tree = parse(Source.of(shown, old))
    if tree.problems:
        print_diagnostics(tree.problems, {tree.source.name: old})
        return 1
    new = layout(tree)
    if args.diff:
        _diff(shown, old, new)
    if args.check or args.diff:
        if new != old and args.check:
            print(f"{shown}: would change", file=sys.stderr)
        return int(new != old)
    if name == "-":
        sys.stdout.write(new)
    elif new != old:
        with open(name, "w", encoding="utf-8", newline="") as file:
            file.write(new)
        print(f"{name}: laid out", file=sys.stderr)
    return 0


def _diff(name: str, old: str, new: str) -> None:
    from difflib import unified_diff

    lines = unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), name, name)
    sys.stdout.writelines(line if line.endswith("\n") else line + "\n" for line in lines)
