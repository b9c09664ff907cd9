"""Diagnostics: what is wrong with a policy, where, why, and how to mend it.

A diagnostic is a value. Passes return them, one driver collects them, a renderer prints them; nothing here
knows of files, grammars or terminals. Lines and columns count from 1; columns count code points (an editor's
UTF-16 columns are made from them at that border). Messages follow Cedar's manner: lower case, no full stop, no line
break, user text in backticks, advice apart from the message as help.

Codes are `TRnnnn` and never reused: 0xxx syntax, 1xxx names and types, 2xxx rules and reachability, 3xxx claims,
4xxx models, vocabularies and heads, 5xxx windows, 6xxx restricted Python, 7xxx plans, 9xxx internal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range of one source: offsets in code points, lines and columns from 1."""

    start: int
    end: int
    line: int
    column: int
    end_line: int
    end_column: int
    file: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A second place that explains the first, as in «`tau` is declared here in nats»."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the text of `span` by `text`."""

    span: Span
    text: str


@dataclass(frozen=True, slots=True)
class Fix:
    """A mend that a tool can apply; a safe one never changes what a correct policy means."""

    title: str
    edits: tuple[Edit, ...]
    safe: bool


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem. `code` is stable and has a page under docs/diagnostics/."""

    code: str
    severity: Severity
    message: str
    span: Span
    labels: tuple[Label, ...] = field(default=())
    help: str = ""
    fix: Fix | None = None


class PolicyError(Exception):
    """A policy has errors; `diagnostics` holds all of them, in source order."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__("; ".join(f"{d.code} {d.message}" for d in diagnostics))
        self.diagnostics = diagnostics
