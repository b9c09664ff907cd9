"""Offsets in code points to an editor's positions and back, in whichever encoding was agreed on.

Lines are those of `dsl.source`: an editor's lines end with a line feed, a carriage return, or both, as ours do.
"""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol import types as t

from tokenrouter.diagnostics import Span
from tokenrouter.dsl.source import Source

_BYTES = {"utf-8": ("utf-8", 1), "utf-16": ("utf-16-le", 2), "utf-32": ("utf-32-le", 4)}


@dataclass(frozen=True, slots=True)
class Places:
    """The positions of one text."""

    source: Source
    encoding: str = "utf-16"

    def position(self, offset: int) -> t.Position:
        """Return the position of an offset."""
        line, column = self.source.place(min(offset, len(self.source.text)))
        before = self.source.text[offset - column + 1 : offset]
        return t.Position(line - 1, self.units(before))

    def units(self, text: str) -> int:
        """Return how many units a text has."""
        if text.isascii():
            return len(text)
        codec, size = _BYTES[self.encoding]
        return len(text.encode(codec, "surrogatepass")) // size

    def offset(self, position: t.Position) -> int:
        """Return the offset of a position; one behind the end of its line, or of the text, is that end."""
        starts, text = self.source.starts, self.source.text
        if position.line >= len(starts):
            return len(text)
        start = starts[position.line]
        line = self.source.line(position.line + 1)
        if position.line == 0 and text.startswith("\ufeff"):
            line = "\ufeff" + line
        if line.isascii():
            return start + min(position.character, len(line))
        codec, size = _BYTES[self.encoding]
        cut = line.encode(codec, "surrogatepass")[: position.character * size]
        return start + len(cut.decode(codec, "ignore"))

    def range(self, start: int, end: int) -> t.Range:
        """Return the range between two offsets."""
        return t.Range(self.position(start), self.position(end))

    def of(self, span: Span) -> t.Range:
        """Return the range of a span of this text."""
        return self.range(span.start, span.end)
