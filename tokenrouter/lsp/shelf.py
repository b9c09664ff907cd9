"""What answers made of the pieces of a text, kept as long as the pieces stay, and where a piece stands in the text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar, cast

from lsprotocol import types as t

from tokenrouter.dsl.piece import Piece
from tokenrouter.dsl.source import Source
from tokenrouter.lsp.place import Places

T = TypeVar("T")


class Stand(NamedTuple):
    """Where a piece stands: what its own lines, and the columns of its first line, are short of those of the text."""

    lines: int
    columns: int
    first: int  # its first line in its own source

    @classmethod
    def of(cls, source: Source, piece: Piece, base: int) -> Stand:
        """Return where a piece stands whose source would begin at an offset of a text."""
        line, column = source.place(base + piece.before)
        own, before = piece.tree.source.place(piece.before)
        return cls(
            line - own, column - before, own - 1
        )  # in the text only white space stands before it on its line

    def position(self, own: t.Position) -> t.Position:
        """Return a position in the text."""
        columns = self.columns if own.line == self.first else 0
        return t.Position(own.line + self.lines, own.character + columns)

    def range(self, own: t.Range) -> t.Range:
        """Return a range in the text."""
        return t.Range(self.position(own.start), self.position(own.end))


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A piece of an open text, with the positions in its own source and where those are in the text."""

    piece: Piece
    places: Places
    stand: Stand

    def range(self, start: int, end: int) -> t.Range:
        """Return a range in the text of one of offsets in the piece's source."""
        return self.stand.range(self.places.range(start, end))

    def position(self, offset: int) -> t.Position:
        """Return a position in the text of an offset in the piece's source."""
        return self.stand.position(self.places.position(offset))


def parts(places: Places, pieces: list[tuple[Piece, int]]) -> list[Part]:
    """Return the parts of a text."""
    return [
        Part(
            piece,
            Places(piece.tree.source, places.encoding),
            Stand.of(places.source, piece, base),
        )
        for piece, base in pieces
    ]


@dataclass(eq=False, slots=True)
class Shelf:
    """One thing of a kind for each piece of the last version."""

    kept: dict[str, tuple[object, dict[object, Any]]] = field(default_factory=dict)

    def each(
        self,
        what: str,
        parts_: list[Part],
        make: Callable[[Part], T],
        *,
        knows: object = None,
        placed: bool = True,
    ) -> list[T]:
        """Return what is made of each part, made anew where its piece, its place (if `placed`) or what it `knows` is another."""
        before, old = self.kept.get(what, (None, {}))
        if before != knows:
            old = {}
        keys = [(part.piece, part.stand if placed else None) for part in parts_]
        now: dict[object, Any] = {
            key: old[key] if key in old else make(part)
            for key, part in zip(keys, parts_, strict=True)
        }
        self.kept[what] = (knows, now)
        return cast("list[T]", [now[key] for key in keys])
