"""The transition graph: who may hand a request to whom, and what is kept on the way."""

from __future__ import annotations

from dataclasses import dataclass

from tokenrouter.compiler.ir import Automaton, Borrow, Rule, State, Stop, targets


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
