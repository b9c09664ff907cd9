"""Guards as disjunctions of conjunctions of atoms.

An atom is either `x - y <= c` (strict or not; x, y a numeric term or nothing, which stands for 0) or a bool term that
holds or does not. What is not linear in one or two terms is a term itself, so nothing is lost but precision. A multiple
of a term is both: a term, and a bound on what it is a multiple of, which is loosened where a float's product is rounded.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp, isfinite
from typing import NamedTuple

from tokenrouter.compiler.expr import (
    FLIPPED,
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
    SignalOf,
    Some,
    TokenIs,
    VarOf,
)
from tokenrouter.signals import SIGNALS

MOST = 256  # conjunctions; beyond it a guard is held for unknown
ROUNDED = 1e-9  # of a bound, which a product may be off by, and more


@dataclass(frozen=True, slots=True)
class AtMost:
    """`x - y <= bound`, or `<` where strict; `why` says what it follows from, '' where a guard says so itself."""

    x: Expr | None
    y: Expr | None
    bound: float
    strict: bool
    why: str = ""


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
    plain = _between(x, y, sign, b - a)
    multiple = _multiple(guard, sign)
    if multiple is None:
        return plain
    exact, ways = multiple
    if exact:
        return ways
    return [said + also for said, also in zip(plain, ways, strict=True)]


def _between(
    x: Expr | None, y: Expr | None, sign: Sign, bound: float, why: str = "", off: float = 0.0
) -> list[Conjunction]:
    """Return the ways in which `x - y sign bound`, where the bound may be off by a little."""

    def below(strict: bool) -> Conjunction:
        return (AtMost(x, y, bound + off, strict, why),)

    def above(strict: bool) -> Conjunction:
        return (AtMost(y, x, off - bound, strict, why),)

    match sign:
        case "<=" | "<":
            return [below(sign == "<")]
        case ">=" | ">":
            return [above(sign == ">")]
        case "==":
            return [below(False) + above(False)]
        case "!=":
            return [below(True), above(True)]


def _multiple(guard: Comparison, sign: Sign) -> tuple[bool, list[Conjunction]] | None:
    """Return what a comparison of multiples says of the terms themselves, and whether that is all of it."""
    left, right = scaled(guard.left), scaled(guard.right)
    if left.factor in (0.0, 1.0) and right.factor in (0.0, 1.0) and left.plain and right.plain:
        return None  # as `linear` sees it
    x, y, k, m = left.term, right.term, left.factor, right.factor
    if x is y is None:
        return True, _between(None, None, sign, right.offset - left.offset)
    if x == y:
        y, k, m = None, k - m, 0.0
    if x is None:
        x, y, k, m = y, None, -m, 0.0
    if x is None or k == 0.0 or (y is not None and k != m):
        return None
    bound = (right.offset - left.offset) / k
    if not isfinite(bound):
        return None
    whole = left.whole and right.whole and y is None and _counts(x)
    exact = whole or (left.exact and right.exact and _doubles(k))
    toward: Sign = sign if k > 0.0 else FLIPPED[sign]
    if exact:
        return True, _between(x, y, toward, bound)
    off = ROUNDED * max(abs(bound), abs(left.offset / k), abs(right.offset / k))
    return False, _between(x, y, toward, bound, f"`{guard}` bounds `{x}`", off)


def _counts(term: Expr) -> bool:
    return isinstance(term, SignalOf) and SIGNALS[term.name].unit == "count"


def _doubles(factor: float) -> bool:
    """Return whether a factor is a power of two, by which floats are multiplied exactly."""
    return abs(frexp(factor)[0]) == 0.5


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


class Scaled(NamedTuple):
    """A number as a multiple of a term (or of nothing) plus a constant."""

    term: Expr | None
    factor: float
    offset: float
    plain: bool = True  # whether nothing but constants is added
    exact: bool = True  # whether no product is rounded
    whole: bool = True  # whether all constants are whole numbers, and none divides

    def plus(self, by: float) -> Scaled:
        """Return this with a constant added."""
        whole = self.whole and by.is_integer()
        return self._replace(offset=self.offset + by, whole=whole)

    def times(self, by: float, divides: bool = False) -> Scaled:
        """Return this multiplied by a constant, or divided by it."""
        if divides and not by:
            return Scaled(None, 0.0, 0.0, plain=False)  # x / 0 is 0
        return Scaled(
            self.term if by else None,
            self.factor / by if divides else self.factor * by,
            self.offset / by if divides else self.offset * by,
            plain=False,
            exact=self.exact and _doubles(by),
            whole=self.whole and by.is_integer() and not divides,
        )


def scaled(expr: Expr) -> Scaled:
    """Return a number as a multiple of a term (or of nothing) plus a constant."""
    match expr:
        case Lit():
            return Scaled(None, 0.0, float(expr.value), whole=float(expr.value).is_integer())
        case Arithmetic(sign="+" | "-", right=Lit() as right):
            by = float(right.value)
            return scaled(expr.left).plus(by if expr.sign == "+" else -by)
        case Arithmetic(sign="*" | "/", right=Lit() as right):
            return scaled(expr.left).times(float(right.value), expr.sign == "/")
        case Arithmetic(sign="+", left=Lit() as left):
            return scaled(expr.right).plus(float(left.value))
        case Arithmetic(sign="-", left=Lit() as left):
            return scaled(expr.right).times(-1.0).plus(float(left.value))
        case Arithmetic(sign="*", left=Lit() as left):
            return scaled(expr.right).times(float(left.value))
        case _:
            return Scaled(expr, 1.0, 0.0)
