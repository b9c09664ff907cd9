"""A subserver's gate at work: what it knows of others, when it opens, and what the front end is told of it.

`Gate` holds the rules; here are the active count, the word that nothing else can arrive, and the counters.
"""

from __future__ import annotations

from collections.abc import Sequence as Some

from tokenrouter.runtime.gate import Gate, Reason
from tokenrouter.runtime.messages import Active, Flush, Gated, Held, Windows
from tokenrouter.runtime.meter import Meter
from tokenrouter.runtime.scheduler import Chunk
from tokenrouter.runtime.sequence import Sequence
from tokenrouter.runtime.transport import FRONT_END, Send


class Gatekeeper:
    """The gate of one subserver, and its counters."""

    def __init__(self, gate: Gate, meter: Meter, send: Send) -> None:
        self.gate = gate
        self.meter = meter
        self.send = send
        self.n_active = 0  # requests that can reach a gate, as the front end last told
        self._told = 0
        self._held: list[int] = []  # as last told
        self._flush = False

    def receive(self, message: Active | Windows | Flush) -> None:
        """Take word of the other gates, or another row of the table."""
        match message:
            case Active():
                self.n_active = message.n
            case Windows():
                self.gate.swap(message.windows)
            case Flush():
                self._flush = True

    def due(self, waiting: Some[Sequence], now_ms: float) -> Reason | None:
        """Return why those that wait may pass now; None where they should wait. A Flush counts for one look."""
        reason = self.peek(waiting, now_ms)
        self._flush = False
        return reason

    def peek(self, waiting: Some[Sequence], now_ms: float) -> Reason | None:
        """Return likewise, and leave a Flush for the look that counts."""
        if not waiting:
            return None
        oldest = now_ms - min(sequence.due_since for sequence in waiting)
        moving = 0 if self._flush else self.n_active - len(waiting)
        return self.gate.due(len(waiting), oldest, self.n_active, moving)

    def opens_in_ms(self, waiting: Some[Sequence], now_ms: float) -> float | None:
        """Return for how long nothing passes without a message; None for ever."""
        if not waiting:
            return None
        oldest = min(sequence.due_since for sequence in waiting)
        return max(0.0, oldest + self.gate.max_wait_ms - now_ms)

    def tell(self, waiting: int, reason: Reason | None, now_ms: float) -> None:
        """Tell the front end how many wait at a closed gate, where that has changed, and now and then the counters."""
        closed = 0 if reason else waiting
        if closed != self._told:
            self._told = closed
            meter = self.meter
            self.send(FRONT_END, Gated(model=meter.model, epoch=meter.epoch, waiting=closed))
        if self.meter.due(now_ms):
            window = self.gate.window(self.n_active)
            tally = self.meter.tally(now_ms, n_active=self.n_active, window=window, waiting=waiting)
            self.send(FRONT_END, tally)

    def others_write(self, held: Some[Sequence]) -> bool:
        """Return whether any request can write, here or elsewhere; of those held the front end may not know all yet."""
        return self.n_active > sum(sequence.request not in self._held for sequence in held)

    def tell_held(self, held: Some[Sequence]) -> None:
        """Tell the front end which requests cannot reach the gate, where that has changed."""
        requests = [sequence.request for sequence in held]
        if requests != self._held:
            self._held = requests
            meter = self.meter
            self.send(FRONT_END, Held(model=meter.model, epoch=meter.epoch, requests=requests))

    def launched(self, chunks: Some[Chunk], reason: Reason | None, now_ms: float) -> list[Chunk]:
        """Count a batch, and return what it holds beside decodes and returns."""
        passing = [c.sequence for c in chunks if c.sequence.owned and not c.sequence.prefilling]
        self.meter.launched(reason or "prefill", [now_ms - s.due_since for s in passing])
        return [c for c in chunks if not c.sequence.owned or c.sequence.prefilling]
