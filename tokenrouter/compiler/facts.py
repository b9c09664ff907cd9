"""What the compiler knows of a model before it runs: config, fingerprint, vocabulary; never its weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from tokenrouter.models.config import ModelConfig
from tokenrouter.models.locate import Located
from tokenrouter.models.vocabulary import Vocabulary, read_vocabulary


@dataclass(frozen=True)
class Outline:
    """What was kept of a vocabulary (`compiler.kept`); its table is read where somebody asks for it."""

    size: int
    digest: str
    located: Located

    @cached_property
    def _table(self) -> Vocabulary:
        return read_vocabulary(self.located)

    @property
    def tokens(self) -> tuple[bytes, ...]:
        """The bytes of every id. Raises ModelError."""
        return self._table.tokens

    @property
    def special_ids(self) -> frozenset[int]:
        """Control tokens. Raises ModelError."""
        return self._table.special_ids


@dataclass(frozen=True, slots=True)
class Facts:
    """One model as found on disk."""

    fingerprint: str  # over canonical config and vocabulary
    config: ModelConfig
    vocabulary: Vocabulary | Outline = field(repr=False)
    template: str | None = field(repr=False)  # chat template
    parameters: int = 0  # 0 where weights are not at hand
