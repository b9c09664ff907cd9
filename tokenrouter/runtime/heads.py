"""A model's router heads, ready for its subserver: held to the plan's digests, batched, each evaluated once a step."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from tokenrouter.models import ModelError
from tokenrouter.plan.structs import Head, HeadRef, Plan
from tokenrouter.runtime.model.head import HeadFunction, HeadInputs, in_fixed_calls, load_head
from tokenrouter.runtime.model.head_python import load_python_head
from tokenrouter.runtime.row import Output
from tokenrouter.runtime.settings import Settings


@runtime_checkable
class Embeds(Protocol):
    """A runner that knows its model's input embedding."""

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the input embeddings of tokens: [B] -> [B, H]."""
        ...


class StepHead:
    """One head as the evaluator asks it: a step's output -> prob [B]."""

    def __init__(self, head: Head, apply: HeadFunction, embeds: object) -> None:
        self.head = head
        self.apply = apply
        self.embeds = embeds

    @torch.inference_mode()
    def __call__(self, output: Output) -> torch.Tensor:
        """Return the head's probability for every row of an output; computed once."""
        key = (f"head {self.head.name}", ())
        if key not in output.figures:
            output.figures[key] = self.apply(self._inputs(output))
        return output.figures[key]

    def _inputs(self, output: Output) -> HeadInputs:
        reads = self.head.reads
        assert output.tokens is not None
        assert output.hidden is not None or "hidden" not in reads, (
            "`extend` returns no hidden state"
        )
        embedding = None
        if self.head.kind == "r2r":
            assert isinstance(self.embeds, Embeds), "this runner knows no embedding"
            embedding = self.embeds.embed(output.tokens)
        return HeadInputs(
            hidden=output.hidden if "hidden" in reads else None,
            logits=output.raw if "logits" in reads else None,
            token=output.tokens if "token" in reads else None,
            embedding=embedding,
        )


def load_heads(plan: Plan, model: int, runner: object, settings: Settings) -> dict[int, StepHead]:
    """Return the heads that a model's program reads, by their index; raises TokenRouterError."""
    nodes = plan.programs[model].nodes
    wanted = sorted({node.head for node in nodes if isinstance(node, HeadRef)})
    found = {}
    for at in wanted:
        apply = _load(plan.heads[at], settings)
        if settings.deterministic:
            apply = in_fixed_calls(apply)
        found[at] = StepHead(plan.heads[at], apply, runner)
    return found


def _load(head: Head, settings: Settings) -> HeadFunction:
    if head.kind == "python":
        return load_python_head(head.name, head.file)
    path = Path(settings.base) / head.file
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        if digest != head.digest:
            raise ModelError(
                f"`{path}` is not the file that the plan was compiled for; compile the policy again"
            )
        return load_head(path)
    except OSError as error:
        raise ModelError(f"head `{head.name}`: cannot read `{path}`: {error.strerror}") from None
    except ModelError as error:
        raise ModelError(f"head `{head.name}`: {error}") from None
