"""Guards as disjunctions of conjunctions of atoms.

An atom is either `x - y <= c` (strict or not; x, y a numeric term or nothing, which stands for 0) or a bool term that
holds or does not. What is not linear in one or two terms is a term itself, so nothing is lost but precision.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenrouter.compiler.expr import (
    NEGATED,
    Arithmetic,
    ClassOf,
    Comparison,
    Every,
    Expr,
    FieldOf,
    Lit,
    Negation,
    ParamOf,
    Sign,
    Some,
    TokenIs,
    VarOf,
)

MOST = 256  # conjunctions; beyond it a guard is held for unknown


@dataclass(frozen=True, slots=True)
class AtMost:
    """`x - y <= bound`, or `<` where strict."""

    x: Expr | None
    y: Expr | None
    bound: float
    strict: bool


@dataclass(frozen=True, slots=True)
class Holds:
    """A bool term is true, or false."""

    term: Expr
    value: bool


Atom = AtMost | Holds
Conjunction = tuple[Atom, ...]


def disjuncts(guard: Expr, value: bool = True) -> list[Conjunction] | None:
    """Return the ways in which a guard is true (or false), or None where there are too many to look at."""
    match guard:
        case Lit():
            return [()] if (guard.value is True) == value else []
        case Negation():
            return disjuncts(guard.of, not value)
        case Every():
            return _product(guard.of, value) if value else _sum(guard.of, value)
        case Some():
            return _sum(guard.of, value) if value else _product(guard.of, value)
        case Comparison():
            return _comparison(guard, value)
        case _:
            return [(Holds(guard, value),)]


def _sum(parts: tuple[Expr, ...], value: bool) -> list[Conjunction] | None:
    out: list[Conjunction] = []
    for part in parts:
        ways = disjuncts(part, value)
        if ways is None or len(out) + len(ways) > MOST:
            return None
        out += ways
    return out


def _product(parts: tuple[Expr, ...], value: bool) -> list[Conjunction] | None:
    out: list[Conjunction] = [()]
    for part in parts:
        ways = disjuncts(part, value)
        if ways is None or len(out) * len(ways) > MOST:
            return None
        out = [a + b for a in out for b in ways]
    return out


def _comparison(guard: Comparison, value: bool) -> list[Conjunction]:
    if not (is_number(guard.left) and is_number(guard.right)):
        positive = Comparison("==", guard.left, guard.right)
        return [(Holds(positive, value == (guard.sign == "==")),)]
    sign: Sign = guard.sign if value else NEGATED[guard.sign]
    x, a = linear(guard.left)
    y, b = linear(guard.right)
    if x == y:
        x = y = None
    bound = b - a  # x - y sign bound
    below, above = AtMost(x, y, bound, False), AtMost(y, x, -bound, False)
    match sign:
        case "<=":
            return [(below,)]
        case "<":
            return [(AtMost(x, y, bound, True),)]
        case ">=":
            return [(above,)]
        case ">":
            return [(AtMost(y, x, -bound, True),)]
        case "==":
            return [(below, above)]
        case "!=":
            return [(AtMost(x, y, bound, True),), (AtMost(y, x, -bound, True),)]


def is_number(expr: Expr) -> bool:
    """Return whether an expression is a number, and neither bool nor text."""
    match expr:
        case Lit():
            return not isinstance(expr.value, (bool, str))
        case ParamOf() | VarOf() | FieldOf():
            return expr.unit not in ("bool", "text")
        case Comparison() | Every() | Some() | Negation() | TokenIs() | ClassOf():
            return False
        case _:
            return True


def linear(expr: Expr) -> tuple[Expr | None, float]:
    """Return a number as a term (or nothing) plus a constant."""
    match expr:
        case Lit():
            return None, float(expr.value)
        case Arithmetic(sign="+" | "-", right=Lit() as right):
            term, offset = linear(expr.left)
            shift = float(right.value)
            return term, offset + (shift if expr.sign == "+" else -shift)
        case Arithmetic(sign="+", left=Lit() as left):
            term, offset = linear(expr.right)
            return term, offset + float(left.value)
        case _:
            return expr, 0.0
