"""What the runtime needs of a model, whoever runs it: our decoder or transformers."""

from __future__ import annotations

from typing import Protocol

import torch

from tokenrouter.models.config import ModelConfig
from tokenrouter.runtime.model.batch import ExtendBatch, ExtendOutput
from tokenrouter.runtime.model.kv import KVCache


class LanguageModel(Protocol):
    """A causal model over a paged cache."""

    @property
    def config(self) -> ModelConfig:
        """Its sizes."""
        ...

    @property
    def dtype(self) -> torch.dtype:
        """The type of its weights, activations and cache."""
        ...

    def new_cache(self, pages: int, page_size: int) -> KVCache:
        """Return empty pages of this model's shape."""
        ...

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the input embeddings of tokens: [B] -> [B, H]."""
        ...

    def extend(self, batch: ExtendBatch, cache: KVCache, *, hidden: bool = False) -> ExtendOutput:
        """Read the batch's tokens into the cache and return what those that sample need."""
        ...
