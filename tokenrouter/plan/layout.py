"""JSON laid out for review: what fits on a line stays on one, and every key keeps its place."""

from __future__ import annotations

import json

WIDTH = 110

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def layout(value: Json) -> str:
    """Return `value` as JSON text that ends with a newline."""
    return _layout(value, "", 0) + "\n"


def _layout(value: Json, indent: str, used: int) -> str:
    """Return `value`, whose first line begins `used` columns to the right of `indent`."""
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    if not isinstance(value, (list, dict)) or len(indent) + used + len(flat) < WIDTH:
        return flat
    inner = indent + "  "
    if isinstance(value, dict):
        rows = []
        for key, item in value.items():
            head = json.dumps(key, ensure_ascii=False) + ": "
            rows.append(inner + head + _layout(item, inner, len(head)))
        return "{\n" + ",\n".join(rows) + "\n" + indent + "}"
    if all(isinstance(item, (int, float)) for item in value):
        return "[\n" + _fill([json.dumps(item) for item in value], inner) + "\n" + indent + "]"
    rows = [inner + _layout(item, inner, 0) for item in value]
    return "[\n" + ",\n".join(rows) + "\n" + indent + "]"


def _fill(words: list[str], indent: str) -> str:
    """Return numbers as filled lines, so that a long table reads as a block."""
    lines = [indent]
    for at, word in enumerate(words):
        text = word + ("," if at + 1 < len(words) else "")
        gap = "" if lines[-1] == indent else " "
        if len(lines[-1]) + len(gap) + len(text) > WIDTH:
            lines.append(indent)
            gap = ""
        lines[-1] += gap + text
    return "\n".join(lines)
