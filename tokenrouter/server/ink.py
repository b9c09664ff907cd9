"""An answer on a terminal: each token in the ink of the model that wrote it.

Without colour the first model's text stands plain and each other model's in brackets of its own, so that nothing is
lost in a pipe, on paper, or to eyes that do not tell the colours apart. What a model writes is text and nothing else:
control characters other than line breaks and tabs are shown, never sent to the terminal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import TextIO

INKS = ("36", "1;33", "35", "32", "34", "31")  # SGR codes; the first two differ in weight too
BRACKETS = (("", ""), ("[", "]"), ("{", "}"), ("<", ">"), ("(", ")"))
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def wants_colour(stream: TextIO) -> bool:
    """Return whether to send colours there: a terminal that knows them and a user who has not declined them."""
    declined = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return stream.isatty() and not declined


def harmless(text: str) -> str:
    """Return the text with control characters made visible."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class Ink:
    """Marks one answer, piece by piece."""

    def __init__(self, models: Sequence[str], colour: bool) -> None:
        self._models = list(models)
        self._colour = colour
        self._now: str | None = None

    def legend(self) -> str:
        """Return one line that shows each model's name in its own ink."""
        return "  ".join(self._begin(name) + name + self._end(name) for name in self._models)

    def write(self, text: str, model: str) -> str:
        """Return what to print for the next piece."""
        if not text:
            return ""
        turn = ""
        if model != self._now:
            turn = self.close() + self._begin(model)
            self._now = model
        return turn + harmless(text)

    def close(self) -> str:
        """Return what ends the ink in use."""
        end = "" if self._now is None else self._end(self._now)
        self._now = None
        return end

    def _begin(self, model: str) -> str:
        at = self._models.index(model)
        return f"\x1b[{INKS[at % len(INKS)]}m" if self._colour else BRACKETS[at % len(BRACKETS)][0]

    def _end(self, model: str) -> str:
        at = self._models.index(model)
        return "\x1b[0m" if self._colour else BRACKETS[at % len(BRACKETS)][1]


def totals(tokens_by_model: Mapping[str, int], handoffs: int, seconds: float) -> str:
    """Return one line: how many tokens, who wrote them, how often the request moved, how fast."""
    n = sum(tokens_by_model.values())
    shares = [
        f"{name} {count} ({count / n:.0%})" if n else f"{name} {count}"
        for name, count in tokens_by_model.items()
    ]
    rate = n / seconds if seconds > 0 else 0.0
    ways = "1 hand-off" if handoffs == 1 else f"{handoffs} hand-offs"
    return f"{n} tokens: {', '.join(shares)}; {ways}; {rate:.1f} tokens/s"
