"""What the compiler knows of a model before it runs: config, fingerprint, vocabulary; never its weights."""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenrouter.models.config import ModelConfig
from tokenrouter.models.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Facts:
    """One model as found on disk."""

    fingerprint: str  # over canonical config and vocabulary
    config: ModelConfig
    vocabulary: Vocabulary = field(repr=False)
    template: str | None = field(repr=False)  # chat template
    parameters: int = 0  # 0 where weights are not at hand
