"""Diagnostics as an editor shows them."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from pathlib import Path

from lsprotocol import types as t

from tokenrouter import lang
from tokenrouter.compiler.analyse import complete
from tokenrouter.diagnostics import Diagnostic, Span
from tokenrouter.dsl import ast
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.memory import Memory

_SEVERITY = {
    "error": t.DiagnosticSeverity.Error,
    "warning": t.DiagnosticSeverity.Warning,
    "info": t.DiagnosticSeverity.Information,
}
_FADED = frozenset({"TR1301", "TR2002", "TR2301", "TR2302", "TR2305", "TR2601"})


def find(document: Document, memory: Memory, *, heads: bool = True) -> tuple[Diagnostic, ...]:
    """Return everything that is found in a document: what `trc check` prints; of Python that is no policy, nothing.

    Without `heads` no file of a head is opened.
    """
    if document.python and lang.__name__ not in document.text:
        return ()
    look = partial(memory.analyse, document)
    return complete(document.study.resolved, look, heads=heads).diagnostics


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
    text = document.study.resolved.texts.get(span.file, "")
    if span.file == document.path:
        return t.Location(document.uri, document.places.of(span))
    return t.Location(uri_of(span.file), book.places(span.file, text).of(span))


def _import(document: Document, file: str) -> Span:
    """Return the place of the import by which a file comes in: the first, where it is not imported directly."""
    source = document.study.main.source
    imports = [i for i in document.study.main.file.items if isinstance(i, ast.Import)]
    name = Path(file).name
    direct = [i for i in imports if Path(i.path.text.strip('"')).name == name]
    for item in [*direct, *imports]:
        return source.span(item.path.start, item.path.end)
    return source.span(0, 0)


def _description(code: str) -> t.CodeDescription | None:
    """Return the page of a code, as it lies in the package."""
    path = files("tokenrouter.pages").joinpath(f"{code}.md")
    return t.CodeDescription(uri_of(str(path))) if isinstance(path, Path) else None
