"""Derived signals by their names: kept where a policy is told anew, and put back where a plan has them written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from tokenrouter.compiler.expr import (
    Aggregate,
    Arithmetic,
    Comparison,
    Every,
    Expr,
    Negation,
    ParamOf,
    Some,
)
from tokenrouter.dsl import hir


class Named(NamedTuple):
    """A derived signal and what it stands for."""

    name: str
    of: Expr


def by_name(expr: hir.Expr) -> hir.Expr:
    """Return an expression whose derived signals are names, as params are; only its text means the same."""
    match expr:
        case hir.Derived():
            return hir.ParamRef(expr.name, expr.unit)
        case hir.Compare() | hir.Arith():
            return replace(expr, left=by_name(expr.left), right=by_name(expr.right))
        case hir.AllOf() | hir.AnyOf():
            return replace(expr, of=tuple(map(by_name, expr.of)))
        case hir.Not() | hir.Window():
            return replace(expr, of=by_name(expr.of))
        case _:
            return expr


def put_back(expr: Expr, signals: Sequence[Named]) -> Expr:
    """Return an expression in which what a signal stands for is its name, outermost first."""
    for signal in signals:
        if expr == signal.of:
            return ParamOf(signal.name, "")
    match expr:
        case Every() | Some():
            parts = _rows(expr, signals)
            return parts[0] if len(parts) == 1 else type(expr)(parts)
        case Comparison() | Arithmetic():
            left, right = put_back(expr.left, signals), put_back(expr.right, signals)
            return replace(expr, left=left, right=right)
        case Negation() | Aggregate():
            return replace(expr, of=put_back(expr.of, signals))
        case _:
            return expr


def _rows(expr: Every | Some, signals: Sequence[Named]) -> tuple[Expr, ...]:
    """Return the operands of an `and` or `or`, in which a row of them may be one signal: nests of a kind are flat."""
    out: list[Expr] = []
    left = expr.of
    while left:
        for name, of in signals:
            row = of.of if isinstance(of, (Every, Some)) and type(of) is type(expr) else ()
            if row and left[: len(row)] == row:
                out.append(ParamOf(name, ""))
                left = left[len(row) :]
                break
        else:
            out.append(put_back(left[0], signals))
            left = left[1:]
    return tuple(out)
