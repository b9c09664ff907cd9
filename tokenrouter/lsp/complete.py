"""Completion: what can come next, asked of the parser itself.

The text before the word at hand goes through the LALR parser, which recovers from mistakes as ever; which terminals its stack
then takes are the words to offer. Where it takes a name, the tokens before tell of what kind.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lsprotocol import types as t

from tokenrouter.dsl.declare import CHOICES, HEAD_PROPERTIES, MODEL_PROPERTIES, PARTS
from tokenrouter.dsl.expected import PLANNED, accepted
from tokenrouter.dsl.lexer import Tokens, tokenize
from tokenrouter.dsl.policies import OBJECTIVES
from tokenrouter.dsl.recover import Parser
from tokenrouter.dsl.source import Source
from tokenrouter.dsl.table import table
from tokenrouter.dsl.units import DECLARABLE
from tokenrouter.lsp.book import Document
from tokenrouter.lsp.tell import declared
from tokenrouter.lsp.words import PROPERTIES, WORDS, builtin
from tokenrouter.signals import CLASSES, SIGNALS, WINDOWS

_K = t.CompletionItemKind
_ENTRY_KINDS = {
    "model": _K.Class,
    "head": _K.Function,
    "param": _K.Constant,
    "var": _K.Variable,
    "signal": _K.Property,
}
_OF_MODELS = frozenset({"RETRY", "BORROW", "THEN", "AT", "FALLBACK", "FROM", "START", "ARROW"})
_VALUES = frozenset({"TRUE", "FALSE"})
_ALWAYS_MODELS = frozenset({"RETRY", "BORROW", "FALLBACK"})
_FEW = {"OBJECTIVE": OBJECTIVES, "WHERE": ("speed",)}  # words that are no words of the language
_FILES = {"file": (".safetensors", ".pt"), "use": (".gguf", ""), "import": (".route",)}


@dataclass(frozen=True, slots=True)
class _Spot:
    """What is known of the place where something is being typed."""

    accepts: frozenset[str]  # terminals
    before: tuple[tuple[str, str], ...]  # kind and text of the real tokens before, nearest first
    block: tuple[str, str]  # kind of the innermost open block, and what its `{` stands behind

    def kind(self, back: int = 0) -> str:
        """Return the kind of a token before."""
        return self.before[back][0] if back < len(self.before) else ""

    def text(self, back: int = 0) -> str:
        """Return a token before as written."""
        return self.before[back][1] if back < len(self.before) else ""


class _Prefix(Parser):
    """The parser, stopped before the end of the text."""

    def __init__(self, tokens: Tokens) -> None:
        super().__init__(tokens, lambda name, children, first, last: first)

    def stop(self) -> None:
        """Take in every token but the end."""
        at, last_error = 0, -1
        while self.tokens.kinds[self.tokens.real[at]] != "$END":
            token = self.tokens.real[at]
            action = self._settle(self.tokens.kinds[token], token)
            if action:
                self._push(action, token, token, token)
                at += 1
                continue
            at = self.recover(at, quiet=at == last_error)
            last_error = at

    def block(self) -> tuple[str, str]:
        """Return the kind of the innermost open block: of the token that its `{` stands behind, and of the one before."""
        opened = self._open(0)
        if not opened:
            return "", ""
        kinds = [self.tokens.kinds[i] for i in self.tokens.real if i < opened[-1]][-2:]
        return kinds[-1] if kinds else "", kinds[0] if len(kinds) == 2 else ""


def complete(document: Document, offset: int) -> list[t.CompletionItem]:
    """Return what can stand at an offset."""
    text = document.text[:offset]
    start = offset
    while start and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    tokens, _ = tokenize(Source.of(document.path, text[:start]))
    inside = _string(tokens)
    if inside is not None:
        return _paths(document, tokens, inside)
    if tokens.kinds[-2:-1] == ["COMMENT"] and "\n" not in text[tokens.starts[-2] :]:
        return []
    parser = _Prefix(tokens)
    parser.stop()
    before = tuple((tokens.kinds[i], tokens.text(i)) for i in reversed(tokens.real[-9:-1]))
    spot = _Spot(frozenset(accepted(parser)), before, parser.block())
    if spot.kind() == "COLON" and spot.kind(2) in ("PARAM", "VAR"):
        return list(_plain(DECLARABLE, _K.Unit))
    items = {item.label: item for item in [*_names(document, spot), *_words(spot)]}
    return list(items.values())


def _words(spot: _Spot) -> Iterator[t.CompletionItem]:
    """Yield the words and units of the language that the parser takes."""
    for text, terminal in (*table().words.items(), ("nats^2", "NATS_SQUARED"), ("%", "PERCENT")):
        if terminal in spot.accepts and text not in PLANNED:
            if terminal in _VALUES and _takes_a_name(spot):
                continue
            kind = (
                _K.Unit
                if terminal in ("NATS", "NATS_SQUARED", "MS", "PERCENT", "TOKENS")
                else _K.Keyword
            )
            yield t.CompletionItem(
                text, kind=kind, documentation=WORDS.get(text), sort_text=f"2{text}"
            )


def _names(document: Document, spot: _Spot) -> Iterator[t.CompletionItem]:
    """Yield the names that may stand here."""
    block, behind = spot.block
    if spot.kind() == "IS" or (spot.kind() == "NOT" and spot.kind(1) == "IS"):
        if "class" in (spot.text(1), spot.text(2)):
            yield from _plain(CLASSES, _K.EnumMember)
    elif spot.kind() in _ALWAYS_MODELS:  # also where a mistake before has cost the statement
        yield from _entries(document, "model")
    elif "NAME" not in spot.accepts or _is_new(spot):
        return
    elif block == "DOT":
        yield from _plain(PARTS, _K.EnumMember)
    elif block == "NAME" and behind in ("MODEL", "HEAD"):
        yield from _properties(
            document, spot, MODEL_PROPERTIES if behind == "MODEL" else HEAD_PROPERTIES
        )
    elif block == "MIX" or spot.kind() in _OF_MODELS or _in_model_call(spot):
        yield from _entries(document, "model")
    elif spot.kind() in _FEW:
        yield from _plain(_FEW[spot.kind()], _K.EnumMember)
    elif spot.kind() == "FOR" and _in_test(spot):
        yield from _plain((policy.name for policy in document.resolved.policies), _K.Module)
    elif spot.kind() == "SET":
        yield from _entries(document, "var")
    elif "LPAR" in spot.accepts:
        yield from _entries(document, "signal", "param", "var", "head")
        yield from _builtins()


def _takes_a_name(spot: _Spot) -> bool:
    """Return whether only a name means anything here, though the grammar takes any value."""
    block, behind = spot.block
    if block == "NAME" and behind in ("MODEL", "HEAD") and "RBRACE" not in spot.accepts:
        return spot.text() == "reads" or spot.text() in CHOICES
    return _in_model_call(spot) or (spot.kind() == "IS" and spot.text(1) == "class")


def _is_new(spot: _Spot) -> bool:
    """Return whether a name is being declared."""
    return (
        spot.kind() in ("MODEL", "HEAD", "PARAM", "VAR", "SIGNAL", "POLICY")
        and spot.kind(1) != "DOT"
    )


def _in_test(spot: _Spot) -> bool:
    return spot.kind(1) == "STRING" and spot.kind(2) == "TEST"


def _in_model_call(spot: _Spot) -> bool:
    """Return whether the argument of a signal that takes a model is being typed."""
    known = SIGNALS.get(spot.text(1))
    return spot.kind() == "LPAR" and known is not None and "model" in known.args


def _properties(
    document: Document, spot: _Spot, known: tuple[str, ...]
) -> Iterator[t.CompletionItem]:
    if "RBRACE" in spot.accepts:
        for name in known:
            yield t.CompletionItem(
                name, kind=_K.Property, documentation=PROPERTIES[name], sort_text=f"1{name}"
            )
    elif spot.text() == "reads":
        yield from _entries(document, "model")
    else:
        yield from _plain(CHOICES.get(spot.text(), ()), _K.EnumMember)


def _plain(texts: Iterable[str], kind: t.CompletionItemKind) -> Iterator[t.CompletionItem]:
    for text in texts:
        yield t.CompletionItem(text, kind=kind, sort_text=f"1{text}")


def _entries(document: Document, *kinds: str) -> Iterator[t.CompletionItem]:
    for entry in document.scope.entries.values():
        if entry.kind in kinds:
            page = t.MarkupContent(t.MarkupKind.Markdown, declared(entry, document.path))
            name = entry.node.name.text
            yield t.CompletionItem(
                name,
                kind=_ENTRY_KINDS[entry.kind],
                detail=entry.kind,
                documentation=page,
                sort_text=f"0{name}",
            )


def _builtins() -> Iterator[t.CompletionItem]:
    for name in (*SIGNALS, *WINDOWS, "token", "class"):
        page = t.MarkupContent(t.MarkupKind.Markdown, builtin(name) or "")
        kind = (
            _K.Function if name in WINDOWS or (name in SIGNALS and SIGNALS[name].args) else _K.Value
        )
        yield t.CompletionItem(name, kind=kind, documentation=page, sort_text=f"1{name}")


def _string(tokens: Tokens) -> int | None:
    """Return the token of the string that is being typed at the end, which no quote closes yet."""
    if len(tokens.real) < 2:
        return None
    last = tokens.real[-2]
    text = tokens.text(last)
    open_ = tokens.kinds[last] == "STRING" and (len(text) == 1 or not text.endswith('"'))
    return last if open_ and tokens.end(last) == tokens.starts[-1] else None


def _paths(document: Document, tokens: Tokens, string: int) -> list[t.CompletionItem]:
    """Return the files that a string may name: of heads, models and imports, relative to the policy."""
    places = [i for i in tokens.real if i < string]
    word = tokens.text(places[-1]) if places else ""
    if word not in _FILES:
        return []
    typed = tokens.text(string)[1:]
    folder = os.path.join(os.path.dirname(document.path), os.path.dirname(typed))
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda e: e.name)
    except OSError:
        return []
    return [
        t.CompletionItem(
            e.name + ("/" if e.is_dir() else ""), kind=_K.Folder if e.is_dir() else _K.File
        )
        for e in found
        if not e.name.startswith(".")
        and (e.is_dir() or os.path.splitext(e.name)[1] in _FILES[word])
        and os.path.realpath(e.path) != os.path.realpath(document.path)
    ]
