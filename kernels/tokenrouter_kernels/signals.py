"""Routing signals: what a step's raw logits say of the model's certainty.

Shapes: logits [B, V] over the real vocabulary, candidates [B] int64; every signal is [B], float64 for float64 logits and
float32 else. With m the largest logit, S = sum exp(x - m) and p = exp(x - m) / S:

    entropy     ln S - sum p (x - m)                            entropy_norm   entropy / ln V
    varentropy  sum p (ln p + entropy)^2
    maxprob     1 / S                                           margin         (1 - exp(x_2 - m)) / S
    mass(k)     sum of the k largest p
    logprob     x_c - m - ln S                                  rank           1 + ids before c by (logit descending, id)
    column(i)   sigmoid(x_i)
    aleatoric(k), epistemic(k), over the k largest raw logits e_j = max(x_j, 1e-6), E = sum e_j:
                - sum e_j / E (psi(e_j + 1) - psi(E + 1))        k / (E + k)

A banned id has logit -inf: its probability is 0 and it contributes nothing, never NaN. `column` reads the logit of an id
that is banned for all others, so it is given the unmasked logits. A row's values do not depend on the other rows, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
from torch import Tensor

from tokenrouter_kernels.reduce import row_sum

Key = tuple[str, tuple[int, ...]]

_LEAST_EVIDENCE = 1e-6


class Shared:
    """What several signals of one step have in common, each computed once and only if asked for."""

    def __init__(self, logits: Tensor, candidates: Tensor) -> None:
        self.candidates = candidates
        self.x = logits if logits.dtype == torch.float64 else logits.float()
        self._sums: tuple[Tensor, Tensor, Tensor, Tensor] | None = None
        self._parts: tuple[Tensor, Tensor, Tensor] | None = None
        self._entropy: Tensor | None = None

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return x - m with 0 for banned ids, p, and ln S."""
        if self._parts is None:
            _, shifted, e, total = self.sums()
            finite = shifted.masked_fill(torch.isneginf(shifted), 0.0)
            self._parts = finite, e / total, self.log_total()
        return self._parts

    def sums(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return m, x - m, e to that, and S; all that the probability of one id needs."""
        if self._sums is None:
            top = self.x.amax(-1, keepdim=True)
            shifted = self.x - top
            e = shifted.exp()
            self._sums = top, shifted, e, row_sum(e)[:, None]
        return self._sums

    def log_total(self) -> Tensor:
        """Return ln S."""
        return self.sums()[3].log().squeeze(-1)

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        if self._entropy is None:
            shifted, p, log_total = self.parts()
            # The difference of two near numbers may fall below 0 by rounding.
            self._entropy = (log_total - row_sum(p * shifted)).clamp(min=0.0)
        return self._entropy

    def varentropy(self) -> Tensor:
        """The variance of -ln p."""
        shifted, p, log_total = self.parts()
        surprise = log_total[:, None] - shifted
        return row_sum(p * (surprise - self.entropy()[:, None]).square())

    def largest(self, k: int) -> Tensor:
        """The k largest logits, best first: [B, k]."""
        return self.x.topk(min(k, self.x.shape[-1]), dim=-1).values

    def margin(self) -> Tensor:
        """The largest p less the second."""
        if self.x.shape[-1] == 1:
            return torch.ones_like(self.x[:, 0])
        top = self.largest(2)
        return (1 - (top[:, 1] - top[:, 0]).exp()) * self.maxprob()

    def maxprob(self) -> Tensor:
        """The largest p."""
        return (-self.log_total()).exp()

    def mass(self, k: int) -> Tensor:
        """The sum of the k largest p."""
        if k >= self.x.shape[-1]:
            return torch.ones_like(self.x[:, 0])
        top = self.largest(k)
        return ((top - top[:, :1]).exp().sum(-1) * self.maxprob()).clamp(max=1.0)

    def logprob(self) -> Tensor:
        """The candidate's ln p."""
        chosen = self.x.gather(1, self.candidates[:, None]).squeeze(1)
        return (chosen - self.sums()[0].squeeze(-1)) - self.log_total()

    def rank(self) -> Tensor:
        """The candidate's place among all."""
        chosen = self.x.gather(1, self.candidates[:, None])
        ids = torch.arange(self.x.shape[-1], device=self.x.device)
        before = (self.x > chosen) | ((self.x == chosen) & (ids < self.candidates[:, None]))
        return (before.sum(-1) + 1).to(self.x.dtype)

    def evidence(self, k: int) -> tuple[Tensor, Tensor]:
        """The k largest logits as evidence, and its sum."""
        evidence = self.largest(k).clamp(min=_LEAST_EVIDENCE)
        return evidence, evidence.sum(-1)

    def aleatoric(self, k: int) -> Tensor:
        """What even more evidence would leave unsure."""
        evidence, total = self.evidence(k)
        spread = torch.digamma(evidence + 1) - torch.digamma(total + 1)[:, None]
        return -(evidence / total[:, None] * spread).sum(-1)

    def epistemic(self, k: int) -> Tensor:
        """What more evidence would make sure."""
        _, total = self.evidence(k)
        return k / (total + k)


def signals(needed: Sequence[Key], logits: Tensor, candidates: Tensor) -> dict[Key, Tensor]:
    """Return the needed signals by (name, args); what they share is computed once."""
    shared = Shared(logits, candidates)
    return {key: found(shared, key) for key in needed}


def signal(name: str, args: tuple[int, ...], logits: Tensor, candidates: Tensor) -> Tensor:
    """Return one signal: [B]."""
    return signals([(name, args)], logits, candidates)[name, args]


def found(shared: Shared, key: Key) -> Tensor:
    """Return one signal from what it shares with others: [B]."""
    name, args = key
    match name:
        case "entropy":
            return shared.entropy()
        case "entropy_norm":
            size = shared.x.shape[-1]
            return shared.entropy() / log(size) if size > 1 else shared.entropy()
        case "varentropy":
            return shared.varentropy()
        case "maxprob":
            return shared.maxprob()
        case "margin":
            return shared.margin()
        case "mass":
            return shared.mass(*args)
        case "logprob":
            return shared.logprob()
        case "rank":
            return shared.rank()
        case "column":
            # torch.sigmoid takes another formula for the last elements of a tensor.
            return 1 / (1 + (-shared.x[:, args[0]]).exp())
        case "aleatoric":
            return shared.aleatoric(*args)
        case "epistemic":
            return shared.epistemic(*args)
        case _:
            raise AssertionError(f"`{name}` is no signal of the logits")
