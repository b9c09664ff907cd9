"""Bounds of a number before any request is known: interval arithmetic over params, signals and literals."""

from __future__ import annotations

from math import inf, isnan

from tokenrouter.compiler.expr import Arithmetic, Expr
from tokenrouter.compiler.ir import Automaton
from tokenrouter.compiler.laws import Range, range_of


def interval(auto: Automaton, expr: Expr) -> Range:
    """Return an interval that holds every value of a number."""
    if not isinstance(expr, Arithmetic):
        return range_of(auto, expr)
    a, b = interval(auto, expr.left), interval(auto, expr.right)
    match expr.sign:
        case "+":
            return Range(a.low + b.low, a.high + b.high)
        case "-":
            return Range(a.low - b.high, a.high - b.low)
        case "*":
            return _corners([a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high])
        case "/":
            if b.low <= 0.0 <= b.high:  # x / 0 is 0, and next to 0 the quotient has no bound
                return Range()
            return _corners([a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high])


def _corners(values: list[float]) -> Range:
    """Return the hull of the corner values; 0 times infinity has no bound that we would name."""
    if any(isnan(value) for value in values):
        return Range(-inf, inf)
    return Range(min(values), max(values))
