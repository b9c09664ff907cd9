"""The shape of a file: symbols, folds, links, lenses."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

from lsprotocol import types as t

from tokenrouter.dsl import ast
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.navigate import imported_path
from tokenrouter.lsp.uses import nodes

RUN_TEST = "trc.runTest"
EXPLAIN = "trc.explain"
_KINDS: dict[type, t.SymbolKind] = {
    ast.Import: t.SymbolKind.File,
    ast.Model: t.SymbolKind.Class,
    ast.Head: t.SymbolKind.Function,
    ast.Param: t.SymbolKind.Constant,
    ast.Var: t.SymbolKind.Variable,
    ast.Signal: t.SymbolKind.Property,
    ast.Policy: t.SymbolKind.Module,
    ast.Test: t.SymbolKind.Event,
}


def symbols(document: Document) -> list[t.DocumentSymbol]:
    """Return the declarations of a file, with the blocks and rules of its policies."""
    return [_symbol(document, item) for item in document.study.main.file.items]


def _symbol(document: Document, item: ast.Item) -> t.DocumentSymbol:
    name = item.path if isinstance(item, ast.Import) else item.name
    below: list[t.DocumentSymbol] = []
    if isinstance(item, ast.Policy):
        below = [_member(document, member) for member in item.members]
    return t.DocumentSymbol(
        name=name.text.strip('"') or "(no name)",
        kind=_KINDS[type(item)],
        range=document.places.range(item.start, item.end),
        selection_range=document.places.range(name.start, name.end),
        detail=type(item).__name__.lower(),
        children=below or None,
    )


def _member(document: Document, member: ast.Member) -> t.DocumentSymbol:
    tree, places = document.study.main, document.places
    place = places.range(member.start, member.end)
    if not isinstance(member, ast.At):
        text = tree.one_line(member.start, member.end)
        return t.DocumentSymbol(_short(text), t.SymbolKind.Field, place, place)
    rules = [
        t.DocumentSymbol(
            _short(tree.one_line(rule.start, rule.end)),
            t.SymbolKind.EnumMember,
            places.range(rule.start, rule.end),
            places.range(rule.start, rule.end),
        )
        for rule in member.rules
    ]
    head = places.range(member.model.start, member.model.end)
    name = f"at {member.model.text}"
    return t.DocumentSymbol(name, t.SymbolKind.Method, place, head, children=rules or None)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def workspace_symbols(book: Book, query: str) -> list[t.WorkspaceSymbol]:
    """Return the declarations of all files of the workspace whose names hold the letters of a query."""
    found = []
    for path in book.files():
        document = book.document(uri_of(path))
        for item in document.study.main.file.items if document is not None else ():
            if document is None or isinstance(item, ast.Import):
                continue
            name = item.name.text.strip('"')
            if query.lower() in name.lower():
                place = document.places.range(item.name.start, item.name.end)
                found.append(
                    t.WorkspaceSymbol(
                        location=t.Location(document.uri, place),
                        name=name,
                        kind=_KINDS[type(item)],
                        container_name=os.path.basename(path),
                    )
                )
    return found


def folds(document: Document) -> list[t.FoldingRange]:
    """Return the blocks, and the comments of more than one line."""
    tree = document.study.main
    found: dict[int, t.FoldingRange] = {}
    open_: list[int] = []
    comment: list[int] = []
    for token, kind in enumerate(tree.tokens.kinds):
        line = tree.source.place(tree.tokens.starts[token])[0] - 1
        if kind == "LBRACE":
            open_.append(line)
        elif kind == "RBRACE" and open_:
            first = open_.pop()
            if line > first:
                found.setdefault(
                    first, t.FoldingRange(first, line - 1 if line > first + 1 else line)
                )
        if kind == "COMMENT" and (not comment or line == comment[-1] + 1):
            comment.append(line)
            continue
        if kind != "SPACE" and len(comment) > 1:
            _fold_comment(found, comment)
        if kind not in ("SPACE",):
            comment = [line] if kind == "COMMENT" else []
    return [found[line] for line in sorted(found)]


def _fold_comment(found: dict[int, t.FoldingRange], lines: list[int]) -> None:
    kind = t.FoldingRangeKind.Comment
    found.setdefault(lines[0], t.FoldingRange(lines[0], lines[-1], kind=kind))


def links(document: Document) -> list[t.DocumentLink]:
    """Return links to imported files, to files of heads, and to the files of models that are here."""
    found = []
    base = os.path.dirname(document.path)
    for token, path in _paths(document):
        target = os.path.join(base, path)
        if os.path.isfile(target):
            place = document.places.range(token.start, token.end)
            found.append(t.DocumentLink(place, uri_of(target)))
    return found


def _paths(document: Document) -> Iterator[tuple[ast.Tok, str]]:
    for node in nodes(document.study.main.file):
        if isinstance(node, ast.Import):
            yield (
                node.path,
                os.path.basename(imported_path(document.study.main, node))
                and (node.path.text.strip('"')),
            )
        elif isinstance(node, ast.Property) and node.name.text in ("file", "use"):
            value = node.value
            if isinstance(value, ast.Literal) and value.value.kind == "STRING":
                yield value.value, value.value.text.strip('"')


def page_uri(code: str) -> str | None:
    """Return where the page of a code lies."""
    path = files("tokenrouter.pages").joinpath(f"{code}.md")
    return uri_of(str(path)) if isinstance(path, Path) else None


def lenses(document: Document) -> list[t.CodeLens]:
    """Return «run test» above tests and «explain» above policies."""
    found = []
    for item in document.study.main.file.items:
        if isinstance(item, ast.Test):
            arguments = [document.uri, item.name.text.strip('"')]
            command = t.Command("run test", RUN_TEST, arguments=arguments)
        elif isinstance(item, ast.Policy):
            command = t.Command("explain", EXPLAIN, arguments=[document.uri, item.name.text])
        else:
            continue
        found.append(t.CodeLens(document.places.range(item.start, item.start), command))
    return found
