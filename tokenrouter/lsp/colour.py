"""Semantic tokens: what each token is, from the lexer, and for names from what they stand for."""

from __future__ import annotations

from lsprotocol import types as t

from tokenrouter.dsl.lexer import TRIVIA
from tokenrouter.dsl.table import table
from tokenrouter.lsp.book import Document
from tokenrouter.lsp.place import Places
from tokenrouter.lsp.uses import Use
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
    tree, places = document.study.main, document.places
    words = frozenset(table().words.values())
    named = {use.token.start: use for use in document.uses}
    packed: list[int] = []
    line = column = 0
    for token, kind in enumerate(tree.tokens.kinds[:-1]):
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
        if at.line < first or (last is not None and at.line > last):
            continue
        length = _length(places, tree.tokens.text(token))
        delta = at.character - (column if at.line == line else 0)
        packed += [at.line - line, delta, length, TYPES.index(made[0]), made[1]]
        line, column = at.line, at.character
    return packed


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
    entry = document.study.scope.get(text)
    if entry is not None:
        kind, modifiers = _ENTRIES[entry.kind]
        return kind, modifiers | int(use is not None and use.declares)
    return ("function", 4) if builtin(text) is not None else ("variable", 0)
