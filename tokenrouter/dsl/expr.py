"""Expressions of the resolved policy. Import them from `tokenrouter.dsl.hir`.

`unit` is that of the value. Spans take no part in equality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from tokenrouter.diagnostics import Span
from tokenrouter.signals import Unit

DEEPEST = 60  # brackets, signs before one value, operands in a row, signals in signals
MOST_PARTS = 10_000  # of a derived signal that is written out

Class = Literal["code", "number", "word", "space", "newline", "punct", "special"]
Sign = Literal["<", "<=", ">", ">=", "==", "!="]
ArithSign = Literal["+", "-", "*", "/"]
WindowKind = Literal["mean", "ewma", "max"]
Value = bool | float | str


def place() -> Span:
    """Return the place of what no text was written for."""
    return Span(0, 0, 1, 1, 1, 1)


@dataclass(frozen=True, slots=True)
class Const:
    """A literal in base units."""

    value: Value
    unit: Unit
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class ParamRef:
    """The request's value of a param."""

    name: str
    unit: Unit
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class VarRef:
    """A request variable before this step's `set`."""

    name: str
    unit: Unit
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class SignalRef:
    """A signal of `tokenrouter.signals`; its arguments are whole numbers or names of models."""

    name: str
    args: tuple[int | str, ...]
    unit: Unit
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class HeadRef:
    """The output of a router head, a probability."""

    name: str
    unit: Unit = "prob"
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Window:
    """An aggregate of a number over the last `n` rule-evaluated steps at this model, this one included."""

    kind: WindowKind
    of: Expr
    n: int
    unit: Unit
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class TokenIn:
    """Whether the candidate's text is one of these: `token is "a"`, `token in {"a", "b"}`."""

    texts: tuple[str, ...]
    unit: Unit = "bool"
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class ClassIs:
    """Whether the candidate's text falls into a lexical class."""

    name: Class
    unit: Unit = "bool"
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class RequestField:
    """`request.NAME`: metadata of the client; its type is that of its place, its default "", 0 or false."""

    name: str
    default: Value
    unit: Unit
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison of two values of one unit; only `==` and `!=` between bools or texts."""

    sign: Sign
    left: Expr
    right: Expr
    unit: Unit = "bool"
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Arith:
    """Arithmetic on two numbers; x / 0 is 0. A unary minus is `0 - x`."""

    sign: ArithSign
    left: Expr
    right: Expr
    unit: Unit
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class AllOf:
    """`a and b and ...`."""

    of: tuple[Expr, ...]
    unit: Unit = "bool"
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """`a or b or ...`."""

    of: tuple[Expr, ...]
    unit: Unit = "bool"
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """`not a`."""

    of: Expr
    unit: Unit = "bool"
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Derived:
    """A use of a derived signal: it means `of`, and people call it `name`."""

    name: str
    of: Expr
    unit: Unit
    span: Span = field(default_factory=place, compare=False)


Expr = (
    Const
    | ParamRef
    | VarRef
    | SignalRef
    | HeadRef
    | Window
    | TokenIn
    | ClassIs
    | RequestField
    | Compare
    | Arith
    | AllOf
    | AnyOf
    | Not
    | Derived
)


# How the operands of an expression are got, by its class; all others are leaves.
_OPERANDS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    **dict.fromkeys((Compare, Arith), attrgetter("left", "right")),
    **dict.fromkeys((AllOf, AnyOf), attrgetter("of")),
    **dict.fromkeys((Not, Window, Derived), lambda expr: (expr.of,)),
}


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression, in order."""
    operands = _OPERANDS.get(type(expr))
    return () if operands is None else operands(expr)


class Size(NamedTuple):
    """How deep a tree is, and of how many parts."""

    depth: int
    parts: int


def measure(expr: Expr, known: Mapping[str, Size]) -> Size:
    """Return the size of an expression with its derived signals written out, whose sizes are known."""
    if isinstance(expr, Derived) and expr.name in known:
        return known[expr.name]
    sizes = [measure(child, known) for child in children(expr)]
    depth = 1 + max((size.depth for size in sizes), default=0)
    return Size(depth, 1 + sum(size.parts for size in sizes))


def walk(expr: Expr) -> Iterator[Expr]:
    """Return an expression and everything in it, operands first."""
    out, left = [], [expr]
    while left:
        part = left.pop()
        out.append(part)
        left += children(part)
    return reversed(out)
