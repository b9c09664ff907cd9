"""`trc check`: everything that can be said of a policy without its model files, and of those what is at hand."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.diagnostics import Diagnostic
    from tokenrouter.dsl.hir import Resolved

NAME = "check"
HELP = "report every mistake of policy files, with the place and the remedy"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="a policy file; `-` is the standard input"
    )
    parser.add_argument(
        "--format", choices=("text", "json", "sarif"), default="text", help="how to report (text)"
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="apply the safe fixes to the files, then report what is left",
    )
    parser.add_argument(
        "--unsafe-fixes",
        action="store_true",
        help="with --fix: apply those too that may change the meaning",
    )


def run(args: argparse.Namespace) -> int:
    """Report every problem in the given files."""
    import gc

    collects = gc.isenabled()
    gc.disable()  # trees hold no cycles, and looking for some takes a fifth of the time of a long file
    try:
        return _files(args)
    finally:
        if collects:
            gc.enable()


def _files(args: argparse.Namespace) -> int:
    from tokenrouter.dsl.source import SourceError
    from tokenrouter.errors import UsageError

    if args.unsafe_fixes and not args.fix:
        raise UsageError("`--unsafe-fixes` goes with `--fix`")
    if args.fix and "-" in args.files:
        raise UsageError("`--fix` mends files, and the standard input is none")
    found: dict[Diagnostic, None] = {}  # files may share an import
    texts: dict[str, str] = {}
    unread = False
    for file in args.files:
        try:
            resolved = _check(file, args)
        except SourceError as error:  # the other files are checked all the same
            print(f"trc check: {error}", file=sys.stderr)
            unread = True
            continue
        found |= dict.fromkeys(resolved.diagnostics)
        texts |= resolved.texts
    _print(list(found), texts, args.format)
    if unread:
        return 2
    return int(any(d.severity == "error" for d in found))


def _check(file: str, args: argparse.Namespace) -> Resolved:
    from tokenrouter.dsl.source import read_input

    name, text = read_input(file)
    if args.fix:
        text = _mend(text, name, unsafe=args.unsafe_fixes)
    return everything(text, name)


def everything(text: str, name: str) -> Resolved:
    """Return what the front end finds; where that is no error, what the passes find, and then what models at hand show."""
    from tokenrouter.compiler.analyse import complete
    from tokenrouter.compiler.at_hand import looking
    from tokenrouter.dsl.load import examine

    return complete(examine(text, name), looking(Path(name).resolve().parent))


def _mend(text: str, name: str, *, unsafe: bool) -> str:
    """Apply fixes until none is left, write the file where one was, and return its text."""
    from tokenrouter.dsl.fixes import apply

    total = 0
    for _ in range(8):  # a fix may uncover another mistake that has one
        text, n = apply(text, name, everything(text, name).diagnostics, unsafe=unsafe)
        total += n
        if not n:
            break
    if total:
        with open(name, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        print(f"{name}: {total} {'fix' if total == 1 else 'fixes'} applied", file=sys.stderr)
    return text


def _print(found: list[Diagnostic], texts: dict[str, str], how: str) -> None:
    import json

    from tokenrouter.dsl.render import print_diagnostics
    from tokenrouter.dsl.report import as_json, as_sarif

    if how == "text":
        print_diagnostics(found, texts)
        return
    import tokenrouter

    value = as_json(found, texts) if how == "json" else as_sarif(found, tokenrouter.__version__)
    print(json.dumps(value, indent=2, ensure_ascii=False))
