"""What follows the model in a captured step: candidates, their log probabilities, signals and rules, in the same graph.

What the host knows of a request (its sampling, its seed and position, the program's params, counters and windows) is laid into buffers
before the step; what the step decided comes back with the logits. A request that shapes its choice (penalties, a bias, a grammar) is
drawn from logits that only the host can make: a step with such a request leaves the rest to the tasks that follow, as an eager
step does. So does a program that reads load, which changes while a step runs.
"""

from __future__ import annotations

from typing import NamedTuple, TypeGuard

import tokenrouter_kernels as kernels
import torch
from torch import Tensor

from tokenrouter.plan.structs import Signal
from tokenrouter.runtime.done import Done
from tokenrouter.runtime.kernel.router import CompiledRouter, Inputs
from tokenrouter.runtime.model import ExtendOutput
from tokenrouter.runtime.row import Output, Row
from tokenrouter.runtime.sampler import LOGPROB
from tokenrouter.runtime.scheduler import Chunk
from tokenrouter.runtime.shaping import is_shaped

LOADS = ("queue", "elapsed")


class _Drawing(NamedTuple):
    """What a candidate is drawn by, each [R]."""

    params: kernels.SamplingParams
    seeds: Tensor  # int64
    positions: Tensor  # int64


class Fused:
    """The tasks behind the model of one subserver, for up to `size` requests."""

    def __init__(
        self, router: CompiledRouter, vocabulary: int, size: int, device: torch.device | str
    ) -> None:
        self.router = router
        self.vocabulary = vocabulary
        router.reserve(size)
        self._inputs = Inputs(*(t.to(device) for t in router.inputs([], size)))
        params = kernels.SamplingParams.of([(0.0, 0, 1.0, 0.0)] * size, device)
        numbers = torch.zeros(2, size, dtype=torch.int64, device=device)
        self._drawing = _Drawing(params, numbers[0], numbers[1])

    @staticmethod
    def fits(router: object) -> TypeGuard[CompiledRouter]:
        """Return whether a router's program can be decided within a step."""
        if not isinstance(router, CompiledRouter) or not router.rules:
            return False
        nodes = router.evaluator.nodes
        return not any(isinstance(node, Signal) and node.name in LOADS for node in nodes)

    def load(self, chunks: list[Chunk]) -> bool:
        """Lay what the host knows into the buffers; False where a request shapes its choice."""
        sampling = [chunk.sequence.sampling for chunk in chunks]
        if any(is_shaped(each) for each in sampling):
            return False
        n = len(chunks)
        rows = [(each.temperature, each.top_k, each.top_p, each.min_p) for each in sampling]
        for to, made in zip(self._drawing.params, kernels.SamplingParams.of(rows), strict=True):
            _lay(made, to[:n])
        _lay(kernels.seeds([each.seed for each in sampling]), self._drawing.seeds[:n])
        positions = torch.tensor([chunk.sequence.state.position for chunk in chunks])
        _lay(positions, self._drawing.positions[:n])
        for to, known in zip(
            self._inputs, self.router.inputs([Row(chunk) for chunk in chunks]), strict=True
        ):
            _lay(known, to[:n])
        return True

    def work(self, output: ExtendOutput) -> Done:
        """Compute all that follows from the logits of some requests; nothing is read back."""
        n = len(output.logits)
        raw = output.logits.narrow(1, 0, self.vocabulary)
        seen = Output(raw, output.hidden, self.router.deferred)
        drawing = self._drawing
        uniforms = kernels.uniform(
            drawing.seeds[:n], drawing.positions[:n], self.router.model, kernels.SAMPLE
        )
        params = kernels.SamplingParams(*(column[:n] for column in drawing.params))
        seen.tokens = kernels.sample(seen.logits, params, uniforms)
        heads = [self.router.evaluator.heads[at](seen).double() for at in self.router.layout.heads]
        inputs = Inputs(*(column[:n] for column in self._inputs))
        routed = self.router.launch(
            raw, seen.tokens, inputs, torch.stack(heads, 1) if heads else None
        )
        return Done(seen.tokens, seen.figure(LOGPROB), *routed)


def _lay(made: Tensor, to: Tensor) -> None:
    """Copy to a buffer; from pinned memory where that lies on a GPU, so that the host does not wait."""
    to.copy_(made.pin_memory() if to.is_cuda else made, non_blocking=True)
