"""A language model with its KV pool: chunks of sequences in, logits of the rows that sample out."""

from __future__ import annotations

import torch

from tokenrouter.runtime.model import ExtendBatch, Extension, LanguageModel
from tokenrouter.runtime.row import StepOutput
from tokenrouter.runtime.scheduler import Chunk


class ModelRunner:
    """One model and the pages it keeps."""

    def __init__(
        self, model: LanguageModel, capacity_tokens: int, page_size: int, vocabulary_size: int
    ) -> None:
        assert capacity_tokens % page_size == 0, (capacity_tokens, page_size)
        self.model = model
        self.capacity_tokens = capacity_tokens
        self.page_size = page_size
        self.vocabulary_size = vocabulary_size
        self.cache = model.new_cache(capacity_tokens // page_size, page_size)

    @torch.inference_mode()
    def run(self, chunks: list[Chunk], *, hidden: bool) -> StepOutput:
        """Read the chunks' tokens and return the outputs of those that sample."""
        extensions = [
            Extension(
                tokens=sequence.tokens[start : start + n],
                start=start,
                pages=sequence.pages,
                samples=samples,
            )
            for sequence, start, n, samples in chunks
        ]
        batch = ExtendBatch.of(extensions, self.page_size)
        output = self.model.extend(batch, self.cache, hidden=hidden)
        # Rows above the tokenizer's vocabulary are padding: no signal reads them and none is sampled.
        logits = output.logits[:, : self.vocabulary_size]
        return StepOutput(
            logits if logits.dtype == torch.float64 else logits.float(), output.hidden
        )
