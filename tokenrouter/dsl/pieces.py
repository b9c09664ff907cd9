"""A text in pieces that are parsed each by itself, so that an edit costs the piece that it is in and not the file.

A piece begins at a word of the top level that is the first on its line. One that parses alone without a mistake means
the same wherever it stands: the parser stands in the same state before and behind it. Around a mistake the parser may look
ahead, so the piece with the mistake is parsed together with what follows, up to where the parser is in step again;
where that cannot be told, the text is one piece. So the pieces are what `parse` makes of the whole text, and a test holds
them to it.

Each piece is a source of its own, whose name no file has: nothing made of it changes when it moves. `Pieces.place` turns
its spans into those of the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, pairwise

from tokenrouter.diagnostics import Diagnostic, Span
from tokenrouter.dsl import ast
from tokenrouter.dsl.grains import Grains
from tokenrouter.dsl.lexer import tokenize
from tokenrouter.dsl.mend import TOP
from tokenrouter.dsl.parse import parse
from tokenrouter.dsl.parse import too_deep as nested_too_deep
from tokenrouter.dsl.piece import Piece, moved
from tokenrouter.dsl.source import Source
from tokenrouter.dsl.table import table
from tokenrouter.dsl.watched import AHEAD, BEFORE, Watched, in_step, left_open, too_deep

_NUL = "\0"  # no file has it in its name
_POLICY = re.compile(r"policy(?!\w)")
_Key = tuple[str, str, str, str]  # name, text, what stands before and behind


@cache
def _border() -> re.Pattern[str]:
    words = sorted(word for word, kind in table().words.items() if kind in TOP)
    return re.compile(rf"[\r\n][ \t]*(?=(?:{'|'.join(words)})(?!\w))")


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """A part of a text between two words of the top level, parsed alone."""

    name: str
    text: str
    alone: Piece
    grains: Grains  # of a policy; of anything else there are none


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """A text in pieces, in order, each with the offset at which its tree's source would begin."""

    source: Source
    pieces: list[tuple[Piece, int]]
    bases: dict[str, int]

    def place(self, span: Span) -> Span:
        """Return the span in the text of one in a piece; any other as it is."""
        base = self.bases.get(span.file)
        return span if base is None else self.source.span(span.start + base, span.end + base)

    def reach(self, piece: Piece, item: ast.Item) -> Span:
        """Return the place of a statement of a piece, which may go on in more grains."""
        parts, ends = piece.parts, item.end + self.bases[piece.parts[-1].name]
        if len(parts) > 1:
            ends = parts[-1].tree.file.items[-1].end + self.bases[parts[-1].name]
        return self.source.span(item.start + self.bases[parts[0].name], ends)

    def placed(self, diagnostic: Diagnostic) -> Diagnostic:
        """Return a diagnostic with its places in the text."""
        return moved(diagnostic, self.place)


