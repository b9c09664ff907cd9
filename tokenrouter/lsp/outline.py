"""The shape of a file: symbols, folds, links, lenses."""

from __future__ import annotations

import os
import re
from functools import cache, partial
from importlib.resources import files
from pathlib import Path

from lsprotocol import types as t

from tokenrouter.dsl import ast
from tokenrouter.lsp.book import Book, Document, uri_of
from tokenrouter.lsp.shelf import Part

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
    found: list[t.DocumentSymbol] = []
    made = document.shelf.each("symbols", document.placed, _symbols)
    for part, some in zip(document.placed, made, strict=True):
        if part.piece.goes_on:
            found[-1] = _longer(found[-1], part, some)
        else:
            found += some
    return found


def _longer(
    policy: t.DocumentSymbol, part: Part, members: list[t.DocumentSymbol]
) -> t.DocumentSymbol:
    """Return the symbol of a policy with the members of its next grain."""
    piece = part.piece
    end = part.position(min(piece.items[0].end, piece.before + len(piece.text)))
    children = [*(policy.children or ()), *members]
    place = t.Range(policy.range.start, end)
    return t.DocumentSymbol(
        policy.name,
        policy.kind,
        place,
        policy.selection_range,
        policy.detail,
        children=children or None,
    )


def _symbols(part: Part) -> list[t.DocumentSymbol]:
    if part.piece.goes_on:
        (policy,) = part.piece.items
        assert isinstance(policy, ast.Policy)
        return [_member(part, member) for member in policy.members]
    return [_symbol(part, item) for item in part.piece.items]


def _symbol(part: Part, item: ast.Item) -> t.DocumentSymbol:
    name = item.path if isinstance(item, ast.Import) else item.name
    below: list[t.DocumentSymbol] = []
    if isinstance(item, ast.Policy):
        below = [_member(part, member) for member in item.members]
    return t.DocumentSymbol(
        name=name.text.strip('"') or "(no name)",
        kind=_KINDS[type(item)],
        range=part.range(item.start, item.end),
        selection_range=part.range(name.start, name.end),
        detail=type(item).__name__.lower(),
        children=below or None,
    )


def _member(part: Part, member: ast.Member) -> t.DocumentSymbol:
    tree = part.piece.tree
    place = part.range(member.start, member.end)
    if not isinstance(member, ast.At):
        text = tree.one_line(member.start, member.end)
        return t.DocumentSymbol(_short(text), t.SymbolKind.Field, place, place)
    rules = [
        t.DocumentSymbol(
            _short(tree.one_line(rule.start, rule.end)),
            t.SymbolKind.EnumMember,
            part.range(rule.start, rule.end),
            part.range(rule.start, rule.end),
        )
        for rule in member.rules
    ]
    head = part.range(member.model.start, member.model.end)
    name = f"at {member.model.text}"
    return t.DocumentSymbol(name, t.SymbolKind.Method, place, head, children=rules or None)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"


def workspace_symbols(book: Book, query: str) -> list[t.WorkspaceSymbol]:
    """Return the declarations of all files of the workspace whose names hold the letters of a query."""
    found = []
    for path in book.files():
        document = book.document(uri_of(path))
        for item in document.tree.file.items if document is not None else ():
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
    placed = document.placed
    found: dict[int, t.FoldingRange] = {}
    open_: list[int] = []
    comment: list[int] = []
    made = document.shelf.each("folds", placed, _brackets, placed=False)
    events = [
        (kind, line + part.stand.lines)
        for part, some in zip(placed, made, strict=True)
        for kind, line in some
    ]
    for kind, line in [*events, ("$END", -1)]:
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
        if len(comment) > 1:
            _fold_comment(found, comment)
        comment = [line] if kind == "COMMENT" else []
    return [found[line] for line in sorted(found)]


def _brackets(part: Part) -> list[tuple[str, int]]:
    """Return the braces and comments of a part with their lines; "" for a row of anything else."""
    tokens, source = part.piece.tree.tokens, part.piece.tree.source
    found: list[tuple[str, int]] = []
    for token in range(part.piece.first, part.piece.last):
        kind = tokens.kinds[token]
        if kind in ("LBRACE", "RBRACE", "COMMENT"):
            found.append((kind, source.place(tokens.starts[token])[0] - 1))
        elif kind != "SPACE" and (not found or found[-1][0]):
            found.append(("", 0))
    return found


def _fold_comment(found: dict[int, t.FoldingRange], lines: list[int]) -> None:
    kind = t.FoldingRangeKind.Comment
    found.setdefault(lines[0], t.FoldingRange(lines[0], lines[-1], kind=kind))


def links(document: Document) -> list[t.DocumentLink]:
    """Return links to imported files, to files of heads and of models that are here, and from codes in comments to their pages."""
    pages = document.shelf.each("pages", document.placed, _pages)
    found = [link for some in pages for link in some]
    base = os.path.dirname(document.path)
    for some in document.shelf.each("links", document.placed, _paths):
        for place, path in some:
            target = os.path.join(base, path)
            if os.path.isfile(target):
                found.append(t.DocumentLink(place, uri_of(target)))
    return found


def _paths(part: Part) -> list[tuple[t.Range, str]]:
    """Return the strings of a part that name files."""
    found: list[ast.Tok] = []
    for item in part.piece.tree.file.items:
        if isinstance(item, ast.Import):
            found.append(item.path)
        for given in item.properties if isinstance(item, (ast.Model, ast.Head)) else ():
            value = given.value
            text = value.value if isinstance(value, ast.Literal) else None
            if text and text.kind == "STRING" and given.name.text in ("file", "use"):
                found.append(text)
    return [(part.range(tok.start, tok.end), tok.text.strip('"')) for tok in found]


def _pages(part: Part) -> list[t.DocumentLink]:
    """Return the codes that comments of a part name."""
    tokens, found = part.piece.tree.tokens, []
    for token in range(part.piece.first, part.piece.last):
        if tokens.kinds[token] != "COMMENT":
            continue
        for code in re.finditer(r"\bTR\d{4}\b", tokens.text(token)):
            page = _page(code[0])
            if page is not None:
                start = tokens.starts[token]
                place = part.range(start + code.start(), start + code.end())
                found.append(t.DocumentLink(place, page, tooltip=f"what {code[0]} means"))
    return found


@cache
def _page(code: str) -> str | None:
    """Return where the page of a code lies."""
    path = files("tokenrouter.pages").joinpath(f"{code}.md")
    return uri_of(str(path)) if isinstance(path, Path) and path.is_file() else None


def lenses(document: Document) -> list[t.CodeLens]:
    """Return «run test» above tests and «explain» above policies."""
    made = document.shelf.each("lenses", document.placed, partial(_lenses, document.uri))
    return [lens for some in made for lens in some]


def _lenses(uri: str, part: Part) -> list[t.CodeLens]:
    found = []
    for item in part.piece.tree.file.items:
        if isinstance(item, ast.Test):
            arguments = [uri, item.name.text.strip('"')]
            command = t.Command("run test", RUN_TEST, arguments=arguments)
        elif isinstance(item, ast.Policy) and not part.piece.goes_on:
            command = t.Command("explain", EXPLAIN, arguments=[uri, item.name.text])
        else:
            continue
        found.append(t.CodeLens(part.range(item.start, item.start), command))
    return found
