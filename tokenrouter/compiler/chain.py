"""The ways of a policy's rules with their assumed probabilities, and what follows from them (`profile.flow`)."""

from __future__ import annotations

from tokenrouter.compiler.assume import rule_shares
from tokenrouter.compiler.expr import Lit
from tokenrouter.compiler.ir import Automaton, Borrow, Mix, Rule, Stop, To
from tokenrouter.profile.flow import Flow, Step
from tokenrouter.profile.flow import flow as expected
from tokenrouter.profile.priors import ASSUMED_STAY, UNTIL_SHARE


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
    return expected(steps(auto), _entry(auto))


def _entry(auto: Automaton) -> list[float]:
    """Return the distribution of the first decider."""
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    entry = [0.0] * len(auto.models)
    for rule, p in zip(auto.start, rule_shares(auto, auto.start), strict=True):
        parts = rule.go.weights if isinstance(rule.go, Mix) else ((rule.go.model, 1.0),)
        for name, weight in parts:
            entry[place[name]] += p * weight
    return entry
