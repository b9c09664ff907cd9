"""Whether two actions mean the same in one case of a `test` block, however they are written.

What is known of a request when a rule fires is put in: params, request fields, variables after the rule's own `set`s. A
length of a stay and what a `set` gives are then alike where they fold to one value. Two conditions of `until` are alike
where no step can tell them apart: each leaves nothing of what the other excludes, by the laws of the signals. What only
steps of the stay itself say (signals, windows, heads) is put in for neither. Numbers that differ by rounding are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from tokenrouter.compiler import ir
from tokenrouter.compiler.atoms import is_number
from tokenrouter.compiler.expr import (
    FLIPPED,
    Arithmetic,
    Comparison,
    Expr,
    FieldOf,
    Lit,
    ParamOf,
    Sign,
    SignalOf,
    VarOf,
    rewrite,
)
from tokenrouter.compiler.feasible import Region, whole
from tokenrouter.compiler.fold import fold_one
from tokenrouter.compiler.ir import Automaton

Known = Mapping[Expr, Lit]
STEADY = (ParamOf, VarOf, FieldOf)  # what a stay leaves as it was
LASTING = SignalOf("prompt_tokens")  # likewise


def worked_out(known: Known, expr: Expr) -> Expr:
    """Return an expression with what is known put in and folded; two of equal worth are then alike."""

    def put_in(part: Expr) -> Expr:
        if isinstance(part, Lit):
            return replace(part, unit="")
        if isinstance(part, FieldOf):
            part = known.get(part, Lit(part.default, ""))
        found = fold_one(known.get(part, part))
        return replace(found, unit="") if isinstance(found, Lit) else found

    return rewrite(expr, put_in)


def assigned(known: Known, sets: Iterable[ir.Assign]) -> set[ir.Assign]:
    """Return assignments with their values worked out."""
    return {replace(item, value=worked_out(known, item.value)) for item in sets}


def after(known: Known, sets: Iterable[ir.Assign]) -> Known:
    """Return what is known once the variables are set."""
    now = dict(known)
    for item in assigned(known, sets):
        mine = [term for term in known if isinstance(term, VarOf) and term.name == item.var]
        for term in mine:
            if isinstance(item.value, Lit):
                now[term] = item.value
            else:
                now.pop(term)
    return now


def same_go(
    auto: Automaton, known: Known, one: ir.Go, other: ir.Go, sets: Iterable[ir.Assign] = ()
) -> bool:
    """Return whether a rule with some `set`s hands the request on as another action does."""
    match one, other:
        case ir.Borrow(), ir.Borrow():
            return (
                one.model == other.model
                and worked_out(known, one.most) == worked_out(known, other.most)
                and _same_until(auto, after(known, sets), one.until, other.until)
            )
        case ir.Mix(), ir.Mix():
            return _drawn(one.weights) == _drawn(other.weights)
        case _:
            return one == other


def in_words(known: Known, rule: ir.Rule) -> str:
    """Return what a rule's stay comes to in a case, where its text does not say it."""
    if not isinstance(rule.go, ir.Borrow):
        return ""
    out = []
    until = rule.go.until
    if until is not None:
        now = {term: at for term, at in after(known, rule.sets).items() if _lasts(term)}
        here = worked_out(now, until)
        out += [f"until {here}"] if str(here) != str(until) else []
    most = worked_out(known, rule.go.most)
    if isinstance(most, Lit) and not isinstance(rule.go.most, Lit):
        out.append(f"at most {most}" if until is not None else str(most))
    return f", here {' '.join(out)}" if out else ""


def _drawn(weights: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the probability of each model of a mixture, in whatever order they stand."""
    given = dict(weights)
    total = sum(given.values())
    return {model: _rounded(weight / total) for model, weight in given.items() if weight > 0.0}


def _same_until(auto: Automaton, known: Known, one: Expr | None, other: Expr | None) -> bool:
    if one is None or other is None:
        return one is other
    a, b = settled(known, one), settled(known, other)
    everything = whole(auto)
    return a == b or (_implies(everything, a, b) and _implies(everything, b, a))


def settled(known: Known, condition: Expr) -> Expr:
    """Return a condition of a stay with what the stay leaves as it was put in, its comparisons in one form."""
    return rewrite(condition, partial(_settle, known))


def _lasts(term: Expr) -> bool:
    return isinstance(term, STEADY) or term == LASTING


def _settle(known: Known, part: Expr) -> Expr:
    if _lasts(part):
        default = Lit(part.default, "") if isinstance(part, FieldOf) else part
        return known.get(part, default)
    part = fold_one(part)
    if isinstance(part, Comparison) and is_number(part.left) and is_number(part.right):
        return fold_one(_normal(part))
    return part


def _implies(everything: Region, one: Expr, other: Expr) -> bool:
    """Return whether no step satisfies one condition and not another; False where there is too much to look at."""
    some, none = everything.space.ways(one), everything.space.ways(other, False)
    if some is None or none is None:
        return False
    return not any(isinstance(everything.assume(a + b), Region) for a in some for b in none)


def _normal(part: Comparison) -> Comparison:
    """Return a comparison as `term sign number` or `term sign term + number`, its first factor 1."""
    factors: dict[Expr, float] = {}
    constant = _add(factors, part.left, 1.0) + _add(factors, part.right, -1.0)
    terms = sorted(
        ((term, f) for term, f in factors.items() if _rounded(f)), key=lambda t: str(t[0])
    )
    if not terms:
        return Comparison(part.sign, _number(constant), _number(0.0))
    first = terms[0][1]
    sign: Sign = part.sign if first > 0.0 else FLIPPED[part.sign]
    scaled = [(term, _rounded(factor / first)) for term, factor in terms]
    bound = _number(_rounded(-constant / first))
    left = scaled[0][0]
    if len(scaled) == 2 and scaled[1][1] == -1.0:  # x - y sign bound
        return Comparison(sign, left, Arithmetic("+", scaled[1][0], bound))
    for term, factor in scaled[1:]:
        left = Arithmetic("+", left, Arithmetic("*", _number(factor), term))
    return Comparison(sign, left, bound)


def _add(factors: dict[Expr, float], expr: Expr, times: float) -> float:
    """Add a number's terms with their factors, and return its constant part."""
    match expr:
        case Lit():
            return times * float(expr.value)
        case Arithmetic(sign="+" | "-"):
            second = times if expr.sign == "+" else -times
            return _add(factors, expr.left, times) + _add(factors, expr.right, second)
        case (
            Arithmetic(sign="*", left=Lit() as by, right=of)
            | Arithmetic(sign="*", left=of, right=Lit() as by)
        ):
            return _add(factors, of, times * float(by.value))
        case Arithmetic(sign="/", left=of, right=Lit() as by):
            return _add(factors, of, times / float(by.value)) if by.value else 0.0
        case Arithmetic(sign="*") if str(expr.left) > str(expr.right):
            return _add(factors, replace(expr, left=expr.right, right=expr.left), times)
        case _:
            factors[expr] = factors.get(expr, 0.0) + times
            return 0.0


def _number(value: float) -> Lit:
    return Lit(value, "")


def _rounded(value: float) -> float:
    return float(f"{value:.12g}") if abs(value) > 1e-12 else 0.0
