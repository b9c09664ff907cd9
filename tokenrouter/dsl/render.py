"""Diagnostics as text for people: the line, a caret span, labels, help.

It knows nothing of files: the texts that spans point into are given. Columns on the screen are not code points: wide
characters take two, combining ones none, a tab four.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TextIO

from tokenrouter.diagnostics import Diagnostic, Label, Span
from tokenrouter.dsl.source import Source

_COLOURS = {"error": "31", "warning": "33", "info": "36"}
_LEAST = 40  # columns for the source line, however narrow the terminal


@dataclass(frozen=True, slots=True)
class Look:
    """How to print: colour or none, and how wide."""

    colour: bool = False
    width: int = 120

    @classmethod
    def of(cls, stream: TextIO) -> Look:
        """Return the look for a stream: colour only on a terminal, and not where NO_COLOR is set."""
        terminal = stream.isatty()
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        width = shutil.get_terminal_size((120, 24)).columns if terminal else 120
        return cls(terminal and not plain, width)

    def paint(self, text: str, code: str) -> str:
        """Return text in a colour."""
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour else text


def render(diagnostic: Diagnostic, texts: Mapping[str, str], look: Look | None = None) -> str:
    """Return one diagnostic as lines of text."""
    return _Page(texts, look or Look()).render(diagnostic)


def print_diagnostics(
    diagnostics: Iterable[Diagnostic], texts: Mapping[str, str], stream: TextIO | None = None
) -> None:
    """Print diagnostics, on stderr where no stream is given, with an empty line between them."""
    stream = stream or sys.stderr
    page = _Page(texts, Look.of(stream))
    for diagnostic in diagnostics:
        stream.write(page.render(diagnostic) + "\n\n")


class _Page:
    """The sources, with their lines found once."""

    def __init__(self, texts: Mapping[str, str], look: Look) -> None:
        self.texts, self.look = texts, look
        self.sources: dict[str, Source] = {}

    def source(self, name: str) -> Source | None:
        if name not in self.sources and name in self.texts:
            self.sources[name] = Source.of(name, self.texts[name])
        return self.sources.get(name)

    def render(self, diagnostic: Diagnostic) -> str:
        look, colour = self.look, _COLOURS[diagnostic.severity]
        title = look.paint(f"{diagnostic.severity}[{diagnostic.code}]", f"1;{colour}")
        lines = [f"{title}: {look.paint(diagnostic.message, '1')}"]
        span = diagnostic.span
        edge = max([span, *(label.span for label in diagnostic.labels)], key=lambda s: s.line).line
        gutter = len(str(edge))
        lines.append(f"{' ' * gutter}--> {span.file}:{span.line}:{span.column}")
        shown = [Label(span, ""), *diagnostic.labels]
        last: tuple[str, int] | None = None
        for at, label in enumerate(shown):
            where = (label.span.file, label.span.line)
            if label.span.file != (last or (span.file, 0))[0]:
                lines.append(
                    f"{' ' * gutter}::: {label.span.file}:{label.span.line}:{label.span.column}"
                )
            mark, paint = ("^", colour) if at == 0 else ("-", "34")
            lines += self._snippet(label, gutter, mark, paint, repeat=where == last)
            last = where
        if diagnostic.help:
            lines.append(f"{' ' * gutter} {look.paint('=', '34')} help: {diagnostic.help}")
        if diagnostic.fix is not None:
            kind = "" if diagnostic.fix.safe else " (look at it before you take it)"
            lines.append(
                f"{' ' * gutter} {look.paint('=', '34')} fix: {diagnostic.fix.title}{kind}"
            )
        return "\n".join(lines)

    def _snippet(
        self, label: Label, gutter: int, mark: str, paint: str, *, repeat: bool
    ) -> list[str]:
        """Return a source line and the marks under it; the marks alone where the line was just printed."""
        source = self.source(label.span.file)
        if source is None:
            return []
        line = source.line(label.span.line)
        first, last = _columns(label.span, line)
        room = max(_LEAST, self.look.width - gutter - 4)
        cut = max(0, _width(line[:last]) - room + 4) if _width(line) > room else 0
        shown, skipped = _window(line, cut, room)
        bar = self.look.paint("|", "34")
        number = self.look.paint(f"{label.span.line:>{gutter}}", "34")
        before = _width(line[:first]) - skipped
        marks = " " * max(0, before) + self.look.paint(
            mark * max(1, _width(line[first:last])), paint
        )
        text = f" {label.text}" if label.text else ""
        under = f"{' ' * gutter} {bar} {marks}{text}"
        return [under] if repeat else [f"{number} {bar} {shown}", under]


def _columns(span: Span, line: str) -> tuple[int, int]:
    """Return where on its first line a span begins and ends, from 0."""
    first = min(span.column - 1, len(line))
    last = span.end_column - 1 if span.end_line == span.line else len(line)
    return first, max(first, min(last, len(line)))


def _width(text: str) -> int:
    """Return how many columns a text takes on a screen."""
    return len(text) if _plain(text) else sum(map(_cell, text))


def _plain(text: str) -> bool:
    """Return whether every character takes one column, as in most lines."""
    return text.isascii() and text.isprintable()


def _cell(character: str) -> int:
    if character == "\t":
        return 4
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _window(line: str, cut: int, room: int) -> tuple[str, int]:
    """Return the part of a line that fits into `room` columns behind `cut`, and how many columns were left out."""
    if _plain(line):
        return line[cut : cut + room], min(cut, len(line))
    shown, at, skipped = "", 0, 0
    for character in line:
        cell = _cell(character)
        if at < cut:
            skipped += cell
        elif at + cell - skipped > room:
            break
        else:
            shown += "    " if character == "\t" else character
        at += cell
    return "".join(c if c.isprintable() else "\ufffd" for c in shown), skipped
