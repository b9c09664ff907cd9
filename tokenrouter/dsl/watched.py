"""Whether the parser, behind a mistake, is where it would be without it: what tells how much has to be read together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from tokenrouter.dsl import ast
from tokenrouter.dsl.lalr import Build
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.piece import Piece
from tokenrouter.dsl.recover import Parser

BEFORE = "route 1 model x{}\n"  # puts the parser into the state in which it is behind a declaration
AHEAD = 220  # tokens that must follow a mistake's end: the lexer looks 200 ahead, the parser two


class Watched(Parser):
    """The parser, which remembers the tokens as they were, and whether it looked to the end for what it did not find."""

    def __init__(self, tokens: Tokens, build: Build) -> None:
        super().__init__(tokens, build)
        self.kinds, self.real = list(tokens.kinds), list(tokens.real)
        self.far = False

    @classmethod
    def into(cls, made: list[Watched]) -> Callable[[Tokens, Build], Parser]:
        """Return what makes such a parser, and puts it into a list."""

        def make(tokens: Tokens, build: Build) -> Parser:
            made.append(cls(tokens, build))
            return made[-1]

        return make

    def _closer(self, at: int, opens: str = "LBRACE", closes: str = "RBRACE") -> int | None:
        found = super()._closer(at, opens, closes)
        self.far = self.far or found is None
        return found


def in_step(parser: Watched, tree: Tree, end: int, nodes: Sequence[ast.Node]) -> bool:
    """Return whether the parser stood before a node that begins at a place as it stands before any of its list."""
    tokens = tree.tokens
    border = bisect_left(tokens.starts, end)
    if tokens.starts[border] != end:  # a token across the border
        return False
    if any(node.start < end < node.end for node in nodes):
        return False
    if not any(node.start == end for node in nodes):
        return False
    if any(high > end for _, high in tree.lost):
        return False
    before, after = (real[bisect_left(real, border) :] for real in (parser.real, tokens.real))
    return before == after and parser.kinds[border:] == tokens.kinds[border:]


def too_deep(piece: Piece) -> bool:
    """Return whether something in a piece is nested too deep for it to be parsed."""
    return any(problem.code == "TR0215" for problem in piece.problems)


def left_open(piece: Piece) -> bool:
    """Return whether a piece leaves a `(` open, which counts for how deep what follows is."""
    if piece.sound or piece.grains:  # none does in a policy that is in grains
        return False
    depth, kinds = 0, piece.tree.tokens.kinds
    for token in range(piece.first, piece.last):
        depth += (kinds[token] == "LPAR") - (kinds[token] == "RPAR")
        if kinds[token] in ("LBRACE", "RBRACE"):
            depth = 0
    return depth > 0
