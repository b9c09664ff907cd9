"""Log probabilities as OpenAI's two surfaces tell them: under the raw distribution of the model that wrote the token.

Tokens without text (special and end-of-sequence ones) are left out, so that the joined `bytes` of a choice are the
bytes of its text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from tokenrouter.runtime.messages import Place
from tokenrouter.server.replies import (
    ChatLogprobs,
    TextLogprobs,
    TokenLogprob,
    TopLogprob,
)
from tokenrouter.server.transcript import Written


class LogprobWriter:
    """The log probabilities of one choice, in the order in which its tokens are shown."""

    def __init__(self, id_to_bytes: Callable[[int], bytes], hidden: Collection[int]) -> None:
        self._id_to_bytes = id_to_bytes
        self._hidden = hidden
        self._offset = 0  # characters of the choice's text so far
        self._tells_all = False  # also tokens without text

    def chat(self, tokens: Sequence[Written]) -> ChatLogprobs:
        """Return what a chat tells of some more tokens."""
        content = []
        for token, _ in tokens:
            if token.token not in self._hidden:
                own = self._spelled(token.token, token.logprob)
                top = [self._spelled(id_, logprob) for id_, logprob in token.top]
                content.append(
                    TokenLogprob(
                        token=own.token, logprob=own.logprob, bytes=own.bytes, top_logprobs=top
                    )
                )
        return ChatLogprobs(content=content)

    def _spelled(self, id_: int, logprob: float) -> TopLogprob:
        raw = self._id_to_bytes(id_)
        return TopLogprob(token=raw.decode("utf-8", "replace"), logprob=logprob, bytes=list(raw))

    def echo(
        self, ids: Sequence[int], texts: Sequence[str], places: Sequence[Place], with_top: bool
    ) -> TextLogprobs:
        """Return what a text completion tells of its prompt; from here on every token is told, so that they can be counted."""
        self._tells_all = True
        told = _nothing(with_top)
        for at, (id_, text) in enumerate(zip(ids, texts, strict=True)):
            logprob, top = places[at - 1] if at else (None, [])
            self._tell(told, id_, logprob, top)
            self._offset += len(text)
        return told

    def text(self, tokens: Sequence[Written], with_top: bool) -> TextLogprobs:
        """Return what a text completion tells of some more tokens."""
        told = _nothing(with_top)
        for token, text in tokens:
            if self._tells_all or token.token not in self._hidden:
                self._tell(told, token.token, token.logprob, token.top)
            self._offset += len(text)
        return told

    def _tell(
        self, told: TextLogprobs, id_: int, logprob: float | None, top: list[tuple[int, float]]
    ) -> None:
        told.tokens.append(self._key(id_))
        told.token_logprobs.append(logprob)
        told.text_offset.append(self._offset)
        if told.top_logprobs is not None:
            named = {self._key(other): worth for other, worth in top}
            told.top_logprobs.append(
                None if logprob is None else {**named, self._key(id_): logprob}
            )

    def _key(self, id_: int) -> str:
        """Return a spelling that no two ids share, as OpenAI has it: bytes that are no text are escaped."""
        raw = self._id_to_bytes(id_)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _nothing(with_top: bool) -> TextLogprobs:
    return TextLogprobs(
        tokens=[], token_logprobs=[], top_logprobs=[] if with_top else None, text_offset=[]
    )


def joined(one: TextLogprobs, other: TextLogprobs) -> TextLogprobs:
    """Return what is told of some tokens and of those that follow."""
    top = None
    if one.top_logprobs is not None and other.top_logprobs is not None:
        top = one.top_logprobs + other.top_logprobs
    return TextLogprobs(
        tokens=one.tokens + other.tokens,
        token_logprobs=one.token_logprobs + other.token_logprobs,
        top_logprobs=top,
        text_offset=one.text_offset + other.text_offset,
    )
