"""What one request's choice depends on beside its logits: penalties, biases and a grammar, over the tokens of all models.

A subserver keeps one `Shaper` a request. It reads the tokens that it has not read yet, be they its own or a hand-off's, so
nothing has to travel, and a subserver that starts anew reads them all again.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import Future
from typing import TYPE_CHECKING

import numpy as np
import torch
from tokenrouter_kernels import Shaping

from tokenrouter.runtime.grammar import GrammarError, Grammars, Matcher
from tokenrouter.runtime.messages import Sampling

if TYPE_CHECKING:
    from tokenrouter.runtime.sequence import Sequence

SLOW_MS = 10.0  # of a thread's own time, from which on a mask is slow


def is_shaped(sampling: Sampling) -> bool:
    """Return whether a request asks for anything of this."""
    return bool(
        sampling.grammar
        or sampling.logit_bias
        or sampling.repetition_penalty != 1
        or sampling.frequency_penalty
        or sampling.presence_penalty
    )


def shaper_of(sequence: Sequence) -> Shaper:
    """Return a request's shaper, which is made when it is first asked for."""
    if sequence.shaper is None:
        sequence.shaper = Shaper(sequence.sampling, sequence.n_prompt)
    return sequence.shaper


class Follower:
    """One output on its way through its grammar.

    INVARIANT: `allowed` runs once at a time; while a job runs it, nobody else does.
    """

    def __init__(self, grammars: Grammars, grammar: str) -> None:
        self._grammars = grammars
        self._grammar = grammar
        self._matcher: Matcher | None = None
        self._n_read = 0  # tokens of the output
        self.slow = (
            True  # as the next mask may be: the grammar is to be compiled, or the last mask was
        )
        self.job: Future[np.ndarray] | None = None
        self._looked_at = -1  # tokens of the output that the job is about

    def allowed(self, output: list[int]) -> np.ndarray:
        """Return what may follow an output: [V] bool; compiles the grammar first. Raises GrammarError."""
        begun = time.thread_time()
        try:
            if self._matcher is None:
                self._matcher = self._grammars.matcher(self._grammar)
            self._matcher.read(output[self._n_read :])
            self._n_read = len(output)
            found = self._matcher.allowed()
        except GrammarError:
            self._grammars.drop(
                self._grammar
            )  # too costly, most likely, and what it has built is large
            raise
        self.slow = 1e3 * (time.thread_time() - begun) > SLOW_MS
        return found

    def look(self, n_output: int, job: Future[np.ndarray]) -> None:
        """Note the job that looks for what may follow an output of this length."""
        assert self.job is None or self.job.done(), "two jobs follow one output"
        self.job, self._looked_at = job, n_output

    def looked_at(self, n_output: int) -> bool:
        """Return whether the latest job is about an output of this length."""
        return self._looked_at == n_output

    @property
    def found(self) -> bool:
        """Whether the latest job has ended."""
        return self.job is not None and self.job.done()

    def take(self) -> np.ndarray:
        """Return what the latest job has found; raises GrammarError."""
        assert self.job is not None
        return self.job.result()


class Shaper:
    """The tokens of one request as its shaping sees them."""

    def __init__(self, sampling: Sampling, n_prompt: int) -> None:
        self._sampling = sampling
        self._n_prompt = n_prompt
        self._n_read = 0
        self._seen: set[int] = set()  # ids of prompt and output
        self._written: Counter[int] = Counter()  # ids of the output
        self.follower: Follower | None = None  # where there is a grammar

    def read(self, tokens: list[int]) -> None:
        """Take the whole sequence as it is now."""
        if self._sampling.repetition_penalty != 1:
            self._seen.update(tokens[self._n_read :])
        self._written.update(tokens[max(self._n_read, self._n_prompt) :])
        self._n_read = len(tokens)

    def shaping(self, device: torch.device, allowed: np.ndarray | None) -> Shaping:
        """Return what the next choice is shaped by, `allowed` being what the grammar lets follow: [V] bool."""
        sampling = self._sampling

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
            allowed=None if allowed is None else torch.from_numpy(allowed).to(device),
        )
