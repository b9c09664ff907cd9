"""Stop strings, matched over a text that arrives in pieces of any size.

One Aho-Corasick automaton (https://doi.org/10.1145/360825.360855) over all stop strings of a request: after each
character its state is the longest suffix of the text that begins some stop string, which is exactly what must be
held back. The text ends before the match that is complete first; of several that are complete at one character,
before the longest. That depends on the text alone, never on how it was cut into pieces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple


class Fed(NamedTuple):
    """What may be shown now, and whether a stop string ended the text."""

    text: str
    stopped: bool


class Automaton:
    """Node 0 is the empty string; node `n` is reached by `depth[n]` characters."""

    def __init__(self, stops: Sequence[str]) -> None:
        assert all(stops), "an empty stop string would end every text at once"
        self.children: list[dict[str, int]] = [{}]
        self.depth = [0]
        self.fallback = [0]  # the longest proper suffix that is a node too
        self.matched = [0]  # length of the longest stop string that ends here; 0 is none
        for stop in stops:
            self._insert(stop)
        self._link()

    def _insert(self, stop: str) -> None:
        node = 0
        for char in stop:
            if char not in self.children[node]:
                self.children[node][char] = len(self.children)
                self.children.append({})
                self.depth.append(self.depth[node] + 1)
                self.fallback.append(0)
                self.matched.append(0)
            node = self.children[node][char]
        self.matched[node] = len(stop)

    def _link(self) -> None:
        """Set the fallbacks, shallow nodes first: a node's fallback is shallower than itself."""
        queue = deque(self.children[0].values())
        while queue:
            node = queue.popleft()
            for char, child in self.children[node].items():
                self.fallback[child] = self.step(self.fallback[node], char)
                self.matched[child] = max(self.matched[child], self.matched[self.fallback[child]])
                queue.append(child)

    def step(self, node: int, char: str) -> int:
        """Return the node after one more character."""
        while node and char not in self.children[node]:
            node = self.fallback[node]
        return self.children[node].get(char, 0)


class StopMatcher:
    """One text on its way to the client."""

    def __init__(self, automaton: Automaton) -> None:
        self._automaton = automaton
        self._node = 0
        self._held = ""

    @property
    def held(self) -> str:
        """The end of the text so far that begins some stop string."""
        return self._held

    def feed(self, piece: str) -> Fed:
        """Take the next piece; after a stop nothing more may be fed."""
        automaton = self._automaton
        text = self._held + piece
        for at, char in enumerate(piece, start=len(self._held) + 1):
            self._node = automaton.step(self._node, char)
            if length := automaton.matched[self._node]:
                self._held = ""
                return Fed(text[: at - length], stopped=True)
        cut = len(text) - automaton.depth[self._node]
        self._held = text[cut:]
        return Fed(text[:cut], stopped=False)

    def flush(self) -> str:
        """Return what was held back and never became a stop string."""
        text, self._held, self._node = self._held, "", 0
        return text
