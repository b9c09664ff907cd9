"""The batching window of one subserver: how many requests must wait before a batch is launched.

The table comes from the throughput model (design: «Rules that keep the runtime safe whatever the model says»). A window
is a matter of speed only: the second and third rule let a batch go wherever the first could wait in vain. It knows
nothing of clocks; times are milliseconds that the caller measured. `trc simulate` asks the same gate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

Reason = Literal["window", "max_wait", "nothing_else"]
REASONS = (
    *get_args(Reason),
    "prefill",
)  # of a batch; the last one is for batches that hold prefill only


class Gate:
    """A row of the window table and the three launch rules."""

    def __init__(self, windows: Sequence[int], max_wait_ms: float) -> None:
        assert max_wait_ms > 0, max_wait_ms
        self.max_wait_ms = max_wait_ms
        self.swap(windows)

    def swap(self, windows: Sequence[int]) -> None:
        """Take another row, whole."""
        assert windows and min(windows) >= 1, windows
        self.windows = list(windows)  # by number of active requests - 1

    def window(self, n_active: int) -> int:
        """Return the window for a number of active requests.

        A window that is feasible for N is feasible for more, so the last row serves every N beyond the table.
        """
        return self.windows[min(max(n_active, 1), len(self.windows)) - 1]

    def due(self, waiting: int, oldest_ms: float, n_active: int, moving: int) -> Reason | None:
        """Return why a batch may be launched now; None where it should wait.

        `moving` is how many active requests wait neither here nor, as far as is known, at another gate.
        """
        if waiting == 0:
            return None
        if waiting >= self.window(n_active):
            return "window"
        if moving <= 0:
            return "nothing_else"
        if oldest_ms >= self.max_wait_ms:
            return "max_wait"
        return None


def infeasible_count(table: Sequence[Sequence[int]]) -> int | None:
    """Return the least N whose windows, by model, could all wait for each other; None where there is none.

    Windows are feasible for N where sum (B_i - 1) < N.
    """
    for n, column in enumerate(zip(*table, strict=True), 1):
        if min(column) < 1 or sum(column) - len(column) >= n:
            return n
    return None
