"""Units: which go together, and what arithmetic makes of them.

Besides those of `tokenrouter.signals` there are four that only exist while an expression is being read: a bare number
takes the unit of its place, a percentage that of a share or a probability, a request field any type, and what is wrong
already goes with everything, so that one mistake is told once.
"""

from __future__ import annotations

from typing import Literal, get_args

from tokenrouter.signals import Unit

Loose = Literal["bare", "percent", "field", "any"]
Any_ = Unit | Loose

LOOSE = frozenset(get_args(Loose))
SCALES = frozenset({"number", "share", "prob"})  # what scales a quantity without changing its unit
NUMERIC = frozenset({"nats", "nats^2", "share", "prob", "number", "count", "ms"})
DECLARABLE = (*sorted(NUMERIC), "bool")

# What a literal may say behind its number, and the units that it then may have.
WRITTEN: dict[str, tuple[Unit, ...]] = {
    "nats": ("nats",),
    "nats^2": ("nats^2",),
    "%": ("share", "prob", "number"),
    "ms": ("ms",),
    "tokens": ("count",),
}


def article(unit: Any_) -> str:
    """Return a unit as a message names it."""
    names = {
        "bool": "a condition",
        "text": "a text",
        "share": "a share",
        "prob": "a probability",
        "number": "a plain number",
        "count": "a count",
        "bare": "a number",
        "percent": "a percentage",
        "field": "a request field",
    }
    return names.get(unit, f"in {unit}")


def noun(unit: Any_) -> str:
    """Return a unit as a thing: `nats`, `a share`."""
    return article(unit).removeprefix("in ")


def product(left: Any_, right: Any_) -> Any_ | None:
    """Return the unit of left * right; None where there is none."""
    if left == right:
        return (
            "nats^2" if left == "nats" else left if left in SCALES | {"bare", "percent"} else None
        )
    for scale, other in ((left, right), (right, left)):
        if scale in ("bare", "percent"):
            return other
    for scale, other in ((left, right), (right, left)):
        if scale == "number":
            return other
    for scale, other in ((left, right), (right, left)):
        if scale in SCALES:
            return other if other not in SCALES else "number"
    return None


def quotient(left: Any_, right: Any_) -> Any_ | None:
    """Return the unit of left / right; None where there is none."""
    if right in ("bare", "percent"):
        return left
    if left == right:
        return "number"
    if (left, right) == ("nats^2", "nats"):
        return "nats"
    if right in SCALES:
        return "number" if left in ("bare", "percent") else left
    return None