@dataclass(eq=False, slots=True)
class Cutter:
    """Cuts the versions of one text, and keeps what did not change from one to the next."""

    path: str
    chunks: list[_Chunk] = field(default_factory=list)
    kept: dict[_Key, Piece] = field(default_factory=dict)  # around mistakes
    names: Iterator[str] = field(init=False)

    def __post_init__(self) -> None:
        self.names = (f"{self.path}{_NUL}{n}" for n in count())

    def cut(self, text: str) -> Pieces:
        """Return a text in pieces."""
        self.chunks = self._chunks(text)
        kept: dict[_Key, Piece] = {}
        made = self._pieces(kept)
        self.kept = kept
        source = Source.of(self.path, text)
        if made is None or (
            any(map(left_open, made)) and nested_too_deep(tokenize(source)[0]) is not None
        ):
            tree = parse(source)
            made = [Piece(self.path, text, tree, 0, 0, len(tree.tokens.kinds) - 1)]
        placed, start = [], 0
        for piece in made:
            placed.append((piece, start - piece.before))
            start += len(piece.text)
        bases = {piece.name: base for piece, base in placed}
        for piece, base in placed:
            if piece.grains:
                bases.update((part.name, base + own) for part, own in piece.offsets())
        return Pieces(source, placed, bases)

    def _chunks(self, text: str) -> list[_Chunk]:
        """Return the chunks of a text, those of the last version wherever they are the same."""
        borders = [0, *(found.end() for found in _border().finditer(text)), len(text)]
        texts = [text[start:end] for start, end in pairwise(borders)]
        old, same = self.chunks, 0
        while same < min(len(old), len(texts)) and old[same].text == texts[same]:
            same += 1
        behind = 0
        while (
            behind < min(len(old), len(texts)) - same
            and old[-1 - behind].text == texts[-1 - behind]
        ):
            behind += 1
        # A chunk that was typed in keeps its name, so that what refers to it need not be looked at again.
        typed = old[same : len(old) - behind]
        fresh = [
            self._chunk(texts[place], typed.pop(0) if typed else None)
            for place in range(same, len(texts) - behind)
        ]
        return [*old[:same], *fresh, *old[len(old) - behind :]]

    def _chunk(self, text: str, before: _Chunk | None) -> _Chunk:
        name = next(self.names) if before is None else before.name
        grains = Grains(name, self.names) if before is None else before.grains
        policy = _POLICY.match(text) is not None
        piece = grains.cut(text) if policy else None
        return _Chunk(name, text, piece or _alone(name, text), grains)

    def _pieces(self, kept: dict[_Key, Piece]) -> list[Piece] | None:
        """Return the pieces; None where the text has to be parsed as a whole."""
        made = [chunk.alone for chunk in self.chunks]
        pieces: list[Piece] = []
        behind = False  # whether a declaration stands before
        at = 0
        while at < len(made):
            piece = made[at]
            if piece.sound or (piece.grains and behind):
                at += 1
            else:
                if not behind:  # the parser is in another state at the beginning
                    at, pieces = 0, []
                found = self._region(at, behind, kept)
                if found is None:
                    return None
                piece, at = found
                if piece.reaches and at < len(made):
                    made[at] = self._touched(made[at], kept)
            behind = behind or bool(piece.items)
            pieces.append(piece)
        return pieces

    def _touched(self, piece: Piece, kept: dict[_Key, Piece]) -> Piece:
        """Return a piece of which the beginning is lost: what is lost before it reaches to it."""
        key = (piece.name, piece.text, "", "touched")
        found = self.kept.get(key)
        if found is None:
            found = piece.hit()
        kept[key] = found
        return found

    def _region(
        self, first: int, behind: bool, kept: dict[_Key, Piece]
    ) -> tuple[Piece, int] | None:
        """Return the piece of a mistake, and the chunk behind it; None where the text has to be parsed as a whole."""
        chunks, last, step = self.chunks, first + 1, 1
        while True:
            seen, end = 0, last
            while end < len(chunks) and seen < AHEAD:
                seen += chunks[end].alone.size
                if not chunks[end].alone.sound:  # another mistake in sight: one piece of both
                    last, seen = end + 1, 0
                end += 1
            text = "".join(chunk.text for chunk in chunks[first:last])
            if "/*" in text or any(too_deep(chunk.alone) for chunk in chunks[first:last]):
                return None
            ahead = "".join(chunk.text for chunk in chunks[last:end])
            whole = end == len(chunks)
            key = (chunks[first].name, text, BEFORE if behind else "", ahead + _NUL * whole)
            piece = self.kept.get(key) or _parsed(*key[:3], ahead, whole=whole)
            if piece is not None:
                kept[key] = piece
                return piece, last
            if last == len(chunks):
                return None
            last = min(len(chunks), last + step)
            step *= 2


def _alone(name: str, text: str) -> Piece:
    tree = parse(Source.of(name, text))
    return Piece(name, text, tree, 0, 0, len(tree.tokens.kinds) - 1)


def _parsed(name: str, text: str, before: str, ahead: str, *, whole: bool) -> Piece | None:
    """Return the piece of a mistake, parsed with what follows; None where it is not over there.

    Where `whole`, the text ends behind that.
    """
    parsers: list[Watched] = []
    tree = parse(Source.of(name, before + text + ahead), Watched.into(parsers))
    end = len(before) + len(text)
    tokens, items = tree.tokens, tree.file.items
    border = bisect_left(tokens.starts, end)
    if not parsers or tokens.starts[border] != end:  # too deep, or a token across the border
        return None
    if ahead:
        parser = parsers[0]
        if not whole and (parser.far or parser.left_open):
            return None
        if not in_step(parser, tree, end, items):
            return None
    own = tuple(item for item in items if len(before) <= item.start < end)
    header = None if before else tree.file.header
    reaches = any(high >= end for _, high in tree.lost)
    clipped = replace(tree, file=ast.File(len(before), end, header, own))
    first = bisect_left(tokens.starts, len(before))
    return Piece(name, text, clipped, len(before), first, border, reaches)
