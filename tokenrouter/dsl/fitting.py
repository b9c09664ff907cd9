"""Loose numbers and fields take the unit of their place; texts lose their escapes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import cast

from tokenrouter.dsl import hir
from tokenrouter.dsl.units import LOOSE, NUMERIC
from tokenrouter.signals import Unit

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "'": "'"}
_ESCAPE = re.compile(r"\\(u\{[0-9A-Fa-f]{1,6}\}|.)", re.DOTALL)


def fit(expr: hir.Expr, unit: str) -> hir.Expr:
    """Return an expression whose loose numbers and fields took a unit; unchanged where they cannot."""
    loose = cast("str", expr.unit)
    if loose not in LOOSE or loose == "any":
        return expr
    if loose == "percent" and unit not in ("share", "prob", "number"):
        return expr
    if loose == "bare" and unit not in NUMERIC:
        return expr
    to = cast("Unit", unit)
    match expr:
        case hir.Const():
            return replace(expr, unit=to)
        case hir.RequestField():
            default = "" if unit == "text" else False if unit == "bool" else 0.0
            return replace(expr, unit=to, default=default)
        case hir.Arith(sign="+" | "-"):
            return replace(expr, left=fit(expr.left, unit), right=fit(expr.right, unit), unit=to)
        case hir.Arith():
            # One side carries the unit, the other one scales it.
            return replace(
                expr,
                left=fit(expr.left, unit),
                right=fit(expr.right, "number"),
                unit=to,
            )
        case hir.Derived():
            return replace(expr, of=fit(expr.of, unit), unit=to)
        case _:
            return expr


def unify(left: hir.Expr, right: hir.Expr) -> tuple[hir.Expr, hir.Expr]:
    """Return two sides of which a loose one took the other's unit."""
    if cast("str", left.unit) in LOOSE and cast("str", right.unit) not in LOOSE:
        return fit(left, right.unit), right
    if cast("str", right.unit) in LOOSE and cast("str", left.unit) not in LOOSE:
        return left, fit(right, left.unit)
    pair = {cast("str", left.unit), cast("str", right.unit)}
    if pair == {"bare", "percent"} or (pair & {"bare", "percent"} and "field" in pair):
        return fit(left, "number"), fit(right, "number")
    return left, right


def unescape(written: str, wrong: Callable[[int, int], None]) -> str:
    """Return what a string stands for; `wrong` is told of each escape that is none, by its offsets in the token."""
    raw = written[1:]
    raw = raw.removesuffix('"') if len(written) > 1 else raw

    def one(found: re.Match[str]) -> str:
        escape = found[1]
        if escape[0] == "u" and len(escape) > 1 and int(escape[2:-1], 16) <= 0x10FFFF:
            return chr(int(escape[2:-1], 16))
        if escape in _ESCAPES:
            return _ESCAPES[escape]
        wrong(found.start() + 1, found.end() + 1)
        return found[0]

    return _ESCAPE.sub(one, raw)
