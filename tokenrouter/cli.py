"""`trc`: the verbs, and what becomes of their failures.

A verb is a module of `tokenrouter.commands` with `NAME`, `HELP`, `configure(parser)` and `run(args) -> int`. It is
imported only when it is asked for, and imports what is heavy inside `run`.

Exit status: 0 done, 1 the user's files or machine are wrong (one line on stderr, or diagnostics), 2 wrong usage, or a file
that is named in it and cannot be read, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import tokenrouter
from tokenrouter import commands
from tokenrouter.errors import TokenRouterError, UsageError

USAGE = """usage: trc VERB ...

Compile `.route` policies, in which each token of an answer may come from another model, and serve them.

verbs:
{verbs}

`trc VERB --help` tells about one verb. A first round:

  trc compile examples/demo.route -o plan.json
  trc run plan.json --prompt "Name three rivers."
  trc serve plan.json --port 8000"""


class Verb(Protocol):
    """What a module of `tokenrouter.commands` provides."""

    NAME: str
    HELP: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


def verbs() -> list[str]:
    """Return the names of all verbs: one a module of `tokenrouter.commands`."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def load(verb: str) -> Verb:
    """Return the module of a verb."""
    return cast("Verb", importlib.import_module(f"tokenrouter.commands.{verb}"))


def usage() -> str:
    """Return the text of `trc --help`."""
    rows = [f"  {name:<11} {load(name).HELP}" for name in verbs()]
    return USAGE.format(verbs="\n".join(rows))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status; from the command line a defect of ours is told and is status 2."""
    if argv is not None:
        return _main(list(argv))
    try:
        return _main(sys.argv[1:])
    except Exception:  # noqa: BLE001 whatever it is, it is ours
        traceback.print_exc()
        print("trc: this is a defect of trc itself; the lines above say where", file=sys.stderr)
        return 2


def _main(args: list[str]) -> int:
    if not args:
        print(usage(), file=sys.stderr)
        return 2
    if args[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if args[0] in ("-V", "--version"):
        print(f"trc {tokenrouter.__version__}")
        return 0
    if args[0] not in verbs():
        known = ", ".join(verbs())
        print(f"trc: no verb `{args[0]}`; there are {known}", file=sys.stderr)
        return 2
    return _run(load(args[0]), args[1:])


def _run(verb: Verb, argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"trc {verb.NAME}", description=verb.HELP)
    verb.configure(parser)
    try:
        args = parser.parse_args(argv)
    except SystemExit as end:  # argparse has said what is wrong, or printed the help
        return end.code if isinstance(end.code, int) else 2
    try:
        return verb.run(args)
    except KeyboardInterrupt:
        return 130
    except UsageError as error:
        print(f"trc {verb.NAME}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader went away; nothing is left to say, and Python must not say it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except TokenRouterError as error:
        _tell(verb, error)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        print(f"trc {verb.NAME}: {place}{error.strerror or error}", file=sys.stderr)
    return 1


def _tell(verb: Verb, error: TokenRouterError) -> None:
    from tokenrouter.diagnostics import PolicyError

    if isinstance(error, PolicyError):
        from tokenrouter.dsl.render import print_diagnostics

        print_diagnostics(error.diagnostics, error.texts)
    else:
        print(f"trc {verb.NAME}: {error}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
