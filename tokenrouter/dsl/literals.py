"""Literals of declarations, of weights and of settings: of which unit they are, and whether that unit may have their value."""

from __future__ import annotations

from tokenrouter.diagnostics import Span
from tokenrouter.dsl import ast
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.scope import Scope
from tokenrouter.dsl.units import NUMERIC, article, meant, outside
from tokenrouter.signals import Unit


def value_of(
    scope: Scope, tree: Tree, node: ast.Literal, unit: Unit, span: Span | None = None
) -> float | bool | None:
    """Return a literal in base units, and report where it is not of the unit."""
    token = node.value
    if unit == "bool" or token.kind in ("TRUE", "FALSE", "STRING"):
        if unit == "bool" and token.kind in ("TRUE", "FALSE"):
            return token.kind == "TRUE"
        what = {"STRING": "a text", "NUMBER": "a number"}.get(token.kind, "a condition")
        wanted = "`true` or `false`" if unit == "bool" else f"a number ({unit})"
        scope.found.add(
            "TR1102",
            f"{wanted} must stand here, and this is {what}",
            span or tree.source.span(node.start, node.end),
            help=_declared_as(token, unit),
        )
        return None
    value = float(token.text.replace("_", "")) * (
        -1.0 if node.sign and node.sign.text == "-" else 1.0
    )
    if node.unit is None:
        return value
    if unit not in meant(node.unit.text):
        scope.found.add(
            "TR1101",
            f"`{tree.one_line(node.start, node.end)}` is not {article(unit)}",
            span or tree.source.span(node.start, node.end),
            help="a bare number takes the unit of its place",
        )
        return None
    return value / 100 if node.unit.text == "%" else value


def within(
    scope: Scope, tree: Tree, node: ast.Literal, unit: Unit, value: float | bool | None
) -> float | bool | None:
    """Return a value that its unit may have, and report one that it may not."""
    why = None if value is None else outside(unit, value)
    if why is None:
        return value
    code, message, help_ = why
    scope.found.add(code, message, tree.source.span(node.start, node.end), help=help_)
    return None


def _declared_as(token: ast.Tok, unit: Unit) -> str:
    """Return what to do where a value is of another kind than its declaration."""
    if token.kind == "STRING":
        return "no value is a text: `request.NAME` and `token` are compared with one"
    if unit == "bool":
        return "a number has one of the units " + ", ".join(sorted(NUMERIC))
    return "a condition has the unit `bool`"
