"""Diagnostics as an editor shows them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from lsprotocol import types as t

from tokenrouter import lang
from tokenrouter.compiler.analyse import complete
from tokenrouter.diagnostics import Diagnostic, Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.pieces import Pieces
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.memory import Memory

_SEVERITY = {
    "error": t.DiagnosticSeverity.Error,
    "warning": t.DiagnosticSeverity.Warning,
    "info": t.DiagnosticSeverity.Information,
}
SOON = 60  # rules that the passes look at before anybody notices
_FADED = frozenset({"TR1301", "TR2002", "TR2301", "TR2302", "TR2305", "TR2601"})


class OvertakenError(Exception):
    """The text that is looked at is another now."""


def find(
    document: Document,
    memory: Memory,
    *,
    heads: bool = True,
    overtaken: Callable[[], bool] = lambda: False,
) -> tuple[Diagnostic, ...]:
    """Return everything that is found in a document: what `trc check` prints; of Python that is no policy, nothing.

    Without `heads` no file of a head is opened. Raises OvertakenError between two models of a policy once it is; what was found is kept.
    """
    if document.python and lang.__name__ not in document.text:
        return ()
    if document.swift is None:
        by_text = partial(memory.analyse, document)
        return complete(document.study.resolved, by_text, heads=heads).diagnostics
    resolved, pieces = document.swift.resolved, document.swift.pieces
    policies = {policy.name: policy for policy in resolved.policies}
    shells = tuple(_shell(pieces, policy) for policy in resolved.policies)

    def stop() -> None:
        if overtaken():
            raise OvertakenError

    def look(shell: hir.Policy) -> list[Diagnostic]:
        stop()
        return memory.moved(document.path, pieces, policies[shell.name], stop)

    found = complete(replace(resolved, policies=shells), look, heads=heads)
    memory.keep(document.path, policies.keys())
    return found.diagnostics


def at_once(document: Document, memory: Memory) -> tuple[Diagnostic, ...] | None:
    """Return what is found in a document without long passes; None where all of it is found as soon."""
    if document.swift is None:
        return None
    resolved, pieces = document.swift.resolved, document.swift.pieces
    if sum(memory.ahead(document.path, policy) for policy in resolved.policies) <= SOON:
        return None
    known = tuple(p for p in resolved.policies if memory.knows(document.path, p))
    told = replace(resolved, policies=known)
    look = partial(memory.moved, document.path, pieces)
    return complete(told, look, heads=False).diagnostics


def _shell(pieces: Pieces, policy: hir.Policy) -> hir.Policy:
    """Return what is asked of a policy beside the passes: its heads, where they stand in the text."""
    heads = tuple(replace(head, span=pieces.place(head.span)) for head in policy.heads)
    return hir.Policy(policy.name, (), (), (), heads=heads)


def shown(book: Book, document: Document, found: tuple[Diagnostic, ...]) -> list[t.Diagnostic]:
    """Return diagnostics for an editor; one of an imported file is shown where that is imported."""
    return [_shown(book, document, diagnostic) for diagnostic in found]


def _shown(book: Book, document: Document, diagnostic: Diagnostic) -> t.Diagnostic:
    message = diagnostic.message
    if diagnostic.help:
        message += f"\n{diagnostic.help}"
    related = [(label.span, label.text) for label in diagnostic.labels]
    place = diagnostic.span
    if place.file != document.path:
        if not place.file.startswith("--set "):  # a setting has no file to go to
            related.insert(0, (place, diagnostic.message))
        message = f"in `{Path(place.file).name}`: {message}"
        place = _import(document, place.file)
    return t.Diagnostic(
        range=document.places.of(place),
        message=message,
        severity=_SEVERITY[diagnostic.severity],
        code=diagnostic.code,
        code_description=_description(diagnostic.code),
        source="trc",
        tags=[t.DiagnosticTag.Unnecessary] if diagnostic.code in _FADED else None,
        related_information=[
            t.DiagnosticRelatedInformation(location(book, document, span), text)
            for span, text in related
        ]
        or None,
    )


def location(book: Book, document: Document, span: Span) -> t.Location:
    """Return a place of this document, or of a file that it imports."""
    text = document.resolved.texts.get(span.file, "")
    if span.file == document.path:
        return t.Location(document.uri, document.places.of(span))
    return t.Location(uri_of(span.file), book.places(span.file, text).of(span))


def _import(document: Document, file: str) -> Span:
    """Return the place of the import by which a file comes in: the first, where it is not imported directly."""
    source = document.places.source
    imports = [
        (i.path.text.strip('"'), source.span(i.path.start + base, i.path.end + base))
        for piece, base in document.parts
        for i in piece.items
        if isinstance(i, ast.Import)
    ]
    name = Path(file).name
    direct = [place for path, place in imports if Path(path).name == name]
    return next(iter([*direct, *(place for _, place in imports)]), source.span(0, 0))


@cache
def _description(code: str) -> t.CodeDescription | None:
    """Return the page of a code, as it lies in the package."""
    path = files("tokenrouter.pages").joinpath(f"{code}.md")
    return t.CodeDescription(uri_of(str(path))) if isinstance(path, Path) else None
