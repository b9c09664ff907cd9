"""The batching window of one subserver: how many requests must wait before a batch is launched.

The table comes from the throughput model (design: «Rules that keep the runtime safe whatever the model says»). A window
is a matter of speed only: the second and third rule let a batch go wherever the first could wait in vain. It knows
nothing of clocks; times are milliseconds that the caller measured.
"""

from __future__ import annotations

from typing import Literal

Reason = Literal["window", "max_wait", "nothing_else"]


class Gate:
    """A row of the window table and the three launch rules."""

    def __init__(self, windows: list[int], max_wait_ms: float) -> None:
        assert windows and min(windows) >= 1 and max_wait_ms > 0, (windows, max_wait_ms)
        self.windows = windows  # by number of active requests - 1
        self.max_wait_ms = max_wait_ms

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
