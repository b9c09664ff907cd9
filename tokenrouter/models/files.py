"""Reading a model's JSON files, each failure one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenrouter.models.errors import ModelError


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
