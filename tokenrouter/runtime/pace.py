"""How much of prompts a batch may read while others write, so that none of them waits long for its next token.

Pure numbers, no clocks: it is told what batches with prompts in them took. Work is counted in tokens at the beginning of
a text; a token deeper in costs more, since it attends to all before it:

    cost(start) = 1 + start / (6 * hidden size)

which is where attention (4 * hidden * start operations a layer) has as many operations as the layer's matrices have
(about 24 * hidden^2, a feed-forward part of 4 * hidden included).

A model whose every batch takes long, since its weights have to be read from memory, cannot keep others waiting for less; prompts
in pieces as small as such a bound allows would mostly cost what each batch costs. So a batch may take four times what
one without prompts takes, if that is more: three quarters of it then go into the prompt. Where prompts keep coming, one batch
in a while goes without them, so that what such a batch takes is known, and not as of long ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median, median_low
from typing import NamedTuple

LEAST = 16.0  # work of a batch, however slow the model: prompts must get on
LATEST = 5  # batches that the speed is the median of
BATCHES = 4  # without prompts, as long as which one with prompts may always take
KNOWN = 16  # batches with prompts, beside which one without them is needed


class Allowance(NamedTuple):
    """What a batch may read of prompts beside its decodes."""

    work: float = float("inf")
    deep: float = float("inf")  # the position whose token costs twice what the first one does

    def cost(self, start: int) -> float:
        """Return the work of one token after `start` others."""
        return 1 + start / self.deep

    def affords(self, start: int, work: float) -> int:
        """Return how many tokens after `start` others so much work reads; at least one where there is a unit of it."""
        return max(int(work / self.cost(start)), int(work >= 1))


class Pace:
    """The speed at which one model reads prompts, and the work that fits the time that others may have to wait."""

    def __init__(self, stall_ms: float | None, hidden_size: int) -> None:
        self.stall_ms = stall_ms  # None: a batch may take what it takes
        self._deep = 6.0 * max(1, hidden_size)
        self._rates: deque[float] = deque(maxlen=LATEST)  # ms for a unit of work, all else included
        self._plain_ms: deque[float] = deque(maxlen=LATEST)  # of batches without prompts
        # Batches with prompts since the last one without, or since one was last asked for; whether what is known is from before.
        self._since_plain = 0
        self._outdated = False

    def allowance(self, *, writing: bool, passes: bool = True) -> Allowance:
        """Return what the next batch may read; where nobody writes, there is nobody to wait for it.

        `passes` says whether others take part in the batch: only then it may be one without prompts.
        """
        if self.stall_ms is None or not writing:
            return Allowance()
        if passes and self._since_plain >= KNOWN:
            self._since_plain, self._outdated = 0, True
            return Allowance(0.0, self._deep)
        rate = median(self._rates) if self._rates else float("inf")
        plain = median_low(self._plain_ms) if self._plain_ms else 0.0
        may_take = max(self.stall_ms, BATCHES * plain)
        return Allowance(max(may_take / rate if rate else LEAST, LEAST), self._deep)

    def took(self, read: Iterable[tuple[int, int]], elapsed_ms: float) -> None:
        """Learn from a batch that read `n` tokens of prompts after `start` others, for each (start, n), or none."""
        read = list(read)
        if read:
            self._since_plain += 1
        else:
            if self._outdated:  # but for one, so that a hiccup does not count for all of them
                self._plain_ms = deque(list(self._plain_ms)[-1:], maxlen=LATEST)
            self._since_plain, self._outdated = 0, False
            self._plain_ms.append(elapsed_ms)
        work = sum(n * (1 + (start + n / 2) / self._deep) for start, n in read)
        if work >= LEAST / 2:  # of less, the rest of the batch tells more than the prompt
            self._rates.append(elapsed_ms / work)
