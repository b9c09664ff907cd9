"""What one step's logits say: the raw distribution's figures, and the candidate drawn from the shaped one.

Raw: softmax over the real vocabulary, deferral columns left out, before temperature and truncation. Shaped: changed
by penalties, biases and a grammar, divided by the temperature, then cut to `top_k`, to `top_p` of what is left, and to `min_p` of the likeliest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf, log
from typing import NamedTuple

import numpy as np

from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.reference.trace import Slack


class Candidate(NamedTuple):
    """A token, and how near another one was."""

    token: int
    slack: Slack


class Text(NamedTuple):
    """What stands before the choice, and what may follow."""

    prompt: Sequence[int]
    output: Sequence[int]
    allowed: np.ndarray | None = None  # [V] bool; None where no grammar is asked for


class Distribution:
    """The raw distribution of one step. `row` is the head's output, padding included."""

    def __init__(self, row: np.ndarray, size: int, columns: frozenset[int]) -> None:
        self.row = row.astype(np.float64)
        self.size = size
        logits = self.row[:size].copy()
        for column in columns:
            if column < size:
                logits[column] = -inf
        self.logits = logits
        self.order = np.lexsort((np.arange(size), -logits))  # likeliest first, ties to the lower id
        self.p = _softmax(logits)

    def _surprises(self) -> tuple[np.ndarray, np.ndarray]:
        """Return p and -ln p of the tokens that can be drawn."""
        p = self.p[self.p > 0]
        return p, -np.log(p)

    def entropy(self) -> float:
        """Return the Shannon entropy in nats."""
        p, surprise = self._surprises()
        return float((p * surprise).sum())

    def entropy_norm(self) -> float:
        """Return the entropy over that of a uniform choice."""
        return self.entropy() / log(self.size)

    def varentropy(self) -> float:
        """Return the variance of -ln p."""
        p, surprise = self._surprises()
        return float((p * (surprise - (p * surprise).sum()) ** 2).sum())

    def mass(self, k: int) -> float:
        """Return the probability of the `k` likeliest tokens together."""
        return float(self.p[self.order[:k]].sum())

    def margin(self) -> float:
        """Return the largest probability minus the second largest."""
        return float(self.p[self.order[0]] - self.p[self.order[1]])

    def logprob(self, token: int) -> float:
        """Return ln p of a token."""
        top = self.logits.max()
        return float(self.logits[token] - top - np.log(np.exp(self.logits - top).sum()))

    def rank(self, token: int) -> int:
        """Return 1 for the likeliest token, and so on."""
        return int(np.flatnonzero(self.order == token)[0]) + 1

    def evidence(self, k: int) -> tuple[float, float]:
        """Return the aleatoric and epistemic uncertainty over the `k` largest raw logits, each at least 1e-6."""
        from scipy.special import digamma  # noqa: PLC0415 - slow to import, seldom needed

        x = np.maximum(self.logits[self.order[:k]], 1e-6)
        total = x.sum()
        aleatoric = -(x / total * (digamma(x + 1) - digamma(total + 1))).sum()
        return float(aleatoric), float(k / (total + k))

    def column(self, token: int) -> float:
        """Return the sigmoid of one raw logit."""
        return float(1 / (1 + np.exp(-self.row[token])))

    def gap(self, token: int) -> float:
        """Return the distance of a token's raw logit to its neighbours in rank."""
        return _gap(self.logits[self.order], self.rank(token) - 1)

    def wished(self, sampling: Sampling, text: Text) -> np.ndarray:
        """Return the logits as a client's penalties, biases and grammar change them, which no signal sees."""
        z = self.logits.copy()
        for token in {*text.prompt, *text.output}:
            r = sampling.repetition_penalty
            z[token] = z[token] / r if z[token] > 0 else z[token] * r
        for token in set(text.output):
            n = text.output.count(token)
            z[token] -= sampling.frequency_penalty * n + sampling.presence_penalty
        for token, bias in sampling.logit_bias.items():
            z[token] += bias
        if text.allowed is not None:
            z[~text.allowed] = -inf
        return z

    def candidate(self, sampling: Sampling, draw: float, text: Text) -> Candidate:
        """Return the token that a draw in [0, 1) stands for."""
        logits = self.wished(sampling, text)
        order = np.lexsort((np.arange(self.size), -logits))
        z = logits[order]
        at, boundary = _drawn(z, sampling, draw)
        return Candidate(int(order[at]), Slack(gap=_gap(z, at), boundary=boundary))


def _gap(z: np.ndarray, at: int) -> float:
    near = [abs(z[at] - z[i]) for i in (at - 1, at + 1) if 0 <= i < len(z) and not isinf(z[i])]
    return float(min(near, default=inf))


def _drawn(z: np.ndarray, sampling: Sampling, draw: float) -> tuple[int, float]:
    """Return the place that a draw falls on, and how near it was to others; logits in falling order."""
    if sampling.temperature == 0:
        return 0, inf
    p = _softmax(z / sampling.temperature)
    p = p[p > 0]
    near = [inf]
    if 0 < sampling.top_k < len(p):
        near.append(float(z[sampling.top_k - 1] - z[sampling.top_k]))
        p = p[: sampling.top_k] / p[: sampling.top_k].sum()
    if sampling.top_p < 1:
        sums = p.cumsum()
        near.append(float(abs(sums - sampling.top_p).min()))
        kept = int((sums < sampling.top_p).sum()) + 1
        p = p[:kept] / p[:kept].sum()
    if sampling.min_p > 0:
        near += [float(abs(p[1:] - sampling.min_p * p[0]).min())] if len(p) > 1 else []
        p = p[p >= sampling.min_p * p[0]]
        p = p / p.sum()
    sums = p.cumsum()
    at = min(int((sums <= draw * sums[-1]).sum()), len(p) - 1)
    edges = np.concatenate(([0.0], sums))[at : at + 2]
    # The edges 0 and 1 cannot be crossed.
    near += [abs(float(draw * sums[-1] - e)) for e in edges if 0 < e < sums[-1]]
    return at, min(near)


def _softmax(logits: np.ndarray) -> np.ndarray:
    e = np.exp(logits - logits.max())
    return np.asarray(e / e.sum())
