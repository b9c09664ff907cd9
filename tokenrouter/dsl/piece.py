"""One part of a text, parsed by itself: statements of the top level, or a policy in grains, whose tree is joined when it is asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar, cast

from tokenrouter.diagnostics import Diagnostic, Edit, Span
from tokenrouter.dsl import ast
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.source import Source

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Piece:
    """One part of a text, and what it is by itself: `own` is of a source that may begin before and end behind it.

    A policy may be in grains instead, which are such parts of it: the first begins with its name, the others hold members only.
    """

    name: str
    text: str
    own: Tree | None
    before: int  # characters of the tree's source that stand before the piece
    first: int  # the tokens that are the piece's
    last: int
    reaches: bool = False  # what is lost in it reaches to its end, and so to what follows
    touched: bool = False  # what is lost before it reaches to it
    grains: tuple[Piece, ...] = ()
    goes_on: bool = False  # a grain that is not the first of its policy

    @cached_property
    def tree(self) -> Tree:
        """The tree, in which every place is one in the piece's source."""
        return _joined(self) if self.own is None else self.own

    @property
    def parts(self) -> tuple[Piece, ...]:
        """The grains, or the piece itself."""
        return self.grains or (self,)

    @cached_property
    def problems(self) -> tuple[Diagnostic, ...]:
        """What is wrong with it, in the places of the parts."""
        return tuple([problem for part in self.parts for problem in part.tree.problems])

    @property
    def lost(self) -> bool:
        """Whether a mistake cost something in it, or before it up to it."""
        return any(part.tree.lost for part in self.parts)

    @cached_property
    def lost_names(self) -> frozenset[str]:
        """The names in what is lost."""
        return frozenset().union(*(part.tree.lost_names for part in self.parts))

    @property
    def items(self) -> tuple[ast.Item, ...]:
        """The statements; of a policy in grains the first holds its first members only."""
        return self.parts[0].tree.file.items

    @cached_property
    def size(self) -> int:
        """How many tokens the parser sees in it, about."""
        return sum(len(part.tree.tokens.real) for part in self.parts)

    @cached_property
    def sound(self) -> bool:
        """Whether it parses alone without a mistake."""
        return not self.problems and all(part.touched or not part.tree.lost for part in self.parts)

    def offsets(self) -> Iterator[tuple[Piece, int]]:
        """Yield the parts, each with the offset in the piece at which its tree's source would begin."""
        start = 0 if self.grains else self.before
        for part in self.parts:
            yield part, start - part.before
            start += len(part.text)

    def hit(self) -> Piece:
        """Return the piece as one of which the beginning is lost: what is lost before it reaches to it."""
        if self.grains:
            return replace(self, grains=(self.grains[0].hit(), *self.grains[1:]), touched=True)
        lost = ((self.before, self.before), *self.tree.lost)
        return replace(self, own=replace(self.tree, lost=lost), touched=True)


def grain(name: str, text: str, tree: Tree, before: int, *, reaches: bool = False) -> Piece:
    """Return a part of a policy as a piece, whose text stands in its tree's source behind some characters."""
    first = bisect_left(tree.tokens.starts, before)
    last = bisect_left(tree.tokens.starts, before + len(text))
    return Piece(name, text, tree, before, first, last, reaches, goes_on=before > 0)


def _joined(piece: Piece) -> Tree:
    """Return the tree of a policy in grains."""
    source = Source.of(piece.name, piece.text)
    tokens, lost = join_tokens(source, list(piece.offsets()))
    if piece.touched:
        lost.insert(0, (0, 0))
    members: list[ast.Member] = []
    (policy,) = piece.items
    assert isinstance(policy, ast.Policy)
    end = policy.end
    for part, base in piece.offsets():
        inner = next(i for i in part.tree.file.items if isinstance(i, ast.Policy))
        members += [shifted(member, base) for member in inner.members]
        end = inner.end + base
    whole = ast.Policy(policy.start, end, policy.name, tuple(members))
    file = ast.File(policy.start, end, None, (whole,))
    bases = {part.name: base for part, base in piece.offsets()}

    def place(span: Span) -> Span:
        base = bases[span.file]
        return source.span(span.start + base, span.end + base)

    problems = tuple(moved(problem, place) for problem in piece.problems)
    return Tree(source, tokens, file, problems, tuple(lost), piece.lost_names)


def join_tokens(
    source: Source, parts: list[tuple[Piece, int]]
) -> tuple[Tokens, list[tuple[int, int]]]:
    """Return the tokens of a text and what is lost in it, from its parts and where their sources would begin."""
    kinds: list[str] = []
    starts: list[int] = []
    real: list[int] = []
    unclosed: list[int] = []
    lost: list[tuple[int, int]] = []
    for part, base in parts:
        tree, by = part.tree, len(kinds) - part.first
        kinds += tree.tokens.kinds[part.first : part.last]
        starts += [start + base for start in tree.tokens.starts[part.first : part.last]]
        real += [token + by for token in tree.tokens.real if part.first <= token < part.last]
        unclosed += [token + by for token in tree.tokens.unclosed if token < part.last]
        own = tree.lost[1:] if part.touched else tree.lost  # the first is lost before it
        lost += [(low + base, high + base) for low, high in own]
    ends = [*kinds, "$END"], [*starts, len(source.text)], [*real, len(kinds)]
    return Tokens(source, *ends, unclosed), sorted(lost)


def moved(diagnostic: Diagnostic, place: Callable[[Span], Span]) -> Diagnostic:
    """Return a diagnostic with every place moved."""
    fix = diagnostic.fix
    if fix is not None:
        fix = replace(fix, edits=tuple(Edit(place(e.span), e.text) for e in fix.edits))
    labels = tuple(replace(label, span=place(label.span)) for label in diagnostic.labels)
    return replace(diagnostic, span=place(diagnostic.span), labels=labels, fix=fix)


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
