"""The transition graph: who may hand a request to whom, and what is kept on the way."""

from __future__ import annotations

from dataclasses import dataclass

from tokenrouter.compiler.ir import Automaton, Borrow, Rule, State, Stop, To, targets


@dataclass(frozen=True, slots=True)
class Move:
    """One way for the next position to change hands; `target` is the deciding model itself where it stays.

    `keep` tells whether a token is kept before the target decides: by the candidate, or by a borrowed stay.
    """

    source: str
    target: str
    rule: Rule
    number: int
    keep: bool
    home: bool = False  # the return from a borrowed stay


def moves(auto: Automaton) -> list[Move]:
    """Return every move of a policy, in source order."""
    return [move for state, number, rule in auto.rules() for move in _of_rule(state, number, rule)]


def _of_rule(state: State, number: int, rule: Rule) -> list[Move]:
    match rule.go:
        case Stop():
            return []
        case Borrow(model=lender):
            # A stay keeps at least one token, since a rule whose length is below 1 is passed over.
            return [
                Move(state.model, lender, rule, number, keep=rule.keep),
                Move(lender, state.model, rule, number, keep=True, home=True),
            ]
        case go:
            names = targets(go) or (state.model,)
            return [Move(state.model, name, rule, number, keep=rule.keep) for name in names]


def leaves(state: State, index: int) -> bool:
    """Return whether a rule hands the request on, or ends it."""
    go = state.rules[index].go
    return isinstance(go, Stop) or any(name != state.model for name in targets(go))


def refusals(auto: Automaton) -> set[tuple[str, str]]:
    """Return from whom to whom a `retry` may be refused, which then keeps the candidate and stays.

    A model has one turn at a position, and the way back to it is one of `retry`s. What guards say is not asked.
    """
    drops: dict[str, set[str]] = {}
    for state, _, rule in auto.rules():
        if not rule.keep and isinstance(rule.go, To):
            drops.setdefault(state.model, set()).add(rule.go.model)
    behind = {source: _behind(drops, source) for source in drops}
    return {
        (source, target)
        for source, names in drops.items()
        for target in names
        if source in behind.get(target, ())
    }


def _behind(drops: dict[str, set[str]], first: str) -> set[str]:
    """Return the models that a position comes to from one by `retry`s alone."""
    out: set[str] = set()
    ahead = drops[first]
    while ahead:
        out |= ahead
        ahead = {target for name in ahead for target in drops.get(name, ())} - out
    return out
