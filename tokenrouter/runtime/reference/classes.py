"""Lexical classes as docs/language.md words them, one pattern each, tried in order; the first that matches is the class."""

from __future__ import annotations

import re
from unicodedata import category

# What stands within words and numbers without making them anything else.
_INNER = "'\u2019\\-.,:"
# Unicode's categories are one letter a character here, so that one pattern speaks of all scripts:
# L letter, M mark that joins a letter, N digit, C sign of programs, I inner sign, P other sign, X anything else.
_CLASSES = (
    ("code", r".*C.*"),
    ("number", r"I*N[NI]*"),
    ("word", r"I*[LM][LMI]*"),
    ("punct", r"[PI]+"),
)
_CODE = "{}[]()<>=;_\\/|&^~@#$%*+`"


def is_class(name: str, text: str, special: bool) -> bool:
    """Return whether a candidate's text is of a lexical class; control tokens are `special` and nothing else."""
    return name == ("special" if special else class_of(text))


def class_of(text: str) -> str | None:
    """Return the class of a text that is no control token; None where it has none."""
    if re.fullmatch(r"\s+", text):
        return "newline" if re.search(r"[\r\n]", text) else "space"
    core = text.strip()
    if not core or "\ufffd" in core:  # nothing, or bytes that are no whole character
        return None
    letters = "".join(_letter(c) for c in core)
    return next((name for name, shape in _CLASSES if re.fullmatch(shape, letters)), None)


def _letter(c: str) -> str:
    if c in _CODE:
        return "C"
    if re.fullmatch(f"[{_INNER}]", c):
        return "I"
    if c.isdigit():
        return "N"
    kind = category(c)[0]
    return kind if kind in "LM" else "P" if kind in "PS" else "X"
