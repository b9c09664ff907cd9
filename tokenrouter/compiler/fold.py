"""Constants folded: what needs no step to be known is a literal, and nests of `and` and `or` are flat.

Folding never asks what a signal may be (that is the coverage check's part) and keeps the order of operands.
"""

from __future__ import annotations

from typing import cast

from tokenrouter.compiler.expr import (
    Arithmetic,
    Comparison,
    Every,
    Expr,
    Lit,
    Negation,
    Some,
    rewrite,
)
from tokenrouter.dsl.units import product, quotient
from tokenrouter.plan.literal import arithmetic, compare
from tokenrouter.signals import Unit

TRUE = Lit(True, "bool")
FALSE = Lit(False, "bool")


def fold(expr: Expr) -> Expr:
    """Return an expression of equal meaning with its constants folded."""
    return rewrite(expr, fold_one)


def fold_one(expr: Expr) -> Expr:
    """Return an expression whose operands are folded already, folded itself."""
    match expr:
        case Arithmetic(left=Lit() as left, right=Lit() as right):
            value = arithmetic(expr.sign, float(left.value), float(right.value))
            return Lit(value, _unit(expr.sign, left.unit, right.unit))
        case Comparison(left=Lit() as left, right=Lit() as right):
            return TRUE if compare(expr.sign, left.value, right.value) else FALSE
        case Negation(of=Lit() as literal):
            return FALSE if literal.value else TRUE
        case Negation(of=Negation() as inner):
            return inner.of
        case Every():
            return _join(expr, TRUE, FALSE)
        case Some():
            return _join(expr, FALSE, TRUE)
        case _:
            return expr


def _unit(sign: str, left: str, right: str) -> str:
    """Return the unit of a folded number: that which the number would have, were it written in its place."""
    x, y = cast("Unit", left), cast("Unit", right)
    made = product(x, y) if sign == "*" else quotient(x, y) if sign == "/" else x
    return left if made is None else made


def _join(expr: Every | Some, neutral: Lit, absorbing: Lit) -> Expr:
    """Return an `and` or `or` without nests of its own kind, repeats and neutral operands."""
    parts: list[Expr] = []
    for item in expr.of:
        for part in item.of if type(item) is type(expr) else (item,):
            if part == absorbing:
                return absorbing
            if part != neutral and part not in parts:
                parts.append(part)
    if not parts:
        return neutral
    return parts[0] if len(parts) == 1 else type(expr)(tuple(parts))
