"""What a client gets to see of one choice: its committed tokens as text, until something ends it.

INVARIANT: the joined texts, the joined texts of the tokens shown with them, and the text of a whole-output decode cut
at the first stop string are one and the same.
INVARIANT: a token is counted once it is committed, up to the one that completes a stop string; what a model commits
after that, before it hears of the abort, is neither counted nor shown.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Literal, NamedTuple

from tokenrouter.runtime.messages import Token
from tokenrouter.server.detokenize import Detokenizer
from tokenrouter.server.stops import StopMatcher

Finish = Literal["stop", "length"]


class Written(NamedTuple):
    """One token and the part of the shown text that is its own."""

    token: Token
    text: str


class Shown(NamedTuple):
    """What one more token lets the client see; `tokens` are those whose text is shown in full by now."""

    text: str
    tokens: list[Written]
    finish: Finish | None


class Transcript:
    """One choice on its way to the client."""

    def __init__(self, detokenizer: Detokenizer, stops: StopMatcher) -> None:
        self._detokenizer = detokenizer
        self._stops = stops
        self._waiting: deque[Written] = deque()  # tokens whose text is partly held back
        self._surplus = 0  # characters shown of the first of them
        self.n_tokens = 0
        self.by_model: Counter[int] = Counter()
        self.by_rule: Counter[tuple[int, int | None]] = Counter()
        self.handoffs = 0
        self.finish: Finish | None = None
        self.stopped_by_text = False

    def feed(self, token: Token) -> Shown:
        """Take the next committed token; none may follow the one that finished."""
        assert self.finish is None, "a finished transcript was fed"
        self._count(token)
        piece = self._detokenizer.feed(token.token)
        if token.finish:
            piece += self._detokenizer.flush()
        self._waiting.append(Written(token, piece))
        text, self.stopped_by_text = self._stops.feed(piece)
        if self.stopped_by_text:
            self.finish = "stop"
        elif token.finish:
            text += self._stops.flush()
            self.finish = token.finish
        return Shown(text, self._release(len(text)), self.finish)

    def _count(self, token: Token) -> None:
        self.n_tokens += 1
        self.by_model[token.model] += 1
        self.by_rule[token.model, token.rule] += 1
        self.handoffs = token.state.switches

    def _release(self, n_chars: int) -> list[Written]:
        """Return the tokens that are shown in full after `n_chars` more; at the end all, clipped to what was shown."""
        budget = self._surplus + n_chars
        out: list[Written] = []
        while self._waiting and (self.finish or len(self._waiting[0].text) <= budget):
            token, text = self._waiting.popleft()
            out.append(Written(token, text[:budget]))
            budget -= min(budget, len(text))
        self._surplus = budget
        return out
