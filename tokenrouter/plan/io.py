"""Plans on disk: read with one clear line for whatever is wrong, written atomically and readable in review.

The version is looked at before anything else is decoded, so that a reader that is too old says so by name instead of
stumbling over a field that it does not know.

    TokenRouterError
    └── PlanError       the file is missing, is no plan, is of another version, or does not hold together
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path

import msgspec

from tokenrouter.errors import TokenRouterError, UsageError
from tokenrouter.plan.layout import layout
from tokenrouter.plan.structs import MIN_READER, PLAN_VERSION, Plan
from tokenrouter.plan.verify import verify
from tokenrouter.version import __version__

OLDEST = 1  # the oldest plan version that this reader still understands


class PlanError(TokenRouterError):
    """A plan cannot be read or does not hold together; the message names the file."""


# A policy begins with `route N`, behind comments, or imports the language.
_POLICY = re.compile(
    rb"(?:\xef\xbb\xbf)?(?:\s|#[^\n]*\n)*route\s+\d|[^{\[].*tokenrouter\.lang\s+import", re.DOTALL
)


class _Head(msgspec.Struct, frozen=True):
    """What is read first; all other fields are left alone."""

    plan_version: int
    min_reader: int
    producer: str = "an unnamed producer"


def read(path: str | Path) -> Plan:
    """Return the verified plan in a file; raises PlanError."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise PlanError(f"{path}: no such plan; `trc compile` writes one") from None
    except IsADirectoryError:
        raise PlanError(f"{path}: is a directory, not a plan") from None
    except OSError as error:
        raise PlanError(f"{path}: cannot be read: {error.strerror}") from None
    return decode(data, str(path))


def named(path: str | Path) -> Plan:
    """Return the plan that an argument names; raises UsageError."""
    try:
        return read(path)
    except PlanError as error:
        raise UsageError(str(error)) from None


def decode(data: bytes, name: str = "plan") -> Plan:
    """Return the verified plan in JSON text; raises PlanError, whose message begins with `name`."""
    _check_version(data, name)
    try:
        plan = msgspec.json.decode(data, type=Plan)
    except msgspec.ValidationError as error:
        raise PlanError(f"{name}: not a valid plan: {_where(error)}") from None
    problems = verify(plan)
    if problems:
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        raise PlanError(f"{name}: the plan does not hold together: {problems[0]}{more}")
    return plan


def _check_version(data: bytes, name: str) -> None:
    try:
        head = msgspec.json.decode(data, type=_Head)
    except msgspec.ValidationError as error:
        raise PlanError(f"{name}: not a plan: {_where(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if _POLICY.match(data):
            why = f"`trc compile {name} -o plan.json` makes a plan of it"
            raise PlanError(f"{name}: not a plan but a policy; {why}") from None
        raise PlanError(f"{name}: not JSON: {error}") from None
    if head.min_reader > PLAN_VERSION:
        raise PlanError(
            f"{name}: plan version {head.plan_version}, written by {head.producer}, needs a reader of version "
            f"{head.min_reader} or later, and tokenrouter {__version__} reads up to {PLAN_VERSION}; upgrade tokenrouter"
        )
    if head.plan_version < OLDEST:
        raise PlanError(
            f"{name}: plan version {head.plan_version} is too old for tokenrouter {__version__}, which reads from "
            f"{OLDEST} on; compile the policy again"
        )


def _where(error: msgspec.ValidationError) -> str:
    """Return what msgspec says, its first letter lower and the place as `models[0].name`."""
    text, _, place = str(error).partition(" - at `")
    text = text[:1].lower() + text[1:]
    place = place.removesuffix("`").removeprefix("$").removeprefix(".")
    return f"{text} at `{place}`" if place else text


def encode(plan: Plan) -> str:
    """Return a plan as text for review: fields in the order of the structs, one line where it fits."""
    return layout(msgspec.to_builtins(plan))


def write(plan: Plan, path: str | Path) -> None:
    """Write a plan so that a reader finds the old file or the whole new one; raises PlanError."""
    path = Path(path)
    assert plan.plan_version == PLAN_VERSION and plan.min_reader <= MIN_READER, plan.plan_version
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise PlanError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(encode(plan))
        # mkstemp makes a file for its owner only; a plan is as readable as any other file of ours.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise PlanError(f"{path}: cannot be written: {error.strerror}") from None
