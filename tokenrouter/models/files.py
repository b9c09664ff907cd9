"""Reading a model's JSON files, each failure one line; and telling whether a file is still the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from tokenrouter.models.errors import ModelError


class Identity(NamedTuple):
    """What the file system says of a file: another one after every change, but within the grain of the clock."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int  # which nobody can set back


def identity(path: str | Path) -> Identity:
    """Return what tells a file from others and from itself after a change. Raises OSError."""
    at = os.stat(path)
    return Identity(at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object; raises ModelError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read `{path}`: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelError(f"`{path}` is no valid JSON") from error
    if not isinstance(found, dict):
        raise ModelError(f"`{path}` holds no JSON object")
    return found
