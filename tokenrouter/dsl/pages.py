"""The page of a diagnostic, as docs/diagnostics/ holds it."""

from __future__ import annotations

import re
from importlib.resources import files
from typing import NamedTuple

_BLOCK = re.compile(r"```(?:route|python)\n(.*?)```", re.DOTALL)


class Examples(NamedTuple):
    """The two policies of a page: one that has the mistake, one that nearly has it."""

    bad: str
    good: str


def page(code: str) -> str | None:
    """Return a code's page as Markdown; None where there is no such code."""
    path = files("tokenrouter.pages").joinpath(f"{code.upper()}.md")
    return path.read_text(encoding="utf-8") if path.is_file() else None


def examples(text: str) -> Examples:
    """Return the examples of a page."""
    bad, good = _BLOCK.findall(text)
    return Examples(bad, good)
