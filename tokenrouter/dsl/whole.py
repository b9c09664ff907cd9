"""The tree of a text from its pieces: what `parse` makes of it, with every place where it is in the text."""

from __future__ import annotations

from tokenrouter.dsl import ast
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.piece import join_tokens, shifted
from tokenrouter.dsl.pieces import Pieces


def whole(pieces: Pieces) -> Tree:
    """Return the tree of a text in pieces."""
    first, _ = pieces.pieces[0]
    if first.name == pieces.source.name:  # it was parsed as a whole
        return first.tree
    items: list[ast.Item] = []
    lost_names: set[str] = set()
    header = None
    for piece, base in pieces.pieces:
        file = piece.tree.file
        header = header or shifted(file.header, base)
        items += [shifted(item, base) for item in file.items]
        lost_names |= piece.lost_names
    tokens, lost = join_tokens(pieces.source, pieces.pieces)
    parts: list[ast.Node] = [*([header] if header else []), *items]
    start = parts[0].start if parts else len(pieces.source.text)
    end = parts[-1].end if parts else start
    problems = [problem for piece, _ in pieces.pieces for problem in piece.problems]
    return Tree(
        pieces.source,
        tokens,
        ast.File(start, end, header, tuple(items)),
        tuple(map(pieces.placed, problems)),
        tuple(lost),
        frozenset(lost_names),
    )
