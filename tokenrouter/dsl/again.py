"""The front end of a text that is being typed: what `load.study` finds, going on from what did not change.

The text is in pieces. A policy, or a test, is read again where its piece is another, or where a name that it asked for
stands for something else; what it said is said again otherwise. Declarations are read again together, since one may use any
other. Everything is in the places of its piece until the end, where it gets its place in the text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tokenrouter.diagnostics import Label
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.declare import declare, resolve
from tokenrouter.dsl.doubt import doubted
from tokenrouter.dsl.files import Files, parse_any, real_path
from tokenrouter.dsl.findings import Findings, Recorded
from tokenrouter.dsl.load import (
    Sets,
    closed,
    complete,
    give,
    header,
    in_its_language,
    says_version,
    unused,
)
from tokenrouter.dsl.metadata import one_type
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.pieces import Cutter, Pieces
from tokenrouter.dsl.policies import PolicyReader, mentioned
from tokenrouter.dsl.scope import Entry, Scope, snake
from tokenrouter.dsl.source import Source
from tokenrouter.dsl.suites import read_test

Face = tuple[object, ...]  # all that a use of a declaration may ask of it


@dataclass(frozen=True, slots=True, eq=False)
class Swift:
    """What was found in a text: its policies in the places of their pieces, the diagnostics in those of the text."""

    resolved: hir.Resolved
    scope: Scope
    pieces: Pieces
    missed: bool  # whether a file that is imported could not be read


@dataclass(frozen=True, slots=True, eq=False)
class _Ground:
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
class _Asking(Scope):
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


@dataclass(eq=False, slots=True)
class _Read:
    """A policy or a test as it was read, what it said, and what it asked for."""

    item: ast.Policy | ast.Test
    tree: Tree
    ground: _Ground  # the last that it was held against
    policy: hir.Policy | None
    test: hir.Test | None
    said: Recorded
    used: frozenset[str]
    asked: dict[str, Face | None]
    kinds: dict[str, Face | None]
    with_tests: hir.Policy | None = None
    own: frozenset[str] = frozenset()  # names that it mentions
    whole: hir.Policy | None = None  # with its declarations
    given: tuple[object, ...] = ()  # what `whole` was made of
    types: Recorded = field(default_factory=Recorded)

    def holds(self, ground: _Ground) -> bool:
        """Return whether it would be read the same over other declarations."""
        if self.ground is ground:
            return True
        same = all(ground.faces.get(name) == face for name, face in self.asked.items())
        same = same and all(ground.kinds.get(kind) == face for kind, face in self.kinds.items())
        if same:
            self.ground = ground
        return same


@dataclass(eq=False, slots=True)
class Again:
    """The versions of one text."""

    path: str
    cutter: Cutter = field(init=False)
    ground: _Ground | None = None
    imported: dict[tuple[str, str], Tree] = field(default_factory=dict)
    reads: dict[int, _Read] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cutter = Cutter(self.path)

    def study(self, text: str, sets: Sets, read: Callable[[str], str]) -> Swift:
        """Return what is found in a text; `sets` and `read` are those of `load.study`."""
        pieces = self.cutter.cut(text)
        found = Findings()
        files = self._files(pieces, found, text, read)
        ground = self._declared(pieces, files.trees, sets)
        ground.said.say(found)
        texts = {**files.texts, **ground.texts}
        made = self._policies(pieces, ground, found)
        placed = found.placed(pieces.place, pieces.placed).finish()
        diagnostics = tuple(in_its_language(d) for d in placed)
        places = (
            (item, pieces.place(piece.tree.source.span(item.start, item.end)))
            for piece, _ in pieces.pieces
            for item in piece.tree.file.items
        )
        unsure = doubted(diagnostics, self.path, places)
        resolved = hir.Resolved(self.path, made, diagnostics, texts, unsure)
        missed = any(d.code == "TR1201" for d in diagnostics)
        return Swift(resolved, ground.scope, pieces, missed)

    # Declarations

    def _files(
        self, pieces: Pieces, found: Findings, text: str, read: Callable[[str], str]
    ) -> Files:
        """Return what is imported, and tell what is wrong with the text and with that."""
        kept: dict[tuple[str, str], Tree] = {}

        def known(source: Source) -> Tree:
            key = (source.name, source.text)
            kept[key] = self.imported.get(key) or parse_any(source)
            return kept[key]

        files = Files(found, read, known)
        files.texts[self.path] = text
        files.open.append(real_path(self.path))
        for piece, _ in pieces.pieces:
            found.extend(piece.tree.problems)
            found.lost_names |= piece.tree.lost_names
        for piece, _ in pieces.pieces:
            for item in piece.tree.file.items:
                if isinstance(item, ast.Import):
                    files.take(piece.tree, item)
        self.imported = kept
        return files

    def _declared(self, pieces: Pieces, imported: list[tuple[Tree, bool]], sets: Sets) -> _Ground:
        """Return the declarations, those of before where nothing of them changed."""
        beginning = _beginning(pieces)
        trees = [piece.tree for piece, _ in pieces.pieces if _declares(piece.tree)]
        late = any(says_version(p.tree, p.first, p.last) for p, _ in pieces.pieces)
        key = (beginning, late, *trees, None, *(tree for tree, _ in imported), *sets.items())
        if self.ground is not None and _same(key, self.ground.key):
            return self.ground
        said = Recorded()
        scope = Scope(said)
        for tree, _ in imported:
            header(said, tree, late=says_version(tree, 0, len(tree.tokens.kinds)))
            declare(scope, tree, tree.file.items, imported=True)
        header(said, beginning, late=late)
        for tree in trees:
            declare(scope, tree, tree.file.items, imported=False)
        resolve(scope)
        texts: dict[str, str] = {}
        give(scope, texts, {n: value for n, value in sets.items() if scope.get(n, "param")})
        used = _used(scope)
        faces = {name: _face(scope, name, entry) for name, entry in scope.entries.items()}
        kinds: dict[str, Face] = {
            kind: tuple(faces[n] for n, entry in scope.entries.items() if entry.kind == kind)
            for kind in ("model", "head", "param", "var", "signal")
        }
        self.ground = _Ground(key, scope, said, texts, used, faces, kinds)
        return self.ground

    # Policies

    def _policies(self, pieces: Pieces, ground: _Ground, found: Findings) -> tuple[hir.Policy, ...]:
        """Return the policies with their declarations and tests, and tell what is wrong with them."""
        kept: dict[int, _Read] = {}
        items = [(item, piece.tree) for piece, _ in pieces.pieces for item in piece.tree.file.items]
        tests: list[tuple[ast.Test, Tree, _Read]] = []
        for item, tree in items:
            if isinstance(item, ast.Test):
                tests.append((item, tree, self._read(item, tree, ground, kept)))
                tests[-1][-1].said.say(found)
        by_name: dict[str, tuple[ast.Policy, Tree]] = {}
        made: list[tuple[ast.Policy, _Read | None]] = []
        for item, tree in items:
            if not isinstance(item, ast.Policy):
                continue
            name = snake(item.name.text)
            first, where = by_name.setdefault(name, (item, tree))
            if first is not item:
                label = Label(
                    where.source.span(first.name.start, first.name.end), "it is here first"
                )
                found.add(
                    "TR1006",
                    f"policy `{item.name.text}` is declared twice",
                    tree.source.span(item.name.start, item.name.end),
                    labels=(label,),
                    help="rename one of them, or remove it",
                )
            read = self._read(item, tree, ground, kept)
            read.said.say(found)
            own = [r.test for test, _, r in tests if snake(test.policy.text) == name]
            if first is item and read.policy is not None:
                _give_tests(read, tuple(test for test in own if test is not None))
            made.append((item, read if first is item and read.policy is not None else None))
        lost = any(piece.tree.lost for piece, _ in pieces.pieces)
        for test, tree, _ in tests:
            if snake(test.policy.text) not in by_name and (by_name or not lost):
                span = tree.source.span(test.policy.start, test.policy.end)
                known = [item.name.text for item, _ in items if isinstance(item, ast.Policy)]
                found.unknown("TR1003", "policy", test.policy.text, span, known)
        self.reads = kept
        for name, entry in ground.scope.entries.items():
            entry.used = name in ground.used or any(name in read.used for read in kept.values())
        scope = replace(ground.scope, found=found)
        unused(scope, [(item, read.policy if read else None) for item, read in made], lost=lost)
        return self._whole(scope, ground, [read for _, read in made if read is not None], found)

    def _read(
        self,
        item: ast.Policy | ast.Test,
        tree: Tree,
        ground: _Ground,
        kept: dict[int, _Read],
    ) -> _Read:
        """Return a policy or test as read before, or read it."""
        known = self.reads.get(id(item))
        if (
            known is None
            or known.item is not item
            or known.tree is not tree
            or not known.holds(ground)
        ):
            known = _read(item, tree, ground)
        kept[id(item)] = known
        return known

    def _whole(
        self, scope: Scope, ground: _Ground, reads: list[_Read], found: Findings
    ) -> tuple[hir.Policy, ...]:
        """Return policies with their declarations; the very ones of before where nothing in them changed."""
        own = [closed(scope, set(read.own)) for read in reads]
        everywhere = set().union(*own)
        idle = tuple(sorted(scope.entries.keys() - everywhere))
        made = []
        for read, mine in zip(reads, own, strict=True):
            policy = read.with_tests
            assert policy is not None
            given = (ground, policy, idle)
            if read.whole is None or not _same(given[:2], read.given[:2]) or idle != read.given[2]:
                now = complete(scope, policy, mine, everywhere)
                before = read.given[1] if read.given else None
                if read.whole is None or before is not policy or not _alike(now, read.whole):
                    read.whole, read.types = now, Recorded()
                    one_type(read.types, now)
                read.given = given
            read.types.say(found)
            made.append(read.whole)
        return tuple(made)


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    """Return whether two keys hold the same things: trees by identity, all else by value."""
    return len(one) == len(other) and all(
        a is b or (isinstance(a, tuple) and a == b) for a, b in zip(one, other, strict=True)
    )


def _beginning(pieces: Pieces) -> Tree:
    """Return the tree in which the text begins: that of its first token."""
    for piece, _ in pieces.pieces:
        if any(piece.first <= token < piece.last for token in piece.tree.tokens.real):
            return piece.tree
    return pieces.pieces[-1][0].tree


def _declares(tree: Tree) -> bool:
    return any(not isinstance(item, (ast.Policy, ast.Test)) for item in tree.file.items)


def _used(scope: Scope) -> frozenset[str]:
    return frozenset(name for name, entry in scope.entries.items() if entry.used)


def _face(scope: Scope, name: str, entry: Entry) -> Face:
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


def _read(item: ast.Policy | ast.Test, tree: Tree, ground: _Ground) -> _Read:
    """Read a policy or a test, and note what it asks for."""
    for entry in ground.scope.entries.values():
        entry.used = False
    said = Recorded()
    base = ground.scope
    scope = _Asking(said, base.entries, base.twice, base.sizes, base.deep)
    policy = test = None
    if isinstance(item, ast.Policy):
        policy = PolicyReader(scope, tree, item).read()
    else:
        _, test = read_test(scope, tree, item)
    used = _used(base)
    asked = {name: ground.faces.get(name) for name in scope.asked}
    kinds: dict[str, Face | None] = {kind: ground.kinds.get(kind) for kind in scope.kinds}
    return _Read(item, tree, ground, policy, test, said, used, asked, kinds)


def _give_tests(read: _Read, tests: tuple[hir.Test, ...]) -> None:
    """Give a policy its tests, and note which names it mentions with them."""
    before = read.with_tests
    assert read.policy is not None
    if (
        before is None
        or len(before.tests) != len(tests)
        or any(a is not b for a, b in zip(before.tests, tests, strict=True))
    ):
        read.with_tests = replace(read.policy, tests=tests)
        read.own = frozenset(mentioned(read.with_tests))


def _alike(one: hir.Policy, other: hir.Policy) -> bool:
    """Return whether the declarations of a policy are the same, places included."""
    parts = ("models", "params", "vars", "heads", "signals", "idle_heads")
    return all(repr(getattr(one, part)) == repr(getattr(other, part)) for part in parts)


__all__ = ["Again", "Swift"]
