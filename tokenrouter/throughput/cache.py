"""Solved tables on disk, by the hash of what they were solved from.

The directory is $TOKENROUTER_CACHE, else $XDG_CACHE_HOME/tokenrouter, else ~/.cache/tokenrouter. A cache is a matter of
speed only: an entry that cannot be read is solved again, one that cannot be written is not kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from tokenrouter.throughput.spec import Spec

MEANING = 4  # goes up with every change after which the solvers may answer otherwise

Value = TypeVar("Value")


def directory() -> Path:
    """Return where solved tables are kept; it need not exist."""
    given = os.environ.get("TOKENROUTER_CACHE")
    if given:
        return Path(given) / "throughput"
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "tokenrouter" / "throughput"


def key(kind: str, spec: Spec) -> str:
    """Return the hash of everything that an answer depends on."""
    data = msgspec.json.encode([MEANING, kind, spec], order="deterministic")
    return hashlib.sha256(data).hexdigest()


def through(kind: str, spec: Spec, form: type[Value], solve: Callable[[], Value]) -> Value:
    """Return the kept answer, or `solve()`'s, which is then kept."""
    path = directory() / f"{kind}-{key(kind, spec)}.json"
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(path.read_bytes(), type=form)
    value = solve()
    with contextlib.suppress(OSError):
        _write(path, msgspec.json.encode(value))
    return value


def _write(path: Path, data: bytes) -> None:
    """Put a whole file in place, so that no reader ever sees half of one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
