"""Load as one subserver knows it: what the signals `queue(M)` and `elapsed` read.

A queue is the requests that a model owns and that are not in the batch at hand. A subserver counts its own; of its peers
it knows what the last hand-off or admission brought, so that no message is sent for a signal's sake. What was read is
written down, step by step (`RouteState.loads`, `Token.loads`), which is all that a replay needs.
"""

from __future__ import annotations

from collections.abc import Callable

from tokenrouter.plan.nodes import reads_load
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.row import Row
from tokenrouter.runtime.sequence import Sequence


class Pressure:
    """Queue lengths by model, and the clock. Of a plan that reads no load it knows nothing, and costs nothing."""

    def __init__(self, plan: Plan, model: int, now_ms: Callable[[], float]) -> None:
        self.model = model
        self.now_ms = now_ms
        self.matters = reads_load(plan)
        self.queues = [0] * len(plan.models) if self.matters else []

    def heard(self, queues: list[int]) -> None:
        """Take what a message says of the other models."""
        for model, length in enumerate(queues if self.matters else []):
            if model != self.model:
                self.queues[model] = length

    def admitted(self, sequence: Sequence, elapsed_ms: float) -> None:
        """Note since when a request has been served."""
        sequence.admitted_ms = self.now_ms() - elapsed_ms

    def told(self, sequences: dict[int, Sequence], in_batch: int = 0) -> list[int]:
        """Return the queues as of now; [] where no rule reads them."""
        if self.matters:
            self.queues[self.model] = self.own(sequences) - in_batch
        return self.queues.copy()

    def own(self, sequences: dict[int, Sequence]) -> int:
        """Return the requests that this model owns; 0 where no rule reads load."""
        return sum(s.owned for s in sequences.values()) if self.matters else 0

    def show(self, rows: list[Row], sequences: dict[int, Sequence]) -> None:
        """Give rows what their rules may read."""
        if self.matters:
            queues, now = self.told(sequences, len(rows)), self.now_ms()
            for row in rows:
                row.queues, row.elapsed_ms = queues, now - row.sequence.admitted_ms

    def read(self, row: Row) -> list[dict[int, float]]:
        """Return the values that the steps at a position have read, this one's last."""
        return [*row.sequence.state.loads, row.loads] if self.matters else []
