"""One request's way through one step, and what a step needs of a model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import tokenrouter_kernels as kernels
import torch
from tokenrouter_kernels.native.certainty import Looked

from tokenrouter.runtime.done import Done
from tokenrouter.runtime.scheduler import Chunk
from tokenrouter.runtime.state import Decision

if TYPE_CHECKING:
    from tokenrouter.runtime.evaluate import Values

Key = tuple[str, tuple[int, ...]]  # a signal of the logits: name, arguments


class StepOutput(NamedTuple):
    """What a model gave for a batch: a row for each chunk that samples, in their order."""

    logits: torch.Tensor  # [B, V]: raw, over the real vocabulary only
    hidden: torch.Tensor | None  # [B, H]: after the final norm; None where nobody reads it
    # By chunk: [n, V] after each of its tokens, where a prompt is scored.
    scored: Mapping[int, torch.Tensor] = MappingProxyType({})
    done: Done | None = None  # where the step has done more than the model
    looked: Looked | None = None  # where the likeliest ids were seen on the way


class Output:
    """A step's outputs on their way through the tasks: [B, ...], a row for each request that samples."""

    __slots__ = ("done", "figures", "hidden", "logits", "looked", "raw", "tokens")

    def __init__(self, raw: torch.Tensor, hidden: torch.Tensor | None, deferred: list[int]) -> None:
        self.raw = raw
        self.logits = raw  # without the columns that are never sampled
        if deferred:
            self.logits = raw.clone()
            for column in (
                deferred
            ):  # one by one: a list would be copied to the device within a captured step
                self.logits[:, column] = float("-inf")
        self.hidden = hidden
        self.done: Done | None = None
        self.looked: Looked | None = None  # of these logits
        self.tokens: torch.Tensor | None = None  # [B] candidates; None before `sample`
        self.figures: dict[Key, torch.Tensor] = {}  # signals of the logits, by name and arguments

    def figure(self, key: Key) -> torch.Tensor:
        """Return a signal of the logits: [B]."""
        found = self.figures.get(key)
        if found is None:
            self.compute([key])
            found = self.figures[key]
        return found

    def compute(self, keys: list[Key]) -> None:
        """Compute signals together, so that they share what they have in common."""
        assert self.tokens is not None
        columns = [key for key in keys if key[0] == "column"]
        others = [key for key in keys if key[0] != "column"]
        looked = self.looked if self.looked and self.tokens is self.looked.ids else None
        self.figures |= kernels.signals(others, self.logits, self.tokens, looked)
        if columns:
            self.figures |= kernels.signals(columns, self.raw, self.tokens)


class Row:
    """A request in a step: what the tasks so far have made of it."""

    __slots__ = (
        "advanced",
        "at",
        "chunk",
        "decision",
        "elapsed_ms",
        "loads",
        "logprob",
        "output",
        "queues",
        "sequence",
        "shaping",
        "signals",
        "token",
        "top",
        "values",
        "values_at",
        "windows",
    )

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.sequence = chunk.sequence
        self.output: Output | None = None
        self.at = -1  # row in the output
        self.shaping: kernels.Shaping | None = None  # of the choice, never of signals
        self.token = -1  # the candidate
        self.logprob = 0.0  # of the candidate, raw
        self.top: list[
            tuple[int, float]
        ] = []  # ids and log probabilities, where they are asked for
        self.values: Values | None = None  # of the program's nodes; None before `signals`
        self.values_at = -1  # row in the values
        self.windows = chunk.sequence.state.windows  # as this step leaves them
        self.signals: dict[str, float] = {}  # by readable text, for traced requests
        self.queues: list[int] = []  # by model, where a rule reads load
        self.elapsed_ms = 0.0
        self.loads: dict[int, float] = {}  # load signals that were read, by node
        self.decision: Decision | None = None
        self.advanced = False  # whether the request's state is past the decision

    def decided(self) -> Decision:
        """Return what was decided; a graph that asks nobody keeps the candidate and stays."""
        if self.decision is None:
            self.decision = Decision(keep=True, target=self.sequence.state.owner)
        return self.decision


@runtime_checkable
class Runner(Protocol):
    """A model and its KV pool, as the subserver uses them."""

    capacity_tokens: int

    def run(self, chunks: list[Chunk], *, hidden: bool) -> StepOutput:
        """Read the chunks' tokens and return the outputs of those that sample."""
