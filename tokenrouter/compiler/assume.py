"""Assumed probabilities of guards, for a policy that was never measured.

They feed the estimates and the eager or lazy prefill, never a promise: everything made from them is `expected`, and the
plan says `assumed`. A profile replaces them. The priors: one step in four is unsure; a request writes 256 tokens; operands
of `and` and `or` are independent, but for `chance`, which is one draw a step; later rules see what earlier ones left;
bounds that `enforce` guards are kept, and what is asked of `position` is answered at each position (`chain`).
`trc compile --assume` gives some of them other values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod

from tokenrouter.compiler.atoms import scaled
from tokenrouter.compiler.expr import (
    FLIPPED,
    Aggregate,
    Arithmetic,
    ClassOf,
    Comparison,
    Every,
    Expr,
    HeadOf,
    Lit,
    Negation,
    ParamOf,
    Sign,
    SignalOf,
    Some,
    TokenIs,
    rewrite,
    walk,
)
from tokenrouter.compiler.fold import fold_one
from tokenrouter.compiler.ir import Automaton, Borrow, Rule, StartRule
from tokenrouter.compiler.laws import range_of
from tokenrouter.errors import UsageError
from tokenrouter.plan.literal import arithmetic, compare
from tokenrouter.profile.priors import MEAN_TOKENS

CHANCE = SignalOf("chance")
MOST_DRAWS = 64  # parts of a draw that are looked at; between more of them some are taken together
START = "start"  # stands for the start rules among the models' names
Given = Mapping[str, Mapping[int, float]]  # by model or START, by rule: share of its decisions

UNSURE = 0.25  # share of steps at which the model is unsure, by whatever measure
EVENT = 0.05  # share of steps whose candidate is a given word or of a given class
EVEN = 0.5  # of what nothing is known about

# A large value means unsure (+1) or sure (-1).
_DIRECTION = {
    "entropy": 1,
    "entropy_norm": 1,
    "varentropy": 1,
    "aleatoric": 1,
    "epistemic": 1,
    "rank": 1,
    "column": 1,
    "maxprob": -1,
    "margin": -1,
    "mass": -1,
    "logprob": -1,
}


def check(auto: Automaton, given: Given) -> None:
    """Hold what is given to a policy; raises UsageError."""
    lists = {START: len(auto.start)} | {state.model: len(state.rules) for state in auto.states}
    for name, shares in given.items():
        if name not in lists:
            known = ", ".join(f"`{model}`" for model in lists)
            raise UsageError(
                f"--assume {name}: the policy has no model `{name}`; there are {known}"
            )
        for rule in shares:
            if rule >= lists[name]:
                last = lists[name] - 1
                have = (
                    f"rules 0 to {last}, as `trc explain` counts them" if last >= 0 else "no rules"
                )
                raise UsageError(f"--assume {name}.{rule}: `{name}` has {have}")
        total = sum(shares.values())
        if total > 1.0 + 1e-9:
            raise UsageError(f"--assume {name}: its shares sum to {total:.4g}, which is above 1")
        if len(shares) == lists[name] and total < 1.0 - 1e-9:
            raise UsageError(
                f"--assume {name}: the shares of all its rules sum to {total:.4g}, not 1"
            )


def with_given(assumed: list[float], given: Mapping[int, float]) -> list[float]:
    """Return shares with some of them given; the others share the rest in their proportion."""
    free = [0.0 if rule in given else p for rule, p in enumerate(assumed)]
    rest, total = max(0.0, 1.0 - sum(given.values())), sum(free)
    if total == 0.0:  # nothing is assumed of the others, so they are alike
        free = [0.0 if rule in given else 1.0 for rule in range(len(assumed))]
        total = sum(free) or 1.0
    return [given.get(rule, p * rest / total) for rule, p in enumerate(free)]


def rule_shares(
    auto: Automaton, rules: tuple[Rule, ...] | tuple[StartRule, ...], position: float | None = None
) -> list[float]:
    """Return the share of steps (at a position) on which each rule is assumed to fire; they sum to 1."""
    every: Sequence[Rule | StartRule] = rules
    live = [not (isinstance(r.go, Borrow) and r.when and passed_over(auto, r.go)) for r in every]
    guards = [rule.when for rule, fires in zip(every, live, strict=True) if rule.when and fires]
    shares = [0.0] * len(every)
    for width, chance in _draws(auto, guards, position):
        left = width
        for at, rule in enumerate(every):
            if live[at]:
                p = 1.0 if rule.when is None else _holds_at(auto, rule.when, position, chance)
                shares[at] += left * p
                left *= 1.0 - p
    return shares


def _draws(
    auto: Automaton, guards: Sequence[Expr], position: float | None
) -> Iterator[tuple[float, float | None]]:
    """Yield the parts of [0, 1) in which all that guards ask of `chance` is answered alike, by width and middle.

    It is one draw a step, whoever asks for it; None stands for all of it where nobody does.
    """
    asked = [guard for guard in guards if CHANCE in walk(guard)]
    if not asked:
        yield 1.0, None
        return
    ends = {0.0, 1.0}
    for part in dict.fromkeys(part for guard in asked for part in walk(guard)):
        ends |= {end for end in _turns(auto, part, position) if 0.0 < end < 1.0}
    told = sorted(ends)
    if len(told) > MOST_DRAWS:
        told = [*told[: -1 : len(told) // MOST_DRAWS + 1], 1.0]
    for low, high in pairwise(told):
        yield high - low, (low + high) / 2


def _turns(auto: Automaton, part: Expr, position: float | None) -> list[float]:
    """Return where in [0, 1] a comparison of `chance` turns, where it is about nothing else."""
    ends = [_sides(auto, part, position, chance) for chance in (0.0, 0.5, 1.0)]
    if not all(ends):
        return []
    first, middle, last = (left - right for left, right in filter(None, ends))
    if abs(first + last - 2.0 * middle) > 1e-9:
        return [n / 16 for n in range(1, 16)]
    return [first / (first - last)] if first != last else []


def _sides(
    auto: Automaton, part: Expr, position: float | None, chance: float
) -> tuple[float, float] | None:
    """Return both numbers of a comparison of `chance` at a draw; None where they depend on anything else."""
    if not isinstance(part, Comparison):
        return None
    inside = set(walk(part))
    if CHANCE not in inside or any(isinstance(each, Aggregate) for each in inside):
        return None

    def drawn(leaf: Expr) -> Expr:
        return Lit(chance, "prob") if leaf == CHANCE else leaf

    left, right = (known(auto, rewrite(side, drawn), position) for side in (part.left, part.right))
    return None if left is None or right is None else (left, right)


def _holds_at(auto: Automaton, guard: Expr, position: float | None, chance: float | None) -> float:
    """Return the assumed probability that a guard holds on a step of a draw."""
    when = guard if position is None else _at(auto, guard, position)
    if chance is not None:
        when = _drawn(auto, when, position, chance)
    return _holds(auto, when, position)


def _drawn(auto: Automaton, guard: Expr, position: float | None, chance: float) -> Expr:
    """Return a guard with what it asks of `chance` alone answered."""

    def answer(part: Expr) -> Expr:
        sides = _sides(auto, part, position, chance)
        if sides is not None and isinstance(part, Comparison):
            return Lit(compare(part.sign, *sides), "bool")
        return fold_one(part)

    return rewrite(guard, answer)


def _at(auto: Automaton, guard: Expr, position: float) -> Expr:
    """Return a guard with what it asks of a position answered."""

    def answer(part: Expr) -> Expr:
        if isinstance(part, Comparison):
            left, right = known(auto, part.left, position), known(auto, part.right, position)
            if left is not None and right is not None:
                return Lit(compare(part.sign, left, right), "bool")
        return fold_one(part)

    return rewrite(guard, answer)


def passed_over(auto: Automaton, go: Borrow) -> bool:
    """Return whether a stay is below one token, by all that is known before any request."""
    most = known(auto, go.most)
    return most is not None and most < 1.0


def holds(auto: Automaton, guard: Expr, position: float | None = None) -> float:
    """Return the assumed probability that a guard holds on a step (at a position)."""
    draws = _draws(auto, [guard], position)
    return sum(width * _holds_at(auto, guard, position, chance) for width, chance in draws)


def _holds(auto: Automaton, guard: Expr, position: float | None) -> float:
    """Return the same where nothing asks of `chance` alone."""
    match guard:
        case Lit():
            return 1.0 if guard.value is True else 0.0
        case Negation():
            return 1.0 - _holds(auto, guard.of, position)
        case Every():
            return prod(_holds(auto, item, position) for item in guard.of)
        case Some():
            return 1.0 - prod(1.0 - _holds(auto, item, position) for item in guard.of)
        case TokenIs() | ClassOf():
            return EVENT
        case Comparison():
            return _comparison(auto, guard, position)
        case _:
            return EVEN


def _comparison(auto: Automaton, guard: Comparison, position: float | None) -> float:
    left, right = known(auto, guard.left, position), known(auto, guard.right, position)
    if left is not None and right is not None:
        return 1.0 if compare(guard.sign, left, right) else 0.0
    if right is not None:
        return _measured(auto, guard.sign, guard.left, right)
    return EVEN if left is None else _measured(auto, FLIPPED[guard.sign], guard.right, left)


def _measured(auto: Automaton, sign: Sign, measured: Expr, bound: float) -> float:
    """Return the assumed probability of `measured sign bound`, where it is a multiple of what is measured."""
    of = scaled(measured)
    if of.term is None or not of.factor:
        return EVEN
    return _against(
        auto, sign if of.factor > 0.0 else FLIPPED[sign], of.term, (bound - of.offset) / of.factor
    )


def known(auto: Automaton, expr: Expr, position: float | None = None) -> float | None:
    """Return the number that an expression stands for before any request (at a position); None where it depends on one."""
    match expr:
        case Lit(value=bool() | str()):
            return None
        case Lit():
            return float(expr.value)
        case ParamOf() if expr.unit != "bool":
            return float(next(decl.value for decl in auto.params if decl.name == expr.name))
        case SignalOf(name="position"):
            return position
        case Arithmetic():
            left, right = known(auto, expr.left, position), known(auto, expr.right, position)
            return None if left is None or right is None else arithmetic(expr.sign, left, right)
        case Aggregate():  # a window ends at the position
            return known(auto, expr.of, position)
        case _:
            return None


def _against(auto: Automaton, sign: Sign, measured: Expr, bound: float) -> float:
    """Return the assumed probability of `measured sign bound`; what is outside a signal's range is certain."""
    at = range_of(auto, measured)
    outside = bound < at.low or bound > at.high
    above = 1.0 if bound < at.low else 0.0 if bound > at.high else _above(measured, bound)
    match sign:
        case ">" | ">=":
            return above if sign == ">=" or bound != at.high else 0.0
        case "<" | "<=":
            return 1.0 - above if sign == "<=" or bound != at.low else 0.0
        case "==":
            return 0.0 if outside else EVENT
        case "!=":
            return 1.0 if outside else 1.0 - EVENT


def _above(measured: Expr, bound: float) -> float:
    match measured:
        case Aggregate():
            return _above(measured.of, bound)
        case HeadOf():
            return UNSURE
        case SignalOf(name="chance"):
            return min(1.0, max(0.0, 1.0 - bound))
        case SignalOf(name="position"):
            return min(1.0, max(0.0, 1.0 - bound / MEAN_TOKENS))
        case SignalOf(name=name) if name in _DIRECTION:
            return UNSURE if _DIRECTION[name] > 0 else 1.0 - UNSURE
        case _:
            return EVEN
