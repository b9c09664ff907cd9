"""Token by token, bytes become text: the joined pieces equal a decode of the whole, at every cut.

A token's bytes may end in the middle of a character; what is incomplete waits for the next token. Invalid bytes
become U+FFFD exactly where `bytes.decode("utf-8", "replace")` puts them. Knows nothing of stop strings.

A piece may end between the code points of one grapheme (an emoji and its skin tone): whether another code point
follows is known only with the next token, and waiting for it would delay every token by one.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection


class Detokenizer:
    """The text of one growing list of tokens; special tokens have none."""

    def __init__(self, id_to_bytes: Callable[[int], bytes], hidden: Collection[int] = ()) -> None:
        self._id_to_bytes = id_to_bytes
        self._hidden = hidden
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """Return the text that this token completes; it may be empty."""
        if token in self._hidden:
            return ""
        return self._decoder.decode(self._id_to_bytes(token))

    def follows(self, other: Detokenizer) -> None:
        """Begin where another text ended, inside a character if need be; nothing may be fed to the other."""
        self._decoder.setstate(other._decoder.getstate())

    def flush(self) -> str:
        """Return what an incomplete character at the end reads as; nothing may follow."""
        return self._decoder.decode(b"", final=True)
