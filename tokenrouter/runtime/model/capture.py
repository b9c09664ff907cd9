"""The seam between what a step computes and how it is launched: work is captured once and then replayed over the same buffers.

On a GPU a replay is one launch of a `torch.cuda.CUDAGraph`. On a CPU there is nothing to gain and the work itself is called again, over
the very same buffers: whatever depends on padding, on what is left in a buffer from the step before, or on the choice of a bucket,
is there as it is on a GPU, which is how it is tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result", bound="tuple[torch.Tensor | None, ...]")
Work = Callable[[], None]  # reads and writes buffers that stay where they are
WARM = 2  # calls before a capture: kernels are compiled and workspaces allocated by the first


class Eager:
    """Replays by calling."""

    def capture(self, work: Work) -> Work:
        """Return what runs the work again."""
        return work

    def keep(self, before: Result | None, result: Result) -> Result:
        """Return where results lie from now on: as on a GPU, each replay writes over those of the one before."""
        if before is None:
            return result
        for to, made in zip(before, result, strict=True):
            if to is not None and made is not None:
                to.copy_(made)
        return before

    def wait(self) -> None:
        """Return when the copies that were begun are done: here at once."""


class CudaGraphs:
    """Replays CUDA graphs, which share one pool of memory: only one of them runs at a time."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._pool: Any = None
        self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def capture(self, work: Work) -> Work:
        """Return what launches the captured work."""
        side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(WARM):
                work()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool):
            work()
        self._pool = self._pool or graph.pool()

        def replay() -> None:
            graph.replay()
            self._copied.record()

        return replay

    def keep(self, before: Result | None, result: Result) -> Result:
        """Return where results lie from now on: where the captured kernels write them."""
        return result

    def wait(self) -> None:
        """Return when the last replay, and with it the copy before it, is done: the host's buffers may be written again."""
        self._copied.synchronize()


Capture = Eager | CudaGraphs


def capture_for(device: torch.device) -> Capture:
    """Return how work is captured on a device."""
    return CudaGraphs(device) if device.type == "cuda" else Eager()
