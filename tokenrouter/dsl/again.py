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
from tokenrouter.dsl.piece import Piece
from tokenrouter.dsl.pieces import Cutter, Pieces
from tokenrouter.dsl.reads import Block, Face, Ground, Read, face_of, read_item, used_in
from tokenrouter.dsl.scope import Scope, snake
from tokenrouter.dsl.source import Source


@dataclass(frozen=True, slots=True, eq=False)
class Swift:
    """What was found in a text: its policies in the places of their pieces, the diagnostics in those of the text."""

    resolved: hir.Resolved
    scope: Scope
    pieces: Pieces
    missed: bool  # whether a file that is imported could not be read


@dataclass(eq=False, slots=True)
class Again:
    """The versions of one text."""

    path: str
    cutter: Cutter = field(init=False)
    ground: Ground | None = None
    imported: dict[tuple[str, str], Tree] = field(default_factory=dict)
    reads: dict[int, Read] = field(default_factory=dict)

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
            (item, pieces.reach(piece, item)) for piece, _ in pieces.pieces for item in piece.items
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
            found.extend(piece.problems)
            found.lost_names |= piece.lost_names
        for piece, _ in pieces.pieces:
            for item in piece.items:
                if isinstance(item, ast.Import):
                    files.take(piece.tree, item)
        self.imported = kept
        return files

    def _declared(self, pieces: Pieces, imported: list[tuple[Tree, bool]], sets: Sets) -> Ground:
        """Return the declarations, those of before where nothing of them changed."""
        beginning = _beginning(pieces)
        trees = [piece.tree for piece, _ in pieces.pieces if _declares(piece)]
        parts = [part for piece, _ in pieces.pieces for part in piece.parts]
        late = any(says_version(part.tree, part.first, part.last) for part in parts)
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
        used = used_in(scope)
        faces = {name: face_of(scope, name, entry) for name, entry in scope.entries.items()}
        kinds: dict[str, Face] = {
            kind: tuple(faces[n] for n, entry in scope.entries.items() if entry.kind == kind)
            for kind in ("model", "head", "param", "var", "signal")
        }
        self.ground = Ground(key, scope, said, texts, used, faces, kinds)
        return self.ground

    # Policies

    def _policies(self, pieces: Pieces, ground: Ground, found: Findings) -> tuple[hir.Policy, ...]:
        """Return the policies with their declarations and tests, and tell what is wrong with them."""
        kept: dict[int, Read] = {}
        items = [(item, piece) for piece, _ in pieces.pieces for item in piece.items]
        tests: list[tuple[ast.Test, Tree, Read]] = []
        for item, piece in items:
            if isinstance(item, ast.Test):
                tests.append((item, piece.tree, self._read(item, piece, ground, kept)))
                tests[-1][-1].said.say(found)
        by_name: dict[str, tuple[ast.Policy, Tree]] = {}
        made: list[tuple[ast.Policy, Read | None]] = []
        for item, piece in items:
            if not isinstance(item, ast.Policy):
                continue
            tree = piece.parts[0].tree
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
            read = self._read(item, piece, ground, kept)
            read.said.say(found)
            own = [r.test for test, _, r in tests if snake(test.policy.text) == name]
            if first is item and read.policy is not None:
                read.give_tests(tuple(test for test in own if test is not None))
            made.append((item, read if first is item and read.policy is not None else None))
        lost = any(piece.lost for piece, _ in pieces.pieces)
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
        piece: Piece,
        ground: Ground,
        kept: dict[int, Read],
    ) -> Read:
        """Return a policy or test as read before, or read it."""
        known = self.reads.get(id(item))
        if (
            known is None
            or known.item is not item
            or known.parts != piece.parts
            or not known.holds(ground)
        ):
            known = read_item(item, piece, ground, self._blocks())
        kept[id(item)] = known
        return known

    def _blocks(self) -> dict[int, Block]:
        """Return the `at` blocks of the last version."""
        return {key: block for read in self.reads.values() for key, block in read.blocks.items()}

    def _whole(
        self, scope: Scope, ground: Ground, reads: list[Read], found: Findings
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
                    one_type(read.types, now if read.fields else replace(now, blocks=()))
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
    parts = [part for piece, _ in pieces.pieces for part in piece.parts]
    for part in parts:
        if any(part.first <= token < part.last for token in part.tree.tokens.real):
            return part.tree
    return parts[-1].tree


def _declares(piece: Piece) -> bool:
    return any(not isinstance(item, (ast.Policy, ast.Test)) for item in piece.items)


def _alike(one: hir.Policy, other: hir.Policy) -> bool:
    """Return whether the declarations of a policy are the same, places included."""
    parts = ("models", "params", "vars", "heads", "signals", "idle_heads")
    return all(repr(getattr(one, part)) == repr(getattr(other, part)) for part in parts)


__all__ = ["Again", "Swift"]
