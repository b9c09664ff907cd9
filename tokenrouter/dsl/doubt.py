"""Of which policies the passes say nothing, since what they said might only follow from a mistake that is told already."""

from __future__ import annotations

from collections.abc import Iterable

from tokenrouter.diagnostics import Diagnostic, Span
from tokenrouter.dsl import ast
from tokenrouter.dsl.scope import snake


def doubted(
    found: Iterable[Diagnostic], file: str, items: Iterable[tuple[ast.Item, Span]]
) -> frozenset[str]:
    """Return the names of policies with an error in them, by what is found in a file of these items.

    A policy that uses a name with a mistake in its declaration is none of the sound ones anyway. All are doubted where an
    error stands in no item, for what it cost is not known, in a model, whose properties count wherever it is named, or in
    another file. A setting that is wrong (`--set`) changes nothing.
    """
    places = [
        d.span for d in found if d.severity == "error" and not d.span.file.startswith("--set ")
    ]
    if not places:
        return frozenset()
    placed = list(items)
    policies = frozenset(
        snake(item.name.text) for item, _ in placed if isinstance(item, ast.Policy)
    )
    doubts: set[str] = set()
    for place in places:
        if place.file != file:
            return policies
        around = [item for item, span in placed if span.start <= place.start <= span.end]
        if not around or any(isinstance(item, ast.Model) for item in around):
            return policies
        doubts |= {snake(item.name.text) for item in around if isinstance(item, ast.Policy)}
    return frozenset(doubts)
