"""Applying the fixes of diagnostics to a text."""

from __future__ import annotations

from collections.abc import Iterable

from tokenrouter.diagnostics import Diagnostic, Edit


def apply(
    text: str, file: str, diagnostics: Iterable[Diagnostic], *, unsafe: bool = False
) -> tuple[str, int]:
    """Return a file's text with its fixes applied, and how many were; one that touches another's place waits."""
    taken: list[Edit] = []
    n = 0
    for diagnostic in diagnostics:
        fix = diagnostic.fix
        if (
            fix is None
            or not (fix.safe or unsafe)
            or any(edit.span.file != file for edit in fix.edits)
        ):
            continue
        if any(_touch(edit, other) for edit in fix.edits for other in taken):
            continue
        taken += fix.edits
        n += 1
    for edit in sorted(taken, key=lambda e: e.span.start, reverse=True):
        text = text[: edit.span.start] + edit.text + text[edit.span.end :]
    return text, n


def _touch(a: Edit, b: Edit) -> bool:
    return a.span.start <= b.span.end and b.span.start <= a.span.end
