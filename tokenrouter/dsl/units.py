"""Units: which go together, and what arithmetic makes of them.

Besides those of `tokenrouter.signals` there are four that only exist while an expression is being read: a bare number
takes the unit of its place, a percentage that of a share or a probability, a request field any type, and what is wrong
already goes with everything, so that one mistake is told once.
"""

from __future__ import annotations

from typing import Literal, cast, get_args

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


def meant(word: str) -> tuple[Unit, ...]:
    """Return the units that a number with a word behind it may have: `prob` is told of, and read as what it says."""
    kind = (cast("Unit", word),) if word in NUMERIC else ()
    return WRITTEN.get(word, kind)


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


def outside(unit: Any_, value: float | bool) -> tuple[str, str, str] | None:
    """Return why a value is none of its unit: a code, a message and help; None where it may be one."""
    if unit in ("share", "prob") and not 0 <= value <= 1:
        written = f"{value:g}"
        help_ = "give a value from `0%` to `100%`"
        if 2 <= value <= 100:
            help_ = f"{written} % is written `{written}%` or `{value / 100:g}`"
        return "TR1105", f"{article(unit)} lies between 0 and 1, and this is {written}", help_
    if unit == "count" and value % 1:
        less, more = f"{value // 1:g}", f"{value // 1 + 1:g}"
        return (
            "TR1107",
            f"a count is a whole number, and this is {value:g}",
            f"write `{less}` or `{more}`, or take the unit `number`",
        )
    return None


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
