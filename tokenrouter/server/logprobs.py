"""Log probabilities as OpenAI's two surfaces tell them: under the raw distribution of the model that wrote the token.

Tokens without text (special and end-of-sequence ones) are left out, so that the joined `bytes` of a choice are the
bytes of its text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

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

    def text(self, tokens: Sequence[Written], with_top: bool) -> TextLogprobs:
        """Return what a text completion tells of some more tokens."""
        told = TextLogprobs(
            tokens=[], token_logprobs=[], top_logprobs=[] if with_top else None, text_offset=[]
        )
        for token, text in tokens:
            if token.token not in self._hidden:
                told.tokens.append(self._key(token.token))
                told.token_logprobs.append(token.logprob)
                told.text_offset.append(self._offset)
                if told.top_logprobs is not None:
                    top = {self._key(id_): logprob for id_, logprob in token.top}
                    told.top_logprobs.append({**top, self._key(token.token): token.logprob})
            self._offset += len(text)
        return told

    def _key(self, id_: int) -> str:
        """Return a spelling that no two ids share, as OpenAI has it: bytes that are no text are escaped."""
        raw = self._id_to_bytes(id_)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
