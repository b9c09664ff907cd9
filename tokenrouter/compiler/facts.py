"""What the compiler knows of a model before it runs: config, fingerprint, vocabulary; never its weights."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Facts:
    """One model as found on disk."""

    name: str  # as the policy calls it
    fingerprint: str
    family: str
    vocab_size: int  # rows of the head, padding included
    context: int
    layers: int
    hidden_size: int
    kv_heads: int
    head_dim: int
    parameters: int  # 0 where weights are not at hand
    stop_ids: tuple[int, ...]
    vocabulary: str  # digest over the id -> bytes table and the special ids
    tokens: int  # ids that the tokenizer knows
    template: str | None  # chat template; None where there is none
