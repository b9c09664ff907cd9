"""A language model with its KV pool: chunks of sequences in, logits of the rows that sample out."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tokenrouter_kernels.native.certainty import Looked

from tokenrouter.runtime.graphs import TOKENS, Graphs, Wanted
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.model import ExtendBatch, ExtendOutput, Extension, LanguageModel
from tokenrouter.runtime.phases import Phases
from tokenrouter.runtime.ranks import Ranks
from tokenrouter.runtime.row import StepOutput
from tokenrouter.runtime.scheduler import Chunk
from tokenrouter.runtime.shaping import is_shaped


def is_greedy(sampling: Sampling) -> bool:
    """Return whether a request is given the likeliest ids as the model has them."""
    return sampling.temperature == 0 and not is_shaped(sampling)


class ModelRunner:
    """One model and the pages it keeps."""

    def __init__(
        self,
        model: LanguageModel,
        capacity_tokens: int,
        page_size: int,
        vocabulary_size: int,
        *,
        device: torch.device | str = "cpu",
        graphs: Wanted | None = None,
    ) -> None:
        assert capacity_tokens % page_size == 0, (capacity_tokens, page_size)
        self.model = model
        self.capacity_tokens = capacity_tokens
        self.page_size = page_size
        self.vocabulary_size = vocabulary_size
        self.device = device
        pages = capacity_tokens // page_size
        # Some pages more where steps are captured, which no request is ever given: padding writes there.
        scratch = 0 if graphs is None else -(-max(TOKENS) // page_size)
        self.cache = model.new_cache(pages + scratch, page_size)
        self.graphs: Graphs | None = None
        if graphs is not None:
            self.graphs = Graphs.new(model, self.cache, graphs, pages, device)
        self.ranks: Ranks | None = None  # the others that share the model
        self.phases = Phases()  # of the subserver, where there is one
        self._likeliest = False  # whether the batch at hand wants nothing but the likeliest ids

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the input embeddings of tokens: [B] -> [B, H]."""
        return self.model.embed(tokens)

    def read(self, extensions: Sequence[Extension], *, hidden: bool) -> ExtendOutput:
        """Read a batch's tokens into the cache and return the rows that are asked for."""
        if self.graphs is not None:
            found = self.graphs.read(extensions)
            if found is not None:
                return found
        self.phases.at("build")
        vocabulary = self.vocabulary_size if self._likeliest else 0
        batch = ExtendBatch.of(extensions, self.page_size, self.device, vocabulary)
        self.phases.at("model")
        return self.model.extend(batch, self.cache, hidden=hidden)

    @torch.inference_mode()
    def run(self, chunks: list[Chunk], *, hidden: bool) -> StepOutput:
        """Read the chunks' tokens and return the outputs of those that sample."""
        self.phases.at("build")
        extensions = [
            Extension(
                tokens=sequence.tokens[start : start + n],
                start=start,
                pages=sequence.pages,
                samples=n if chunk.scored else int(samples),
            )
            for chunk in chunks
            for sequence, start, n, samples in [chunk]
        ]
        if self.graphs is not None:
            self.graphs.ahead(chunks)
        self._likeliest = all(
            is_greedy(chunk.sequence.sampling) and not chunk.scored for chunk in chunks
        )
        self.phases.at("model")
        if self.ranks is None:
            output = self.read(extensions, hidden=hidden)
        else:
            output = self.ranks.lead(self.read, extensions, hidden=hidden)
        # Rows above the tokenizer's vocabulary are padding: no signal reads them and none is sampled.
        logits = output.logits
        if logits.shape[1] > self.vocabulary_size:
            logits = logits[:, : self.vocabulary_size]
        if logits.dtype not in (torch.float32, torch.float64):
            logits = logits.float()
        if not any(chunk.scored for chunk in chunks):
            done = None if self.graphs is None else self.graphs.done
            ids, columns = output.ids, output.columns
            looked = None if ids is None or columns is None else Looked(ids, columns)
            return StepOutput(logits, output.hidden, done=done, looked=looked)
        return _parted(chunks, [e.samples for e in extensions], logits, output.hidden)


def _parted(
    chunks: list[Chunk], n_rows: list[int], logits: torch.Tensor, hidden: torch.Tensor | None
) -> StepOutput:
    """Return the rows that are sampled from, and by chunk those that score a prompt."""
    scored: dict[int, torch.Tensor] = {}
    sampled: list[int] = []
    end = 0
    for at, (chunk, n) in enumerate(zip(chunks, n_rows, strict=True)):
        end += n
        if chunk.scored:
            scored[at] = logits[end - n : end]
        if chunk.samples:
            sampled.append(end - 1)
    return StepOutput(logits[sampled], None if hidden is None else hidden[sampled], scored)
