"""Where the time of one subserver goes: seconds by phase of its loop, cumulative since its start.

One phase is open at a time; `at` closes it and opens the next, so that every moment between the first and the last `at`
counts once. On a CPU an operation has ended when its call returns; where a device works on by itself, `model` counts
the launches, and the waiting for results falls to whichever phase first reads them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, get_args

from tokenrouter.plan import structs

Phase = Literal[
    "gate",  # which requests make a batch
    "build",  # the batch's tensors, and the scheduler's books
    "model",  # reading tokens, up to the logits
    "sample",  # masks, penalties, candidates and their log probabilities
    "route",  # signals and rules
    "messages",  # taking, committing, handing over
    "wait",  # nothing to do
]
PHASES: tuple[Phase, ...] = get_args(Phase)
# Where a task's time counts; `extend` says itself where the model begins and ends. All others: `messages`.
OF_TASK: dict[type, Phase] = {
    structs.Extend: "build",
    structs.Sample: "sample",
    structs.Signals: "route",
    structs.Route: "route",
    structs.CountDown: "route",
}


class Phases:
    """A stopwatch over the phases of one subserver."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._open: Phase | None = None
        self._since = 0.0

    def at(self, phase: Phase | None) -> None:
        """Begin a phase; None stops the watch until the next."""
        now = self._clock()
        if self._open is not None:
            self._seconds[self._open] += now - self._since
        self._open, self._since = phase, now

    def seconds(self) -> dict[str, float]:
        """Return the time by phase so far, the open one's included."""
        self.at(self._open)
        return {str(phase): seconds for phase, seconds in self._seconds.items()}
