"""The open documents and what was made of them: one study and one set of diagnostics a version, and never an older one.

The text of an open file is the editor's, that of any other the disk's; a file sees those that it imports the same way.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pygls import uris

from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import hir
from tokenrouter.dsl.again import Again, Swift
from tokenrouter.dsl.load import Study, study
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.piece import Piece
from tokenrouter.dsl.scope import Scope
from tokenrouter.dsl.source import Source, SourceError, read_text
from tokenrouter.dsl.whole import whole
from tokenrouter.lsp.place import Places
from tokenrouter.lsp.shelf import Part, Shelf, parts
from tokenrouter.lsp.uses import Use, uses

MOST_FILES = 2000  # of a workspace that are looked at for references
SKIPPED = frozenset({"node_modules", "__pycache__", "build", "dist", "venv"})


def path_of(uri: str) -> str:
    """Return the path behind a URI; of a text without a file, a name."""
    path = uris.to_fs_path(uri) if urlsplit(uri).scheme == "file" else None
    return path if path is not None else unquote(urlsplit(uri).path) or uri


def uri_of(path: str) -> str:
    """Return the URI of a path."""
    return uris.from_fs_path(os.path.abspath(path)) or Path(path).absolute().as_uri()


@dataclass(eq=False)
class Document:
    """One text under its URI; `version` is None for a file that is not open."""

    uri: str
    path: str
    text: str
    version: int | None
    places: Places
    make: Callable[[], Study]
    swift: Swift | None = (
        None  # of a `.route` text that is open: what was found from piece to piece
    )
    shelf: Shelf = field(default_factory=Shelf)  # what answers made of the pieces

    @cached_property
    def study(self) -> Study:
        """The text as the front end reads it from scratch: for what is asked seldom, and not after each key."""
        return self.make()

    @property
    def resolved(self) -> hir.Resolved:
        """What the front end found; policies of an open `.route` text are in the places of their pieces."""
        return self.study.resolved if self.swift is None else self.swift.resolved

    @property
    def scope(self) -> Scope:
        """What names stand for; declarations of an open `.route` text are in the places of their pieces."""
        return self.study.scope if self.swift is None else self.swift.scope

    @cached_property
    def tree(self) -> Tree:
        """The syntax tree."""
        return self.study.main if self.swift is None else whole(self.swift.pieces)

    @cached_property
    def uses(self) -> list[Use]:
        """The names in the text, in source order."""
        return uses(self.tree)

    @cached_property
    def parts(self) -> list[tuple[Piece, int]]:
        """The pieces of the text, policies in grains, each with the offset at which its tree's source begins; it may be one."""
        if self.swift is None:
            return [(self._one, 0)]
        pieces = self.swift.pieces
        return [
            (part, pieces.bases[part.name]) for piece, _ in pieces.pieces for part in piece.parts
        ]

    @cached_property
    def placed(self) -> list[Part]:
        """The pieces with their positions."""
        return parts(self.places, self.parts)

    @cached_property
    def _one(self) -> Piece:
        return Piece(self.path, self.text, self.tree, 0, 0, len(self.tree.tokens.kinds) - 1)

    @cached_property
    def seen(self) -> set[str]:
        """The real paths of this file and of those that it imports."""
        return {os.path.realpath(path) for path in self.resolved.texts}

    @property
    def misses(self) -> bool:
        """Whether a file that this one imports is not there."""
        return any(d.code == "TR1201" for d in self.resolved.diagnostics)

    @property
    def python(self) -> bool:
        """Whether this is a policy in Python."""
        return self.path.endswith(".py")


@dataclass(eq=False, slots=True)
class Open:
    """An open text, what was made of it, and what was found in that."""

    uri: str
    text: str
    version: int
    document: Document | None = None
    found: tuple[Diagnostic, ...] | None = None
    told: bool = False

    def forget(self) -> None:
        """Forget what was made of the text."""
        self.document = self.found = None
        self.told = False


@dataclass(eq=False, slots=True)
class Book:
    """All open texts by path."""

    encoding: str = "utf-16"
    sets: Mapping[str, str] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)
    opened: dict[str, Open] = field(default_factory=dict)
    again: dict[str, tuple[Again, Shelf]] = field(default_factory=dict)  # by path

    def put(self, uri: str, text: str, version: int) -> Open:
        """Take over a text, and forget what was made of those that import it."""
        path = path_of(uri)
        self.opened[path] = Open(uri, text, version)
        self._forget_seers(path)
        return self.opened[path]

    def close(self, uri: str) -> None:
        """Give a text back to the disk."""
        path = path_of(uri)
        self.opened.pop(path, None)
        self.again.pop(path, None)
        self._forget_seers(path)

    def _forget_seers(self, path: str) -> None:
        """Forget what was made of texts that import a file, or miss one, which may be this."""
        real = os.path.realpath(path)
        for entry in self.opened.values():
            document = entry.document
            if document is not None and (real in document.seen or document.misses):
                entry.forget()

    def forget(self) -> None:
        """Forget what was made of every text: one of them, or a file behind them, is another now."""
        for entry in self.opened.values():
            entry.forget()

    def read(self, path: str) -> str:
        """Return a text as the editor has it, or else the disk; raises SourceError."""
        real = os.path.realpath(path)
        for known, entry in self.opened.items():
            if os.path.realpath(known) == real:
                return entry.text
        return read_text(path)

    def document(self, uri: str) -> Document | None:
        """Return what is known of a text; None where there is none to read."""
        path = path_of(uri)
        entry = self.opened.get(path)
        if entry is None:
            return self._closed(path)
        if entry.document is None:
            entry.document = self._made(entry.uri, path, entry.text, entry.version)
        return entry.document

    def _closed(self, path: str) -> Document | None:
        try:
            return self._made(uri_of(path), path, read_text(path), None)
        except SourceError:
            return None

    def _made(self, uri: str, path: str, text: str, version: int | None) -> Document:
        make = partial(study, text, path, self.sets, self.read)
        if version is None or path.endswith(".py"):
            places = Places(Source.of(path, text), self.encoding)
            return Document(uri, path, text, version, places, make)
        again, shelf = self.again.setdefault(path, (Again(path), Shelf()))
        swift = again.study(text, self.sets, self.read)
        places = Places(swift.pieces.source, self.encoding)
        return Document(uri, path, text, version, places, make, swift, shelf)

    def places(self, path: str, text: str) -> Places:
        """Return the positions of any text."""
        return Places(Source.of(path, text), self.encoding)

    def files(self) -> Iterator[str]:
        """Yield the `.route` files that are open or lie in the workspace."""
        seen = {os.path.realpath(path) for path in self.opened if path.endswith(".route")}
        yield from (path for path in self.opened if path.endswith(".route"))
        for folder in self.folders:
            for path in _walk(folder):
                if len(seen) >= MOST_FILES:
                    return
                if os.path.realpath(path) not in seen:
                    seen.add(os.path.realpath(path))
                    yield path


def _walk(folder: str) -> Iterator[str]:
    for base, below, names in os.walk(folder):
        below[:] = sorted(d for d in below if d not in SKIPPED and not d.startswith("."))
        yield from (os.path.join(base, name) for name in sorted(names) if name.endswith(".route"))
