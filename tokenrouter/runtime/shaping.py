"""What one request's choice depends on beside its logits: penalties, biases and a grammar, over the tokens of all models.

A subserver keeps one `Shaper` a request. It reads the tokens that it has not read yet, be they its own or a hand-off's, so
nothing has to travel, and a subserver that starts anew reads them all again.
"""

from __future__ import annotations

from collections import Counter

import torch
from tokenrouter_kernels import Shaping

from tokenrouter.runtime.grammar import Grammars, Matcher
from tokenrouter.runtime.messages import Sampling


def is_shaped(sampling: Sampling) -> bool:
    """Return whether a request asks for anything of this."""
    return bool(
        sampling.grammar
        or sampling.logit_bias
        or sampling.repetition_penalty != 1
        or sampling.frequency_penalty
        or sampling.presence_penalty
    )


class Shaper:
    """The tokens of one request as its shaping sees them; raises GrammarError."""

    def __init__(self, sampling: Sampling, n_prompt: int, grammars: Grammars | None) -> None:
        self._sampling = sampling
        self._n_prompt = n_prompt
        self._n_read = 0
        self._seen: set[int] = set()  # ids of prompt and output
        self._written: Counter[int] = Counter()  # ids of the output
        self._matcher: Matcher | None = None
        if sampling.grammar:
            assert grammars is not None, "a grammar, and no engine for it"
            self._matcher = grammars.matcher(sampling.grammar)

    def read(self, tokens: list[int]) -> None:
        """Take the whole sequence as it is now."""
        if self._sampling.repetition_penalty != 1:
            self._seen.update(tokens[self._n_read :])
        output = tokens[max(self._n_read, self._n_prompt) :]
        self._written.update(output)
        if self._matcher is not None:
            self._matcher.read(output)
        self._n_read = len(tokens)

    def shaping(self, device: torch.device) -> Shaping:
        """Return what the next choice is shaped by."""
        sampling = self._sampling
        allowed = None
        if self._matcher is not None:
            allowed = torch.from_numpy(self._matcher.allowed()).to(device)

        def ids(values: list[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        def numbers(values: list[float]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)

        return Shaping(
            repeated=ids(list(self._seen)),
            repetition=sampling.repetition_penalty,
            written=ids(list(self._written)),
            counts=numbers([float(n) for n in self._written.values()]),
            frequency=sampling.frequency_penalty,
            presence=sampling.presence_penalty,
            biased=ids(list(sampling.logit_bias)),
            bias=numbers(list(sampling.logit_bias.values())),
            allowed=allowed,
        )
