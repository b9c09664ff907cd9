"""What was read of a text that is typed, and what it asked for: it holds as long as that is answered the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.findings import Recorded
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.piece import Piece
from tokenrouter.dsl.policies import (
    AtRead,
    PolicyReader,
    mentioned,
    mentioned_in,
    parts_of,
    read_at,
)
from tokenrouter.dsl.scope import Entry, Scope, snake
from tokenrouter.dsl.suites import read_test

Face = tuple[object, ...]  # all that a use of a declaration may ask of it


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """The declarations of a text and what is said of them; `key` holds what they were read from."""

    key: tuple[object, ...]
    scope: Scope
    said: Recorded
    texts: dict[str, str]  # of settings that are wrong
    used: frozenset[str]  # by declarations
    faces: dict[str, Face]
    kinds: dict[str, Face]

    def face(self, name: str) -> Face | None:
        """Return what a name stands for."""
        return self.faces.get(name)


@dataclass(eq=False, slots=True)
class Asking(Scope):
    """A scope that remembers what was asked of it."""

    asked: set[str] = field(default_factory=set)
    kinds: set[str] = field(default_factory=set)

    def get(self, name: str, kind: str | None = None) -> Entry | None:
        """Return what a name stands for, where it is of that kind."""
        self.asked.add(snake(name))
        return Scope.get(self, name, kind)

    def doubled(self, name: str) -> bool:
        """Return whether a name is told to be two things."""
        self.asked.add(snake(name))
        return Scope.doubled(self, name)

    def names(self, *kinds: str) -> list[str]:
        """Return the names of some kinds, as written."""
        self.kinds.update(kinds)
        return Scope.names(self, *kinds)

    def of(self, kind: str) -> list[Entry]:
        """Return the declarations of a kind."""
        self.kinds.add(kind)
        return Scope.of(self, kind)


@dataclass(eq=False, slots=True, kw_only=True)
class _Held:
    """Something that was read, what it said, and what it asked for."""

    tree: Tree
    ground: Ground  # the last that it was held against
    said: Recorded
    used: frozenset[str]
    asked: dict[str, Face | None]
    kinds: dict[str, Face | None]

    def holds(self, ground: Ground) -> bool:
        """Return whether it would be read the same over other declarations."""
        if self.ground is ground:
            return True
        same = all(ground.faces.get(name) == face for name, face in self.asked.items())
        same = same and all(ground.kinds.get(kind) == face for kind, face in self.kinds.items())
        if same:
            self.ground = ground
        return same


@dataclass(eq=False, slots=True, kw_only=True)
class Block(_Held):
    """An `at` block as it was read, and as it stands at its own model."""

    item: ast.At
    read: AtRead
    block: hir.Block | None
    names: frozenset[str]  # that it mentions
    fields: bool  # whether it reads fields of the request


@dataclass(eq=False, slots=True, kw_only=True)
class Read(_Held):
    """A policy or a test as it was read."""

    item: ast.Policy | ast.Test
    parts: tuple[Piece, ...]
    policy: hir.Policy | None
    test: hir.Test | None
    blocks: dict[int, Block]  # by the node
    with_tests: hir.Policy | None = None
    own: frozenset[str] = frozenset()  # names that it mentions
    whole: hir.Policy | None = None  # with its declarations
    given: tuple[object, ...] = ()  # what `whole` was made of
    types: Recorded = field(default_factory=Recorded)

    @property
    def fields(self) -> bool:
        """Whether its blocks read fields of the request."""
        return any(block.fields for block in self.blocks.values())

    def give_tests(self, tests: tuple[hir.Test, ...]) -> None:
        """Give a policy its tests, and note which names it mentions with them."""
        before = self.with_tests
        assert self.policy is not None
        if (
            before is None
            or len(before.tests) != len(tests)
            or any(a is not b for a, b in zip(before.tests, tests, strict=True))
        ):
            known = {id(b.block): b.names for b in self.blocks.values() if b.block is not None}
            self.with_tests = replace(self.policy, tests=tests)
            self.own = frozenset(
                mentioned(self.with_tests, lambda b: known.get(id(b)) or mentioned_in(b))
            )


def read_item(
    item: ast.Policy | ast.Test, piece: Piece, ground: Ground, before: Mapping[int, Block]
) -> Read:
    """Read a policy or a test, and note what it asks for; blocks that were read `before` and hold are not read again."""
    base = ground.scope
    for entry in base.entries.values():
        entry.used = False
    tree = piece.parts[0].tree
    said = Recorded()
    scope = Asking(said, base.entries, base.twice, base.sizes, base.deep)
    policy = test = None
    blocks: dict[int, Block] = {}
    if isinstance(item, ast.Policy):
        more = [(part.tree, _policy(part)) for part in piece.parts[1:]]
        for part, node in ((tree, item), *more):
            for member in node.members:
                if isinstance(member, ast.At):
                    blocks[id(member)] = _block(part, member, ground, before.get(id(member)))
        known = blocks.values()

        def at(tree: Tree, node: ast.At) -> tuple[AtRead, hir.Block | None]:
            block = blocks[id(node)]
            block.said.say(said)
            return block.read, block.block

        policy = PolicyReader(scope, tree, item, more, at).read()
        for block in known:
            scope.asked.update(block.asked)
            scope.kinds.update(block.kinds)
    else:
        _, test = read_test(scope, tree, item)
    return Read(
        item=item,
        parts=piece.parts,
        tree=tree,
        ground=ground,
        policy=policy,
        test=test,
        said=said,
        used=used_in(base).union(*(block.used for block in blocks.values())),
        asked={name: ground.faces.get(name) for name in scope.asked},
        kinds={kind: ground.kinds.get(kind) for kind in scope.kinds},
        blocks=blocks,
    )


def _policy(part: Piece) -> ast.Policy:
    """Return the policy of which a grain holds members."""
    return next(item for item in part.tree.file.items if isinstance(item, ast.Policy))


def _block(tree: Tree, node: ast.At, ground: Ground, before: Block | None) -> Block:
    """Return a block as read before, where it holds, or read it; no declaration is told to be used before or after."""
    if before is not None and before.item is node and before.tree is tree and before.holds(ground):
        return before
    base, said = ground.scope, Recorded()
    scope = Asking(said, base.entries, base.twice, base.sizes, base.deep)
    made = read_at(scope, tree, node)
    block = None
    if made.model not in (None, "any"):
        block = made.at(made.rules, made.model, own=True)
    used = {name for name in scope.asked if name in base.entries and base.entries[name].used}
    for name in used:
        base.entries[name].used = False
    return Block(
        item=node,
        tree=tree,
        ground=ground,
        read=made,
        block=block,
        names=frozenset() if block is None else mentioned_in(block),
        fields=any(isinstance(part, hir.RequestField) for part in _walk(made)),
        said=said,
        used=frozenset(used),
        asked={name: ground.faces.get(name) for name in scope.asked},
        kinds={kind: ground.kinds.get(kind) for kind in scope.kinds},
    )


def _walk(made: AtRead) -> Iterator[hir.Expr]:
    """Yield every part of every expression of a block."""
    for written in made.written:
        exprs = parts_of(written.rule.action)
        for expr in exprs if written.rule.when is None else [written.rule.when, *exprs]:
            yield from hir.walk(expr)


def used_in(scope: Scope) -> frozenset[str]:
    """Return the declarations that are told to be used."""
    return frozenset(name for name, entry in scope.entries.items() if entry.used)


def face_of(scope: Scope, name: str, entry: Entry) -> Face:
    """Return all that a use of a declaration may ask of it; where it is the same, so is what is made of the use."""
    made = entry.hir
    about: object = None
    if isinstance(made, (hir.Param, hir.Var)):
        about = made.unit  # its value is looked at by the passes
    elif isinstance(made, (hir.Head, hir.DerivedSignal)):
        about = repr(made)  # places included
    return (
        name,
        entry.kind,
        entry.node.name.text,
        entry.span(),
        entry.broken,
        made is None,
        name in scope.twice,
        about,
    )
