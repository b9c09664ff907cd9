"""What a rule can ask of a candidate's text: whether it is one of some texts, and which lexical class it falls into.

Every id is looked at once, when a plan is loaded; a step then only looks up a row. Ids whose bytes are no whole
characters belong to no class.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from functools import cached_property

CODE = frozenset("{}[]()<>=;_\\/|&^~@#$%*+`")


class Vocabulary:
    """The text of every id below `size`."""

    def __init__(
        self,
        size: int,
        id_to_bytes: Callable[[int], bytes] = lambda id_: b"",
        special: frozenset[int] = frozenset(),
    ) -> None:
        self.size = size
        self.id_to_bytes = id_to_bytes
        self.special = special

    @cached_property
    def texts(self) -> list[str]:
        """The text by id; U+FFFD stands for bytes that are no whole character."""
        return [self.id_to_bytes(id_).decode("utf-8", "replace") for id_ in range(self.size)]

    def is_text(self, wanted: list[str]) -> list[bool]:
        """Return by id whether its text is one of `wanted`."""
        return [text in wanted for text in self.texts]

    def is_class(self, name: str) -> list[bool]:
        """Return by id whether its text is of a lexical class."""
        if name == "special":
            return [id_ in self.special for id_ in range(self.size)]
        found = [lexical_class(text) == name for text in self.texts]
        return [hit and id_ not in self.special for id_, hit in enumerate(found)]


def lexical_class(text: str) -> str:
    """Return the class of a token's text, its spaces at the ends left aside; '' where it has none.

    `newline` is white space with a line break in it, `space` other white space, `number` digits with marks inside,
    `word` letters with marks inside, `code` anything that holds a sign of programs, `punct` only other signs.
    """
    core = text.strip()
    if not core:
        return "" if not text else "newline" if "\n" in text or "\r" in text else "space"
    if "\ufffd" in core:
        return ""
    if any(c in CODE for c in core):
        return "code"
    bare = [c for c in core if c not in "'’-.,:"]
    if bare and all(c.isdigit() for c in bare):
        return "number"
    if bare and all(c.isalpha() or unicodedata.category(c).startswith("M") for c in bare):
        return "word"
    if all(unicodedata.category(c)[0] in "PS" for c in core):
        return "punct"
    return ""
