"""Request fields: what a client sends has no type but that of its place, and so each field one in all its places."""

from __future__ import annotations

from tokenrouter.diagnostics import Label
from tokenrouter.dsl import hir
from tokenrouter.dsl.findings import Findings
from tokenrouter.dsl.policies import expressions


def one_type(found: Findings, policy: hir.Policy) -> None:
    """Tell of the fields that a policy reads as two types, each once."""
    first: dict[str, hir.RequestField] = {}
    told: set[str] = set()
    for expr in expressions(policy):
        for part in hir.walk(expr):
            if not isinstance(part, hir.RequestField) or part.name in told:
                continue
            before = first.setdefault(part.name, part)
            if _type(before) != _type(part):
                told.add(part.name)
                found.add(
                    "TR1111",
                    f"`request.{part.name}` is read as {_type(part)} here and as {_type(before)} elsewhere",
                    part.span,
                    labels=(Label(before.span, f"{_type(before)} here"),),
                    help="a request sends one value: compare it with one type, or send two fields",
                )


def _type(field: hir.RequestField) -> str:
    return {"bool": "a condition", "text": "a text"}.get(field.unit, "a number")
