"""What the passes found in a policy, kept as long as it and its declarations stay.

Only the policy that is being typed is looked at anew; places move with the text. A policy of a `.route` text that is open is
the very same object as long as nothing in it changed (`dsl.again`); one in Python is known by its text.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from tokenrouter.compiler.analyse import analyse, analyse_again
from tokenrouter.compiler.seen import Seen
from tokenrouter.diagnostics import Diagnostic, Edit, Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.pieces import Pieces
from tokenrouter.dsl.scope import snake
from tokenrouter.lsp.book import Document


@dataclass(frozen=True, slots=True)
class _Kept:
    """What was found, of which text, and where its parts began."""

    key: object
    starts: list[int]
    ends: list[int]
    found: list[Diagnostic]


@dataclass(eq=False, slots=True)
class Memory:
    """The last finding of each policy, by file and name."""

    kept: dict[tuple[str, str], _Kept] = field(default_factory=dict)

    same: dict[tuple[str, str], tuple[hir.Policy, list[Diagnostic]]] = field(default_factory=dict)
    seen: dict[tuple[str, str], Seen] = field(default_factory=dict)  # their states

    def knows(self, path: str, policy: hir.Policy) -> bool:
        """Return whether it is known what the passes find in a policy of pieces."""
        kept = self.same.get((path, policy.name))
        return kept is not None and kept[0] is policy

    def ahead(self, path: str, policy: hir.Policy) -> int:
        """Return how many rules of a policy of pieces the passes have to look at."""
        if self.knows(path, policy):
            return 0
        return self.seen.setdefault((path, policy.name), Seen()).ahead(policy)

    def moved(
        self,
        path: str,
        pieces: Pieces,
        policy: hir.Policy,
        stop: Callable[[], None] = lambda: None,
    ) -> list[Diagnostic]:
        """Return what the passes find in a policy of pieces, where it stands in the text.

        `stop` raises where that is not asked any more; what was found in single states until then is kept.
        """
        place = (path, policy.name)
        kept = self.same.get(place)
        if kept is None or kept[0] is not policy:
            seen = self.seen.setdefault(place, Seen())
            kept = self.same[place] = (policy, analyse_again(policy, seen, stop))
        return [pieces.placed(diagnostic) for diagnostic in kept[1]]

    def keep(self, path: str, names: Collection[str]) -> None:
        """Forget the policies of a file that it has no more."""
        for place in [p for p in self.same if p[0] == path and p[1] not in names]:
            self.same.pop(place, None)
        for place in [p for p in self.seen if p[0] == path and p[1] not in names]:
            self.seen.pop(place, None)

    def analyse(self, document: Document, policy: hir.Policy) -> list[Diagnostic]:
        """Return what the passes find in a policy."""
        parts = [i for i in document.study.main.file.items if _concerns(i, policy.name)]
        key = _key(document, policy, parts)
        starts = [part.start for part in parts]
        place = (document.path, policy.name)
        kept = self.kept.get(place)
        if kept is not None and kept.key == key:
            return [_moved(d, document, kept, starts) for d in kept.found]
        found = analyse(policy)
        now = _Kept(key, starts, [part.end for part in parts], found)
        if all(_part(span, document.path, now) is not None for d in found for span in _spans(d)):
            self.kept[place] = now
        return found

    def drop(self, path: str) -> None:
        """Forget a file."""
        for place in [place for place in self.kept if place[0] == path]:
            self.kept.pop(place, None)
        self.keep(path, ())


def _concerns(item: ast.Item, policy: str) -> bool:
    return not isinstance(item, ast.Policy) or snake(item.name.text) == policy


def _key(document: Document, policy: hir.Policy, parts: list[ast.Item]) -> object:
    """Return all that the passes' findings depend on."""
    text, path = document.text, document.path
    names = [
        *(model.name for model in policy.models),
        *(var.name for var in policy.vars),
        *(signal.name for signal in policy.signals),
    ]
    params = [(param.name, param.value) for param in policy.params]
    others = {name: t for name, t in document.study.resolved.texts.items() if name != path}
    return [text[part.start : part.end] for part in parts], names, params, others


def _spans(diagnostic: Diagnostic) -> list[Span]:
    edits = diagnostic.fix.edits if diagnostic.fix is not None else ()
    labels = [label.span for label in diagnostic.labels]
    return [diagnostic.span, *labels, *(edit.span for edit in edits)]


def _part(span: Span, path: str, kept: _Kept) -> int | None:
    """Return which part of a file a span lies in; -1 for another file, None for none."""
    if span.file != path:
        return -1
    part = bisect_right(kept.starts, span.start) - 1
    return part if part >= 0 and span.end <= kept.ends[part] else None


def _moved(
    diagnostic: Diagnostic, document: Document, kept: _Kept, starts: list[int]
) -> Diagnostic:
    """Return a diagnostic with its places where the parts begin now."""

    def move(span: Span) -> Span:
        part = _part(span, document.path, kept)
        if part is None or part < 0:
            return span
        by = starts[part] - kept.starts[part]
        return document.study.main.source.span(span.start + by, span.end + by)

    fix = diagnostic.fix
    if fix is not None:
        fix = replace(fix, edits=tuple(Edit(move(e.span), e.text) for e in fix.edits))
    labels = tuple(replace(label, span=move(label.span)) for label in diagnostic.labels)
    return replace(diagnostic, span=move(diagnostic.span), labels=labels, fix=fix)
