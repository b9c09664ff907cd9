"""A source text and its lines: offsets in code points become lines and columns here, and nowhere else.

A line ends with a line feed, a carriage return, or both. A byte-order mark at the beginning is white space.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from dataclasses import dataclass, field

from tokenrouter.diagnostics import Span
from tokenrouter.errors import UsageError

_BREAK = re.compile(r"\r\n|\n|\r")


class SourceError(UsageError):
    """A policy file that cannot be read."""


@dataclass(frozen=True, slots=True)
class Source:
    """A text under the name that diagnostics give it."""

    name: str
    text: str
    starts: tuple[int, ...] = field(default=(), repr=False)  # offset of each line's first character

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        """Return a source with its lines found."""
        return cls(name, text, (0, *(found.end() for found in _BREAK.finditer(text))))

    def place(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def span(self, start: int, end: int) -> Span:
        """Return the span of a range of offsets, in places as an editor shows them: without a byte-order mark."""
        starts = self.starts
        line = bisect_right(starts, start)
        first = starts[line - 1]
        if line < len(starts) and end >= starts[line]:
            end_line = bisect_right(starts, end)
            end_first = starts[end_line - 1]
        else:
            end_line, end_first = line, first
        column, end_column = start - first + 1, end - end_first + 1
        if line == 1 and self.text.startswith("\ufeff"):
            column -= start > 0
            end_column -= end_line == 1 and end > 0
        return Span(start, end, line, column, end_line, end_column, self.name)

    def line(self, number: int) -> str:
        """Return a line without its end; '' past the last."""
        if number > len(self.starts):
            return ""
        start = self.starts[number - 1]
        end = self.starts[number] if number < len(self.starts) else len(self.text)
        return self.text[start:end].rstrip("\r\n").removeprefix("\ufeff" if number == 1 else "")


def read_input(path: str) -> tuple[str, str]:
    """Return the name and the text of a file, or of the standard input where the path is `-`."""
    if path != "-":
        return path, read_text(path)
    data = sys.stdin.buffer.read()
    try:
        return "<stdin>", data.decode()
    except UnicodeDecodeError as error:
        raise SourceError(_no_text("the standard input", error)) from None


def _no_text(what: str, error: UnicodeDecodeError) -> str:
    return f"{what} is not UTF-8 text: byte {error.start} is {error.object[error.start]:#04x}"


def read_text(path: str) -> str:
    """Return the text of a file; raises SourceError where it is not UTF-8."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise SourceError(_no_text(f"`{path}`", error)) from None
    except OSError as error:
        raise SourceError(
            f"cannot read `{path}`: {(error.strerror or str(error)).lower()}"
        ) from None
    except ValueError as error:  # a name with a null byte in it
        raise SourceError(f"cannot read {path!r}: {error}") from None
    if text.startswith("{") and '"plan_version"' in text[:1000]:
        raise SourceError(
            f"`{path}` is a plan, not a policy; `trc decompile {path}` writes its policy"
        )
    return text
