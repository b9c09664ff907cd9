"""Semantic tokens: what each token is, from the lexer, and for names from what they stand for."""

from __future__ import annotations

from functools import partial

from lsprotocol import types as t

from tokenrouter.dsl.lexer import TRIVIA
from tokenrouter.dsl.table import table
from tokenrouter.lsp.book import Document
from tokenrouter.lsp.place import Places
from tokenrouter.lsp.shelf import Part
from tokenrouter.lsp.uses import Use, uses
from tokenrouter.lsp.words import builtin
from tokenrouter.signals import CLASSES

TYPES = (
    "keyword", "comment", "string", "number", "operator", "class", "function", "parameter", "variable", "property",
    "namespace", "enumMember", "type",
)  # fmt: skip
MODIFIERS = ("declaration", "readonly", "defaultLibrary")
LEGEND = t.SemanticTokensLegend(list(TYPES), list(MODIFIERS))
_ENTRIES = {
    "model": ("class", 0),
    "head": ("function", 0),
    "param": ("parameter", 2),
    "var": ("variable", 0),
    "signal": ("property", 0),
}
_UNITS = frozenset({"NATS", "NATS_SQUARED", "MS", "TOKENS", "TOKENS_A_SECOND", "PERCENT"})
_KINDS = {
    "COMMENT": "comment",
    "STRING": "string",
    "NUMBER": "number",
    "ARROW": "operator",
    "COMPARE": "operator",
    "SIGN": "operator",
    "TIMES": "operator",
    "ASSIGN": "operator",
}


def tokens(document: Document, first: int = 0, last: int | None = None) -> list[int]:
    """Return the tokens of a range of lines as the protocol packs them: five numbers each, relative to the last."""
    kinds = {name: entry.kind for name, entry in document.scope.entries.items()}
    placed = document.placed
    packed: list[int] = []
    line = column = 0
    made = document.shelf.each(
        "colours", placed, partial(_coloured, document), knows=kinds, placed=False
    )
    for part, (at, own, behind) in zip(placed, made, strict=True):
        if not own:
            continue
        start, end = part.stand.position(at), part.stand.position(behind)
        if end.line < first or (last is not None and start.line > last):
            continue
        if first or last is not None:
            own, start, end = _cut(own, start, first, last)
            if not own:
                continue
        delta = start.character - (column if start.line == line else 0)
        packed += (start.line - line, delta)
        packed += own[2:]
        line, column = end.line, end.character
    return packed


def changed(before: list[int], now: list[int]) -> list[t.SemanticTokensEdit]:
    """Return the one edit that makes one list of packed tokens of another."""
    most = min(len(before), len(now))
    same = _alike(before, now, most)
    behind = _alike(before[same:][::-1], now[same:][::-1], most - same)
    if same == len(before) == len(now):
        return []
    cut = len(before) - same - behind
    return [t.SemanticTokensEdit(same, cut, now[same : len(now) - behind])]


def _alike(a: list[int], b: list[int], most: int) -> int:
    """Return how many numbers both begin with, at most so many; by halves, since lists are compared fast."""
    low = 0
    while low < most:
        middle = (low + most + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            most = middle - 1
    return low


def _cut(
    own: list[int], start: t.Position, first: int, last: int | None
) -> tuple[list[int], t.Position, t.Position]:
    """Return the tokens of some lines, where the first of them begins, and where the last one does."""
    line, column = start.line, start.character
    kept: list[int] = []
    begin = end = start
    for at in range(0, len(own), 5):
        if at:
            line, column = line + own[at], own[at + 1] + (0 if own[at] else column)
        if line < first or (last is not None and line > last):
            continue
        end = t.Position(line, column)
        begin = end if not kept else begin
        kept += own[at : at + 5]
    return kept, begin, end


def _coloured(document: Document, part: Part) -> tuple[t.Position, list[int], t.Position]:
    """Return the tokens of a part, where the first of them begins in its own source, and where the last one does."""
    tree, places = part.piece.tree, part.places
    words = frozenset(table().words.values())
    named = {use.token.start: use for use in uses(tree)}
    packed: list[int] = []
    first = last = t.Position(0, 0)
    for token in range(part.piece.first, part.piece.last):
        kind = tree.tokens.kinds[token]
        if kind in TRIVIA - {"COMMENT"}:
            continue
        start = tree.tokens.starts[token]
        made = (
            _named(document, named.get(start), tree.tokens.text(token)) if kind == "NAME" else None
        )
        if kind in _UNITS:
            made = ("type", 0)
        elif kind in words:
            made = ("keyword", 0)
        elif kind in _KINDS:
            made = (_KINDS[kind], 0)
        if made is None:
            continue
        at = places.position(start)
        first = first if packed else at
        length = _length(places, tree.tokens.text(token))
        delta = at.character - (last.character if at.line == last.line and packed else 0)
        packed += [at.line - last.line, delta, length, TYPES.index(made[0]), made[1]]
        last = at
    return first, packed, last


def _length(places: Places, text: str) -> int:
    return places.units(text.rstrip("\r\n"))


def _named(document: Document, use: Use | None, text: str) -> tuple[str, int]:
    """Return type and modifiers of a name; one that no node stands for is looked up as it is written."""
    if use is not None and use.kind != "name":
        if use.kind == "policy":
            return "namespace", int(use.declares)
        if use.kind == "unit":
            return "type", 0
        if use.kind == "class" and text in CLASSES:
            return "enumMember", 4
        return ("property", 0) if use.kind in ("property", "field") else ("enumMember", 0)
    entry = document.scope.get(text)
    if entry is not None:
        kind, modifiers = _ENTRIES[entry.kind]
        return kind, modifiers | int(use is not None and use.declares)
    return ("function", 4) if builtin(text) is not None else ("variable", 0)
