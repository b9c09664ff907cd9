"""What may follow each request that has a grammar, found by threads of their own: a costly grammar makes nobody else wait.

What may come next depends on tokens alone, so it is looked for while the model reads the last of them. Where it is not there
when the model has, its request is *barred*: it leaves the batch, others go on, and it comes back to read its last token once
more when its mask is there. Compiling, and grammars that were slow before, have threads apart from those of quick ones.

Without threads, as in the in-process engine, a mask is made when it is asked for, so that nothing depends on time.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np

from tokenrouter.runtime.grammar import Grammars, give_way
from tokenrouter.runtime.sequence import Sequence
from tokenrouter.runtime.shaping import SLOW_MS, Follower, shaper_of

PATIENCE_MS = SLOW_MS  # that a batch waits for masks when its model has read; reading a token again costs about as much
QUICK, SLOW = 2, 1  # threads


class Masks:
    """The threads that look for what may follow the requests of one subserver."""

    def __init__(self, grammars: Grammars) -> None:
        self.grammars = grammars
        self._patience_ms = PATIENCE_MS
        self._pools: tuple[ThreadPoolExecutor, ThreadPoolExecutor] | None = None

    def go_aside(self, patience_ms: float = PATIENCE_MS) -> None:
        """Make masks in threads from now on."""
        self._patience_ms = patience_ms
        self._pools = (
            ThreadPoolExecutor(QUICK, "masks", give_way),
            ThreadPoolExecutor(SLOW, "slow-masks", give_way),
        )

    def begin(self, sequences: Iterable[Sequence], now_ms: float) -> None:
        """Look for what may follow the sequences here; those for which it is found are barred no longer.

        One whose grammar is slow is barred at once, so that no batch waits for it.
        """
        if self._pools is None:
            return
        for sequence in sequences:
            follower = self._follower(sequence) if sequence.owned else None
            if follower is None:
                continue
            if not follower.looked_at(sequence.n_output):
                output = sequence.tokens[sequence.n_prompt :]
                pool = self._pools[follower.slow]
                follower.look(sequence.n_output, pool.submit(follower.allowed, output))
                # A prompt is worth reading meanwhile.
                sequence.barred = follower.slow and not sequence.prefilling
            elif sequence.barred and follower.found:
                sequence.barred = False
                sequence.due_since = now_ms

    def settle(self, sequences: list[Sequence]) -> None:
        """Wait a little for the masks of a batch, and bar the sequences whose is not there yet."""
        if self._pools is None:
            return
        found = ((each, self._follower(each)) for each in sequences)
        following = [(sequence, follower) for sequence, follower in found if follower is not None]
        if not following:
            return
        wait([follower.job for _, follower in following if follower.job], self._patience_ms / 1e3)
        for sequence, follower in following:
            sequence.barred = not follower.found

    def of(self, sequence: Sequence) -> np.ndarray | None:
        """Return what may follow a sequence that is not barred: [V] bool; None without a grammar. Raises GrammarError."""
        follower = self._follower(sequence)
        if follower is None:
            return None
        if follower.looked_at(sequence.n_output):
            return follower.take()
        return follower.allowed(sequence.tokens[sequence.n_prompt :])

    def _follower(self, sequence: Sequence) -> Follower | None:
        if not sequence.sampling.grammar:
            return None
        shaper = shaper_of(sequence)
        if shaper.follower is None:
            shaper.follower = Follower(self.grammars, sequence.sampling.grammar)
        return shaper.follower
