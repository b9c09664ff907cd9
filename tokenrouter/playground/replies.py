"""What the page is told, as JSON. Ranges are lines and UTF-16 units from 0, as in the language server's protocol."""

from __future__ import annotations

import msgspec

Range = tuple[int, int, int, int]  # first line and character, last line and character


class Change(msgspec.Struct, frozen=True):
    """Text in place of a range."""

    range: Range
    text: str


class Fix(msgspec.Struct, frozen=True):
    """How a problem is mended."""

    title: str
    changes: list[Change]


class Problem(msgspec.Struct, frozen=True):
    """One diagnostic."""

    code: str
    severity: str
    message: str
    help: str
    range: Range
    fix: Fix | None = None


class Field(msgspec.Struct, frozen=True):
    """A value that a rule at some place reads, and that may be supposed."""

    name: str
    kind: str  # value, token, class
    hint: str  # what it is, in a few words
    value: str = ""  # that holds where none is given


class RuleLine(msgspec.Struct, frozen=True):
    """A rule as written; `line` counts from 0, and is None where the compiler added the rule."""

    text: str
    line: int | None = None


class Place(msgspec.Struct, frozen=True):
    """The start, or a model: where rules are tried."""

    name: str
    fields: list[Field]
    rules: list[RuleLine]


class Look(msgspec.Struct, frozen=True):
    """What is known of a text."""

    tokens: list[int]  # as the language server packs them
    problems: list[Problem]
    policies: list[str]
    policy: str | None  # the one that the rest is about
    graph: str  # an SVG image; '' while there are errors
    graph_words: str  # the same in words
    places: list[Place]


class Plan(msgspec.Struct, frozen=True):
    """A policy explained."""

    text: str
    note: str  # why it is no plan, where it is none


class Fired(msgspec.Struct, frozen=True):
    """Which rule fires at a place under the values given."""

    rule: int | None  # its number there
    line: int | None  # in the text, from 0
    text: str
    got: str  # what happens, or why nothing does
    wrong: dict[str, str]  # by field: what its value is not


class Word(msgspec.Struct, frozen=True):
    """A completion."""

    label: str
    kind: str
    about: str


class Words(msgspec.Struct, frozen=True):
    """Completions, the likely ones first."""

    words: list[Word]


class Example(msgspec.Struct, frozen=True):
    """A policy of the package."""

    name: str
    title: str
    text: str


class Begin(msgspec.Struct, frozen=True):
    """What the page starts with."""

    text: str
    file: str | None
    legend: list[str]  # kinds of tokens
    limit: int  # longest text that is looked at, in characters
    examples: list[Example]


class Saved(msgspec.Struct, frozen=True):
    """A text was written."""

    file: str
