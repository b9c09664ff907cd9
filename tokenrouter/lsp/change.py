"""Edits: laying out, the fixes of diagnostics, and the rewrites that an editor offers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import pairwise

from lsprotocol import types as t

from tokenrouter.compiler.python_text import python_text
from tokenrouter.diagnostics import Diagnostic, Edit, Fix
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.fixes import apply
from tokenrouter.dsl.layout import layout
from tokenrouter.dsl.load import examine
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.problems import shown
from tokenrouter.lsp.uses import nodes

MOST_COMPARED = 1000  # lines; beyond, a comparison line by line takes long


def laid_out(document: Document, within: t.Range | None = None) -> list[t.TextEdit]:
    """Return what `trc fmt` changes, of the whole text or of some lines; nothing where there are syntax errors."""
    tree = document.tree
    if document.python or tree.problems:
        return []
    starts = [*tree.source.starts, len(document.text)]
    old = [document.text[i:j] for i, j in pairwise(starts) if i < j]
    new = layout(tree).splitlines(keepends=True)
    edits = []
    for i, j, k, m in _hunks(old, new):
        if within is None or _touches(within, i, j):
            place = document.places.range(starts[i], starts[j])
            edits.append(t.TextEdit(place, "".join(new[k:m])))
    return edits


def _hunks(old: list[str], new: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Yield the lines that differ, as ranges of both; where very many do, as one range."""
    first = _alike(old, new)
    rest = _alike(old[first:][::-1], new[first:][::-1])
    i, j, k, m = first, len(old) - rest, first, len(new) - rest
    if max(j - i, m - k) > MOST_COMPARED:
        yield i, j, k, m
        return
    # Lines of the same words go together, so that an edit holds one of them: who asks for some lines gets no others.
    words = [["".join(line.split()) for line in lines] for lines in (old[i:j], new[k:m])]
    matcher = SequenceMatcher(None, words[0], words[1], autojunk=False)
    for tag, a, b, c, d in matcher.get_opcodes():
        if tag != "equal":
            yield i + a, i + b, k + c, k + d
            continue
        for at in range(b - a):
            if old[i + a + at] != new[k + c + at]:
                yield i + a + at, i + a + at + 1, k + c + at, k + c + at + 1


def _alike(a: Sequence[str], b: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def _whole(document: Document, new: str) -> list[t.TextEdit]:
    if new == document.text:
        return []
    return [t.TextEdit(document.places.range(0, len(document.text)), new)]


def _touches(within: t.Range, first: int, end: int) -> bool:
    last = within.end.line - (within.end.character == 0 and within.end.line > within.start.line)
    return first <= last and max(end, first + 1) > within.start.line


def actions(
    book: Book, document: Document, found: tuple[Diagnostic, ...], params: t.CodeActionParams
) -> list[t.CodeAction]:
    """Return the code actions for a range."""
    places = document.places
    low, high = places.offset(params.range.start), places.offset(params.range.end)
    made = [*_fixes(book, document, found, low, high), *_all_fixes(document, found)]
    if not document.python:
        made += _enforce(document, low, high)
    made += _respelt(document, found)
    only = params.context.only
    return [action for action in made if only is None or _wanted(action, only)]


def _wanted(action: t.CodeAction, only: Sequence[t.CodeActionKind | str]) -> bool:
    kind = str(getattr(action.kind, "value", action.kind))
    asked = [str(getattr(one, "value", one)) for one in only]
    return any(kind == one or kind.startswith(f"{one}.") or not one for one in asked)


def _edits(document: Document, edits: Sequence[Edit]) -> t.WorkspaceEdit:
    changes = [t.TextEdit(document.places.of(edit.span), edit.text) for edit in edits]
    return t.WorkspaceEdit(changes={document.uri: changes})


def _fixes(
    book: Book, document: Document, found: tuple[Diagnostic, ...], low: int, high: int
) -> Iterator[t.CodeAction]:
    """Yield the fixes of the diagnostics that a range touches."""
    for diagnostic in found:
        fix, span = diagnostic.fix, diagnostic.span
        if fix is None or span.start > high or low > span.end or not _here(document, fix):
            continue
        yield t.CodeAction(
            fix.title,
            kind=t.CodeActionKind.QuickFix,
            diagnostics=shown(book, document, (diagnostic,)),
            is_preferred=fix.safe,
            edit=_edits(document, fix.edits),
        )


def _here(document: Document, fix: Fix) -> bool:
    return all(edit.span.file == document.path for edit in fix.edits)


def _all_fixes(document: Document, found: tuple[Diagnostic, ...]) -> Iterator[t.CodeAction]:
    """Yield «fix everything that is safe», the same as `trc check --fix`."""
    text, n = apply(document.text, document.path, found)
    total = n
    for _ in range(7):  # a fix may uncover another mistake that has one
        if not n:
            break
        text, n = apply(text, document.path, examine(text, document.path).diagnostics)
        total += n
    if total:
        edit = t.WorkspaceEdit(changes={document.uri: _whole(document, text)})
        title = f"apply {'the safe fix' if total == 1 else f'all {total} safe fixes'}"
        yield t.CodeAction(title, kind=t.CodeActionKind.SourceFixAll, edit=edit)


def _enforce(document: Document, low: int, high: int) -> Iterator[t.CodeAction]:
    for node in nodes(document.tree.file):
        if not isinstance(node, ast.Claim) or node.start > high or low > node.end:
            continue
        other = "guarantee" if node.keyword.text == "enforce" else "enforce"
        span = document.places.source.span(node.keyword.start, node.keyword.end)
        yield t.CodeAction(
            f"turn `{node.keyword.text}` into `{other}`",
            kind=t.CodeActionKind.RefactorRewrite,
            edit=_edits(document, [Edit(span, other)]),
        )


def _respelt(document: Document, found: tuple[Diagnostic, ...]) -> Iterator[t.CodeAction]:
    """Yield «write as Python», or of Python «write as .route», for each policy of a sound file; never over a file that is there."""
    if any(d.severity == "error" for d in found):
        return
    stem = os.path.splitext(document.path)[0]
    ending, language = (".route", ".route") if document.python else (".py", "Python")
    policies = document.study.resolved.policies
    for policy in policies:
        path = stem + ("" if len(policies) == 1 else f"_{policy.name}") + ending
        if not os.path.exists(path):
            text = _other(document, policy)
            yield _new_file(f"write `{policy.name}` as {language}", path, text)


def _other(document: Document, policy: hir.Policy) -> str:
    """Return a policy in the other spelling."""
    if not document.python:
        return python_text(policy)
    from tokenrouter.compiler.respell import route_text  # noqa: PLC0415 takes long to import, and Python files are few

    return route_text(document.study.resolved, policy)


def _new_file(title: str, path: str, text: str) -> t.CodeAction:
    uri, start = uri_of(path), t.Position(0, 0)
    identifier = t.OptionalVersionedTextDocumentIdentifier(uri)
    return t.CodeAction(
        title,
        kind=t.CodeActionKind.RefactorRewrite,
        edit=t.WorkspaceEdit(
            document_changes=[
                t.CreateFile(uri=uri, options=t.CreateFileOptions(overwrite=False)),
                t.TextDocumentEdit(identifier, [t.TextEdit(t.Range(start, start), text)]),
            ]
        ),
    )
