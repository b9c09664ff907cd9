"""What a rule can ask of a candidate's text: whether it is one of some texts, and which lexical class it falls into.

Every id is looked at once, when a plan is loaded; a step then only looks up a row. Ids whose bytes are no whole
characters belong to no class.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from tokenrouter.signals import lexical_class


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
