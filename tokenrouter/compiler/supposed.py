"""Whether what the cases of `test` blocks suppose can hold of one step, by the ranges of signals and the laws between them.

A value is taken for rounded: two laws that disagree by one part in a hundred do not. What the candidate's text and class
say of each other the front end has told already.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from math import inf

from tokenrouter.compiler import laws
from tokenrouter.compiler.expr import Comparison, Every, Expr, Lit, Negation, SignalOf
from tokenrouter.compiler.feasible import Empty, Region, whole
from tokenrouter.compiler.ir import Automaton
from tokenrouter.compiler.lower import lower_expr
from tokenrouter.diagnostics import Diagnostic, Label
from tokenrouter.dsl import hir
from tokenrouter.signals import SIGNALS

ROUNDED = 0.01  # of a value


def supposed(auto: Automaton, policy: hir.Policy) -> list[Diagnostic]:
    """Return one error for each case that supposes what cannot be."""
    cases = [case for test in policy.tests for case in test.cases if case.given]
    everything = whole(auto)
    return [found for case in cases if (found := _first(everything, case.given)) is not None]


def _first(everything: Region, givens: Sequence[hir.Given]) -> Diagnostic | None:
    """Return what is wrong with the fewest suppositions that cannot hold together; None where all can."""
    why = _contradiction(everything, givens)
    if why is None:
        return None
    for some in (*combinations(givens, 1), *combinations(givens, 2)):
        told = _contradiction(everything, some)
        if told is not None:
            return _cannot_be(some, told)
    return _cannot_be(givens, why)


def _contradiction(everything: Region, givens: Sequence[hir.Given]) -> str | None:
    said = [(lower_expr(item.of), item.value) for item in givens]
    for term, value in said:
        why = _alone(everything.space.auto, term, value)
        if why:
            return why
    position = next((float(value) for term, value in said if term == SignalOf("position")), inf)
    token = 1.0 / max(1.0, position)
    parts = tuple(part for term, value in said for part in _about(term, value, token))
    ways = everything.space.ways(Every(parts))
    regions = [everything.assume(way) for way in ways or [()]]
    empty = [region for region in regions if isinstance(region, Empty)]
    return (empty[0].why or "no step has both") if len(empty) == len(regions) else None


def _alone(auto: Automaton, term: Expr, value: bool | float | str) -> str:
    """Return why a term never has a value; '' where it may."""
    if isinstance(value, (bool, str)):
        return ""
    at = laws.range_of(auto, term)
    if value < at.low:
        return f"`{term}` is at least {at.low:g}"
    if value > at.high:
        return f"`{term}` is at most {at.high:.4g}"
    if isinstance(term, SignalOf) and SIGNALS[term.name].unit == "count" and value != int(value):
        return f"`{term}` is a whole number"
    return "`chance` is below 1" if term == SignalOf("chance") and value == 1.0 else ""


def _about(term: Expr, value: bool | float | str, token: float) -> Iterator[Expr]:
    """Yield what a supposition says: of counts exactly, of shares to the next token, of other numbers about."""
    if isinstance(value, bool):
        yield term if value else Negation(term)
    elif isinstance(value, float | int):
        exact = isinstance(term, SignalOf) and SIGNALS[term.name].unit == "count"
        slack = 0.0 if exact else ROUNDED * abs(value)
        slack = max(slack, token) if isinstance(term, SignalOf) and term.name == "share" else slack
        yield Comparison(">=", term, Lit(value - slack, "number"))
        yield Comparison("<=", term, Lit(value + slack, "number"))


def _cannot_be(givens: Sequence[hir.Given], why: str) -> Diagnostic:
    """TR2701."""
    return Diagnostic(
        "TR2701",
        "error",
        f"the test supposes what cannot be: {why}",
        givens[-1].span,
        tuple(Label(item.span, "supposed here") for item in givens[:-1]),
        help="leave one of them out, or give it another value"
        if len(givens) > 1
        else "give it another value",
    )
