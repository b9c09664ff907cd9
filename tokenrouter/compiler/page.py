"""A text that is written line by line, each line with the comments that belong to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tokenrouter.dsl import hir
from tokenrouter.plan import structs as s


@dataclass(eq=False, slots=True)
class Page:
    """Lines, and by anchor the comments that are not written yet."""

    comments: dict[str, list[s.Comment | hir.Comment]]
    lines: list[str] = field(default_factory=list)

    def add(self, line: str, anchor: str = "", indent: str = "") -> None:
        """Write a line under its comments; what stands at the end of the line is put there."""
        own = self.comments.pop(anchor, [])
        self.lines += [indent + c.text for c in own if c.place == "above"]
        ends = [c.text for c in own if c.place == "end"]
        self.lines.append(indent + "  ".join([line, *ends]))

    def open(self, line: str, anchor: str, indent: str = "") -> None:
        """Write the line that begins a block; comments at its end wait for `close`."""
        own = self.comments.get(anchor, [])
        self.lines += [indent + c.text for c in own if c.place == "above"]
        self.lines.append(indent + line)

    def close(self, anchor: str, indent: str = "") -> None:
        """Write the brace that ends a block, after the comments at its end."""
        own = self.comments.pop(anchor, [])
        self.lines += [f"{indent}  {c.text}" for c in own if c.place == "end"]
        self.lines.append(indent + "}")

    def gap(self) -> None:
        """Write one empty line, where none stands yet."""
        if self.lines and self.lines[-1]:
            self.lines.append("")

    def left(self) -> list[str]:
        """Return what no line asked for."""
        return [c.text for left in self.comments.values() for c in left]


def by_anchor(
    comments: Iterable[s.Comment | hir.Comment],
) -> dict[str, list[s.Comment | hir.Comment]]:
    """Return comments by what they belong to."""
    found: dict[str, list[s.Comment | hir.Comment]] = {}
    for comment in comments:
        found.setdefault(comment.anchor, []).append(comment)
    return found
