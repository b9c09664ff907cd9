"""Assumed probabilities of guards, for a policy that was never measured.

They feed the estimates and the eager or lazy prefill, never a promise: everything made from them is `expected`, and the
plan says `assumed`. A profile replaces them. The priors: one step in four is unsure; a request writes 256 tokens; operands
of `and` and `or` are independent; later rules see what earlier ones left; bounds that `enforce` guards are kept (`chain`).
`trc compile --assume` gives some of them other values.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tokenrouter.compiler.expr import (
    FLIPPED,
    Aggregate,
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
)
from tokenrouter.compiler.ir import Automaton, Rule, StartRule
from tokenrouter.errors import UsageError
from tokenrouter.profile.priors import MEAN_TOKENS

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


def rule_shares(auto: Automaton, rules: tuple[Rule, ...] | tuple[StartRule, ...]) -> list[float]:
    """Return the share of steps on which each rule is assumed to fire; they sum to 1."""
    left, low, high, shares = (
        1.0,
        0.0,
        1.0,
        [],
    )  # `chance` is one draw a step, so what is left of it is known
    for rule in rules:
        span = None if rule.when is None else _chance(auto, rule.when)
        if span is not None:
            below, above = max(low, span[0]), min(high, span[1])
            shares.append(left * max(0.0, above - below))
            if below <= low:
                low = max(low, above)
            elif above >= high:
                high = min(high, below)
            continue
        p = 1.0 if rule.when is None else holds(auto, rule.when)
        shares.append(left * max(0.0, high - low) * p)
        left *= 1.0 - p
    return shares


def _chance(auto: Automaton, guard: Expr) -> tuple[float, float] | None:
    """Return the interval of `chance` that a guard is about; None where it is about anything else."""
    if not isinstance(guard, Comparison) or guard.left != SignalOf("chance"):
        return None
    bound = _value(auto, guard.right)
    if bound is None or guard.sign in ("==", "!="):
        return None
    return (0.0, bound) if guard.sign in ("<", "<=") else (bound, 1.0)


def holds(auto: Automaton, guard: Expr) -> float:
    """Return the assumed probability that a guard holds on a step."""
    match guard:
        case Lit():
            return 1.0 if guard.value is True else 0.0
        case Negation():
            return 1.0 - holds(auto, guard.of)
        case Every():
            return prod(holds(auto, item) for item in guard.of)
        case Some():
            return 1.0 - prod(1.0 - holds(auto, item) for item in guard.of)
        case TokenIs() | ClassOf():
            return EVENT
        case Comparison():
            return _comparison(auto, guard)
        case _:
            return EVEN


def _comparison(auto: Automaton, guard: Comparison) -> float:
    bound = _value(auto, guard.right)
    if bound is not None:
        return _against(guard.sign, guard.left, bound)
    bound = _value(auto, guard.left)
    if bound is not None:
        return _against(FLIPPED[guard.sign], guard.right, bound)
    return EVEN


def _value(auto: Automaton, expr: Expr) -> float | None:
    """Return the number that an expression stands for before any request; None where it depends on one."""
    match expr:
        case Lit(value=bool() | str()):
            return None
        case Lit():
            return float(expr.value)
        case ParamOf():
            return float(next(decl.value for decl in auto.params if decl.name == expr.name))
        case _:
            return None


def _against(sign: Sign, measured: Expr, bound: float) -> float:
    """Return the assumed probability of `measured sign bound`."""
    above = _above(measured, bound)
    match sign:
        case ">" | ">=":
            return above
        case "<" | "<=":
            return 1.0 - above
        case "==":
            return EVENT
        case "!=":
            return 1.0 - EVENT


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
