"""The ways of a policy's rules with their assumed probabilities, and what follows from them (`profile.flow`)."""

from __future__ import annotations

from tokenrouter.compiler.assume import START, Given, rule_shares, with_given
from tokenrouter.compiler.expr import Lit
from tokenrouter.compiler.ir import Automaton, Borrow, Mix, Rule, Stop, To
from tokenrouter.profile.flow import Flow, Step
from tokenrouter.profile.flow import flow as expected
from tokenrouter.profile.priors import ASSUMED_STAY, UNTIL_SHARE

NOTHING: Given = {}


def shares(auto: Automaton, given: Given = NOTHING) -> list[list[float]]:
    """Return by model the share of its decisions on which each rule fires."""
    return [
        with_given(rule_shares(auto, state.rules), given.get(state.model, {}))
        for state in auto.states
    ]


def start_shares(auto: Automaton, given: Given = NOTHING) -> list[float]:
    """Return the share of the requests on which each start rule fires."""
    return with_given(rule_shares(auto, auto.start), given.get(START, {}))


def steps(auto: Automaton, given: Given = NOTHING) -> list[Step]:
    """Return the ways of all rules with their assumed or given probabilities."""
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    out: list[Step] = []
    found = shares(auto, given)
    for at, state in enumerate(auto.states):
        for rule, p in zip(state.rules, found[at], strict=True):
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


def flow(auto: Automaton, given: Given = NOTHING) -> Flow:
    """Return the expected shares, hand-offs and reach of every model."""
    return expected(steps(auto, given), _entry(auto, given))


def _entry(auto: Automaton, given: Given) -> list[float]:
    """Return the distribution of the first decider."""
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    entry = [0.0] * len(auto.models)
    for rule, p in zip(auto.start, start_shares(auto, given), strict=True):
        parts = rule.go.weights if isinstance(rule.go, Mix) else ((rule.go.model, 1.0),)
        for name, weight in parts:
            entry[place[name]] += p * weight
    return entry
