"""Expected shares, hand-offs and reach of each model, from the probabilities of its rules.

A request's way is a Markov chain over the models whose rules decide. On a rule that is taken with probability p, the
candidate may be kept, a borrowed stay may add tokens of another model, and the next decider follows. A kept token is a
request's last with probability 1 / (mean output length); then a new request starts. With the embedded chain's
stationary vector, shares are kept tokens by writer over all kept tokens; `reached` is the probability that a request
comes to a model before it ends (absorbing chain: h = A h + b).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokenrouter.profile.priors import MEAN_TOKENS

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Step:
    """One way for a decision to end."""

    source: int
    target: int | None  # who decides next; None where the request ends
    p: float
    kept: float  # tokens of `source` kept
    lender: int | None = None
    borrowed: float = 0.0  # tokens that the lender writes in between


@dataclass(frozen=True, slots=True)
class Flow:
    """What is expected of every model, by model."""

    shares: list[float]
    handoffs: list[float]  # hand-offs to the model, for each kept token
    reached: list[float]


def flow(ways: list[Step], entry: list[float], mean_tokens: float = MEAN_TOKENS) -> Flow:
    """Return the expected shares, hand-offs and reach of every model; `entry` is the law of the first decider."""
    visits = _stationary(ways, entry, mean_tokens)
    n = len(entry)
    tokens, arrivals = _tokens(ways, visits), [0.0] * n
    for way in ways:
        weight = float(visits[way.source]) * way.p
        if way.lender is not None:
            arrivals[way.lender] += weight
            arrivals[way.source] += weight
        elif way.target is not None and way.target != way.source:
            arrivals[way.target] += weight
    total = sum(tokens) or 1.0
    return Flow(
        [t / total for t in tokens],
        [a / total for a in arrivals],
        [_reached(ways, entry, model, mean_tokens) for model in range(n)],
    )


def written(ways: list[Step], entry: list[float], mean_tokens: float = MEAN_TOKENS) -> list[float]:
    """Return the tokens of each model that a request is expected to keep before it ends."""
    visits = _stationary(ways, entry, mean_tokens)
    ends = sum(
        float(visits[way.source]) * way.p * (1.0 - _survives(way, mean_tokens)) for way in ways
    )
    return [tokens / ends if ends else 0.0 for tokens in _tokens(ways, visits)]


def _tokens(ways: list[Step], visits: Array) -> list[float]:
    """Return by model the tokens that it writes, a decision."""
    tokens = [0.0] * len(visits)
    for way in ways:
        weight = float(visits[way.source]) * way.p
        tokens[way.source] += weight * way.kept
        if way.lender is not None:
            tokens[way.lender] += weight * way.borrowed
    return tokens


def _survives(way: Step, mean_tokens: float) -> float:
    """Return the probability that a request goes on after this way."""
    return 0.0 if way.target is None else (1.0 - 1.0 / mean_tokens) ** (way.kept + way.borrowed)


def _stationary(ways: list[Step], entry: list[float], mean_tokens: float) -> Array:
    """Return decisions by model, as shares of all decisions, where each end is followed by a new start."""
    import numpy as np  # noqa: PLC0415

    n = len(entry)
    p = np.zeros((n, n))
    for way in ways:
        alive = _survives(way, mean_tokens)
        if way.target is not None:
            p[way.source, way.target] += way.p * alive
        p[way.source] += way.p * (1.0 - alive) * np.array(entry)
    for model in range(n):
        if p[model].sum() == 0.0:  # only borrowed from: nobody decides here
            p[model] = entry
    a = np.vstack([(p.T - np.eye(n)), np.ones(n)])
    b = np.append(np.zeros(n), 1.0)
    solution: Array = np.linalg.lstsq(a, b, rcond=None)[0]
    return np.clip(solution, 0.0, None)


def _reached(ways: list[Step], entry: list[float], model: int, mean_tokens: float) -> float:
    """Return the probability that a request comes to a model, to decide or to lend."""
    import numpy as np  # noqa: PLC0415

    n = len(entry)
    a, b = np.eye(n), np.zeros(n)
    for way in ways:
        if way.source == model:
            continue
        if way.lender == model or way.target == model:
            b[way.source] += way.p * (1.0 - 1.0 / mean_tokens) ** way.kept  # the last goes nowhere
        elif way.target is not None:
            a[way.source, way.target] -= way.p * _survives(way, mean_tokens)
    a[model], b[model] = np.eye(n)[model], 1.0
    h = np.linalg.lstsq(a, b, rcond=None)[0]
    return float(min(1.0, max(0.0, float(np.dot(entry, h)))))
