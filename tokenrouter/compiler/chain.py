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

from tokenrouter.compiler.assume import rule_shares
from tokenrouter.compiler.expr import Lit
from tokenrouter.compiler.ir import Automaton, Borrow, Mix, Rule, Stop, To
from tokenrouter.profile.priors import ASSUMED_STAY, MEAN_TOKENS, UNTIL_SHARE

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


def steps(auto: Automaton) -> list[Step]:
    """Return the ways of all rules with their assumed probabilities."""
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    out: list[Step] = []
    for at, state in enumerate(auto.states):
        for rule, p in zip(state.rules, rule_shares(auto, state.rules), strict=True):
            out += _ways(rule, at, p, place)
    return out


def _ways(rule: Rule, at: int, p: float, place: dict[str, int]) -> list[Step]:
    kept = 1.0 if rule.keep else 0.0
    match rule.go:
        case Stop():
            return [Step(at, None, p, kept)]
        case Borrow() as go:
            return [Step(at, at, p, kept, place[go.model], _stay(go))]
        case To() as go:
            return [Step(at, place[go.model], p, kept)]
        case Mix() as go:
            return [Step(at, place[name], p * weight, kept) for name, weight in go.weights]
        case _:
            return [Step(at, at, p, kept)]


def _stay(go: Borrow) -> float:
    known = isinstance(go.most, Lit) and not isinstance(go.most.value, (bool, str))
    most = float(go.most.value) if known and isinstance(go.most, Lit) else ASSUMED_STAY
    return max(1.0, most * (1.0 if go.until is None else UNTIL_SHARE))


def flow(auto: Automaton) -> Flow:
    """Return the expected shares, hand-offs and reach of every model."""
    ways = steps(auto)
    entry = _entry(auto)
    visits = _stationary(ways, entry)
    n = len(auto.models)
    tokens, arrivals = [0.0] * n, [0.0] * n
    for way in ways:
        weight = float(visits[way.source]) * way.p
        tokens[way.source] += weight * way.kept
        if way.lender is not None:
            tokens[way.lender] += weight * way.borrowed
            arrivals[way.lender] += weight
            arrivals[way.source] += weight
        elif way.target is not None and way.target != way.source:
            arrivals[way.target] += weight
    total = sum(tokens) or 1.0
    return Flow(
        [t / total for t in tokens],
        [a / total for a in arrivals],
        [_reached(ways, entry, model) for model in range(n)],
    )


def _entry(auto: Automaton) -> list[float]:
    """Return the distribution of the first decider."""
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    entry = [0.0] * len(auto.models)
    for rule, p in zip(auto.start, rule_shares(auto, auto.start), strict=True):
        parts = rule.go.weights if isinstance(rule.go, Mix) else ((rule.go.model, 1.0),)
        for name, weight in parts:
            entry[place[name]] += p * weight
    return entry


def _survives(way: Step) -> float:
    """Return the probability that a request goes on after this way."""
    return 0.0 if way.target is None else (1.0 - 1.0 / MEAN_TOKENS) ** (way.kept + way.borrowed)


def _stationary(ways: list[Step], entry: list[float]) -> Array:
    """Return decisions by model, as shares of all decisions, where each end is followed by a new start."""
    import numpy as np  # noqa: PLC0415

    n = len(entry)
    p = np.zeros((n, n))
    for way in ways:
        alive = _survives(way)
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


def _reached(ways: list[Step], entry: list[float], model: int) -> float:
    """Return the probability that a request comes to a model, to decide or to lend."""
    import numpy as np  # noqa: PLC0415

    n = len(entry)
    a, b = np.eye(n), np.zeros(n)
    for way in ways:
        if way.source == model:
            continue
        if way.lender == model or way.target == model:
            b[way.source] += way.p
        elif way.target is not None:
            a[way.source, way.target] -= way.p * _survives(way)
    a[model], b[model] = np.eye(n)[model], 1.0
    h = np.linalg.lstsq(a, b, rcond=None)[0]
    return float(min(1.0, max(0.0, float(np.dot(entry, h)))))
