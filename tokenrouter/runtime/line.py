"""The line of models that step in turn: in which order, and with which requests.

A lock says who steps (`turns`). Here is what makes the order the same every time, though a hand-off takes a moment from process to
process:

* A model takes part, at its turn, in every hand-off of the steps that have ended: it waits for those that are on their way to it.
* A model that is due again at the end of its step goes on where nobody stands in line; who does stand there comes first, and whom
  the hand-offs of this very step make due stands behind it.

What is on its way is read off a table of one number a model, in memory that the processes share. Nobody waits longer than
`PATIENCE_MS` for what may have died with its sender.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tokenrouter.runtime.turns import Turns, shared_memory

TABLE = "sent"
PATIENCE_MS = 5.0


class Line:
    """One model's place among those of a directory that step in turn.

    `take_in(ms)` takes in what has arrived, and where that is nothing, waits for so long; of each hand-off it tells `took`.
    """

    def __init__(
        self, turns: Turns, path: Path, n_models: int, model: int, take_in: Callable[[float], None]
    ) -> None:
        self.turns = turns
        self.model = model
        self.take_in = take_in
        size = 8 * n_models
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        # By model: hand-offs that it was sent since the start. Whoever holds the turn writes.
        self._sent = memoryview(shared_memory(file, size)).cast("q")
        os.close(file)
        self._taken = self._sent[model]  # of those to this model: they are here, or never will be

    def sent(self, receiver: int) -> None:
        """Note that a hand-off will leave in this turn; before it does."""
        self._sent[receiver] += 1

    def took(self) -> None:
        """Note that a hand-off is here."""
        self._taken += 1

    def run(
        self, step: Callable[[], bool], due: Callable[[], bool], leave: Callable[[], None]
    ) -> bool:
        """Take turns as long as a step is due, and return whether one ran; `leave` comes last in each: it sends what there is to say.

        A step that finds nothing due says so, and returns False. All of that is done within the turn, since on the cores that
        another model steps on it takes longer, and keeps that model waiting.
        """
        any_ran, again = False, True
        while again:
            with self.turns:
                self.complete()
                ran, again = self._step(step, due, leave)
                any_ran |= ran
                while again and self.turns.alone:
                    self.take_in(0.0)
                    _, again = self._step(step, due, leave)
        return any_ran

    def _step(
        self, step: Callable[[], bool], due: Callable[[], bool], leave: Callable[[], None]
    ) -> tuple[bool, bool]:
        """Return whether a step ran, and whether one is due after it; where none is, another has looked and said so."""
        any_ran, ran = False, True
        while ran:
            ran = step()
            any_ran |= ran
            self.turns.since = None
            if ran and due():
                break
        leave()
        return any_ran, ran

    def complete(self) -> None:
        """Take in all hand-offs of the steps that have ended."""
        end = time.monotonic() + PATIENCE_MS / 1e3
        self.take_in(0.0)
        while self._taken < self._sent[self.model] and time.monotonic() < end:
            self.take_in(PATIENCE_MS)
        # What is not here by now died with its sender; what is beyond it was on its way to the process before this one.
        self._taken = self._sent[self.model]
