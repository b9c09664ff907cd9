"""Times on a GPU: by its own events, with the cache emptied before each run; and what the card itself can do."""

from __future__ import annotations

from collections.abc import Callable

import torch
from gpu_figures import FLUSH_BYTES, Ceilings, timed


class Clock:
    """Medians of event times."""

    def __init__(self, device: torch.device, repeat: int) -> None:
        self.device = device
        self.repeat = repeat
        self._flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)

    def ms(self, run: Callable[[], object]) -> float:
        """Return the median time of a call, ms; the first ones, which compile, do not count."""
        for _ in range(3):
            run()
        torch.cuda.synchronize(self.device)
        return timed(lambda: self._once(run), self.repeat)

    def _once(self, run: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._flush.zero_()
        begin.record()
        run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end))


def ceilings(device: torch.device, clock: Clock, dtype: torch.dtype) -> Ceilings:
    """Measure the bandwidth of a copy (read and written bytes) and the rate of a large matrix product."""
    source = torch.empty(2 << 30, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copy_ms = clock.ms(lambda: target.copy_(source))
    n = 8192
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    product_ms = clock.ms(lambda: a @ b)
    return Ceilings(2 * source.nbytes / (copy_ms / 1000), 2 * n**3 / (product_ms / 1000))
