"""What the compiler knows of a model before it runs: config, fingerprint, vocabulary; never its weights."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of one model, by id."""

    digest: str  # over the table and the special ids
    table: tuple[bytes, ...] = field(repr=False)  # empty for an id that the tokenizer lacks
    special_ids: frozenset[int] = field(repr=False)
    template: str | None = field(repr=False)  # chat template


@dataclass(frozen=True, slots=True)
class Facts:
    """One model as found on disk."""

    fingerprint: str  # over canonical config and tokenizer
    family: str
    vocab_size: int  # rows of the head, padding included
    context: int
    layers: int
    hidden_size: int
    kv_heads: int
    head_dim: int
    parameters: int  # 0 where weights are not at hand
    stop_ids: tuple[int, ...]
    vocabulary: Vocabulary
