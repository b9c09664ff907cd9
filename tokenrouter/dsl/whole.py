"""The tree of a text from its pieces: what `parse` makes of it, with every place where it is in the text."""

from __future__ import annotations

from typing import Any, TypeVar, cast

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import ast
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.pieces import Pieces

T = TypeVar("T")


def whole(pieces: Pieces) -> Tree:
    """Return the tree of a text in pieces."""
    first, _ = pieces.pieces[0]
    if first.name == pieces.source.name:  # it was parsed as a whole
        return first.tree
    kinds: list[str] = []
    starts: list[int] = []
    real: list[int] = []
    unclosed: list[int] = []
    items: list[ast.Item] = []
    lost: list[tuple[int, int]] = []
    lost_names: set[str] = set()
    header = None
    for piece, base in pieces.pieces:
        tree, by = piece.tree, len(kinds) - piece.first
        kinds += tree.tokens.kinds[piece.first : piece.last]
        starts += [start + base for start in tree.tokens.starts[piece.first : piece.last]]
        real += [token + by for token in tree.tokens.real if piece.first <= token < piece.last]
        unclosed += [token + by for token in tree.tokens.unclosed if token < piece.last]
        header = header or shifted(tree.file.header, base)
        items += [shifted(item, base) for item in tree.file.items]
        if not piece.touched:
            lost += [(low + base, high + base) for low, high in tree.lost]
        lost_names |= tree.lost_names
    text = pieces.source.text
    tokens = Tokens(
        pieces.source, [*kinds, "$END"], [*starts, len(text)], [*real, len(kinds)], unclosed
    )
    parts: list[ast.Node] = [*([header] if header else []), *items]
    start = parts[0].start if parts else len(text)
    file = ast.File(start, parts[-1].end if parts else start, header, tuple(items))
    problems = tuple(map(pieces.placed, problems_of(pieces)))
    return Tree(pieces.source, tokens, file, problems, tuple(lost), frozenset(lost_names))


def problems_of(pieces: Pieces) -> list[Diagnostic]:
    """Return what is wrong with a text, in its pieces' own places."""
    return [problem for piece, _ in pieces.pieces for problem in piece.tree.problems]


def shifted(node: T, by: int) -> T:
    """Return a node, or a tuple of nodes, with every place moved."""
    made: Any = node
    if isinstance(node, ast.Tok):
        made = ast.Tok(node.start + by, node.end + by, node.kind, node.text)
    elif isinstance(node, ast.Node):
        below = [shifted(getattr(node, name), by) for name in node.__struct_fields__[2:]]
        made = type(node)(node.start + by, node.end + by, *below)
    elif isinstance(node, tuple):
        made = tuple([shifted(item, by) for item in node])
    return cast("T", made)
