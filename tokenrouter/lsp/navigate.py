"""From a name to its declaration, to its uses in all files that share it, and to another spelling of it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from lsprotocol import types as t

from tokenrouter.dsl import ast
from tokenrouter.dsl.declare import TAKEN
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.scope import Entry, snake
from tokenrouter.dsl.table import table
from tokenrouter.errors import TokenRouterError
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.problems import location
from tokenrouter.lsp.uses import Use, at

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class RenameError(TokenRouterError):
    """A name that cannot be given."""


class _Target(NamedTuple):
    """What a name stands for: a declaration, by the real path of its file and its place there."""

    kind: str
    file: str
    start: int
    name: str


def definition(book: Book, document: Document, offset: int) -> t.Location | None:
    """Return the declaration of the name at an offset; of an import, the file."""
    link = _import_at(document, offset)
    if link is not None:
        nothing = t.Position(0, 0)
        return t.Location(uri_of(link), t.Range(nothing, nothing))
    use = at(document.uses, offset)
    if use is None:
        return None
    if use.kind == "policy":
        for item in document.study.main.file.items:
            if isinstance(item, ast.Policy) and snake(item.name.text) == snake(use.token.text):
                return t.Location(
                    document.uri, document.places.range(item.name.start, item.name.end)
                )
    entry = entry_of(document, use)
    return None if entry is None else location(book, document, entry.span())


def entry_of(document: Document, use: Use) -> Entry | None:
    """Return the declaration that a name of the one name space stands for."""
    return document.study.scope.get(use.token.text) if use.kind == "name" else None


def imported_path(tree: Tree, node: ast.Import) -> str:
    """Return the path of an imported file."""
    return os.path.join(os.path.dirname(tree.source.name), node.path.text.strip('"'))


def _import_at(document: Document, offset: int) -> str | None:
    for item in document.study.main.file.items:
        if isinstance(item, ast.Import) and item.path.start <= offset <= item.path.end:
            path = imported_path(document.study.main, item)
            return path if os.path.isfile(path) else None
    return None


def references(
    book: Book, document: Document, offset: int, *, declaration: bool = True
) -> list[t.Location]:
    """Return the uses of the name at an offset, in every file that sees the same declaration."""
    found = []
    for other, use in _same(book, document, offset):
        if declaration or not use.declares:
            found.append(t.Location(other.uri, other.places.range(use.token.start, use.token.end)))
    return found


def highlights(document: Document, offset: int) -> list[t.DocumentHighlight]:
    """Return the uses of the name at an offset in this file."""
    use = at(document.uses, offset)
    if use is None or use.kind not in ("name", "policy"):
        return []
    return [
        t.DocumentHighlight(
            document.places.range(other.token.start, other.token.end),
            t.DocumentHighlightKind.Write if other.declares else t.DocumentHighlightKind.Read,
        )
        for other in document.uses
        if other.kind == use.kind and snake(other.token.text) == snake(use.token.text)
    ]


def renamable(document: Document, offset: int) -> Use | None:
    """Return the name at an offset where it may be given another: it is declared here or imported."""
    use = at(document.uses, offset)
    return use if use is not None and _target(document, use) is not None else None


def rename(book: Book, document: Document, offset: int, new: str) -> t.WorkspaceEdit:
    """Return the edits that give a declaration another name; raises RenameError where that is none or taken."""
    old = renamable(document, offset)
    if old is None:
        raise RenameError("no declared name stands here")
    if not _NAME.fullmatch(new):
        raise RenameError(f"`{new}` is no name: letters a-z, digits and `_` make one")
    if new in table().words or (old.kind == "name" and snake(new) in TAKEN):
        raise RenameError(f"`{new}` means something already")
    changes: dict[str, list[t.TextEdit]] = {}
    for other, use in _same(book, document, offset):
        taken = None if snake(new) == snake(old.token.text) else _taken(other, old.kind, new)
        if taken is not None:
            raise RenameError(f"`{new}` is declared already in `{os.path.basename(taken)}`")
        place = other.places.range(use.token.start, use.token.end)
        changes.setdefault(other.uri, []).append(t.TextEdit(place, new))
    return t.WorkspaceEdit(changes=changes)


def _taken(document: Document, kind: str, name: str) -> str | None:
    """Return the file in which a name is declared that a document sees; None where there is none."""
    if kind == "name":
        entry = document.study.scope.get(name)
        return None if entry is None else entry.tree.source.name
    items = document.study.main.file.items
    named = any(isinstance(i, ast.Policy) and snake(i.name.text) == snake(name) for i in items)
    return document.path if named else None


def _target(document: Document, use: Use) -> _Target | None:
    name = snake(use.token.text)
    if use.kind == "policy":
        return _Target("policy", os.path.realpath(document.path), 0, name)
    entry = entry_of(document, use)
    if entry is None:
        return None
    file = os.path.realpath(entry.tree.source.name)
    return _Target("name", file, entry.node.name.start, name)


def _same(book: Book, document: Document, offset: int) -> Iterator[tuple[Document, Use]]:
    """Yield every use of what the name at an offset stands for."""
    use = at(document.uses, offset)
    target = None if use is None else _target(document, use)
    if target is None:
        return
    for other in _files(book, document, target):
        if target.kind == "name":
            entry = other.study.scope.get(target.name)
            if entry is None or entry.node.name.start != target.start:
                continue
            if os.path.realpath(entry.tree.source.name) != target.file:
                continue
        for found in other.uses:
            if found.kind == target.kind and snake(found.token.text) == target.name:
                yield other, found


def _files(book: Book, document: Document, target: _Target) -> Iterator[Document]:
    """Yield this document, the file of the declaration, and those that may import it, each once."""
    yield document
    if target.kind == "policy":
        return
    seen = {os.path.realpath(document.path)}
    name = os.path.basename(target.file)
    known = {os.path.realpath(path): path for path in document.study.resolved.texts}
    for path in [known.get(target.file, target.file), *known.values(), *book.files()]:
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        if real != target.file and not _imports_any(book, path, name):
            continue
        other = book.document(uri_of(path))
        if other is not None:
            yield other


def _imports_any(book: Book, path: str, name: str) -> bool:
    """Return whether a file may see another: it imports something; most files of a workspace do not."""
    try:
        text = book.read(path)
    except TokenRouterError:
        return False
    return name in text or "import" in text
