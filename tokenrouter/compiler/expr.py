"""Expressions of the IR: typed trees in base units, with names instead of indices.

Equal trees are equal values, so a program can hold a shared subexpression once by looking it up. Units are those of
`tokenrouter.signals`; a share of 40 % is 0.4. Nothing here has a place in the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter
from typing import Any, Literal

from tokenrouter.plan.literal import quote, value_text

Sign = Literal["<", "<=", ">", ">=", "==", "!="]
FLIPPED: dict[Sign, Sign] = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
NEGATED: dict[Sign, Sign] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True, slots=True)
class Lit:
    """A literal; its unit keeps true and 1 apart, which Python holds for equal."""

    value: bool | float | str
    unit: str

    def __str__(self) -> str:
        return value_text(self.value)


@dataclass(frozen=True, slots=True)
class ParamOf:
    """The request's value of a param."""

    name: str
    unit: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class VarOf:
    """A request variable before this step's `set`."""

    name: str
    unit: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class SignalOf:
    """A signal of the catalogue; a model argument is a name."""

    name: str
    args: tuple[int | str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(map(str, self.args))})" if self.args else self.name


@dataclass(frozen=True, slots=True)
class HeadOf:
    """The output of a router head."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A number over the last `n` rule-evaluated steps at this model."""

    kind: Literal["mean", "ewma", "max"]
    of: Expr
    n: int

    def __str__(self) -> str:
        return f"{self.kind}({self.of}, {self.n})"


@dataclass(frozen=True, slots=True)
class TokenIs:
    """Whether the candidate's text is one of these."""

    texts: tuple[str, ...]

    def __str__(self) -> str:
        if len(self.texts) == 1:
            return f"token is {quote(self.texts[0])}"
        return "token in {" + ", ".join(map(quote, self.texts)) + "}"


@dataclass(frozen=True, slots=True)
class ClassOf:
    """Whether the candidate's text falls into a lexical class."""

    name: Literal["code", "number", "word", "space", "newline", "punct", "special"]

    def __str__(self) -> str:
        return f"class is {self.name}"


@dataclass(frozen=True, slots=True)
class FieldOf:
    """A value of the request's metadata."""

    name: str
    default: bool | float | str
    unit: str

    def __str__(self) -> str:
        return f"request.{self.name}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two values of one type."""

    sign: Sign
    left: Expr
    right: Expr

    def __str__(self) -> str:
        return f"{_inner(self.left, 4)} {self.sign} {_inner(self.right, 4)}"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Arithmetic on two numbers; x / 0 is 0."""

    sign: Literal["+", "-", "*", "/"]
    left: Expr
    right: Expr

    def __str__(self) -> str:
        level = 5 if self.sign in "+-" else 6
        return f"{_inner(self.left, level)} {self.sign} {_inner(self.right, level + 1)}"


@dataclass(frozen=True, slots=True)
class Every:
    """True where every operand is."""

    of: tuple[Expr, ...]

    def __str__(self) -> str:
        return " and ".join(_inner(item, 3) for item in self.of)


@dataclass(frozen=True, slots=True)
class Some:
    """True where some operand is."""

    of: tuple[Expr, ...]

    def __str__(self) -> str:
        parts: list[str] = []
        for asks, row in groupby(self.of, key=lambda item: isinstance(item, ClassOf)):
            items = list(row)
            if asks and len(items) > 1:
                names = ", ".join(item.name for item in items if isinstance(item, ClassOf))
                parts.append(f"class in {{{names}}}")
            else:
                parts += [_inner(item, 2) for item in items]
        return " or ".join(parts)


@dataclass(frozen=True, slots=True)
class Negation:
    """The negation of a bool."""

    of: Expr

    def __str__(self) -> str:
        if _asks(self.of):
            text = str(self.of)
            owner, word, rest = text.split(" ", 2)
            return f"{owner} is not {rest}" if word == "is" else f"{owner} not in {rest}"
        return f"not {_inner(self.of, 9)}"


Expr = (
    Lit
    | ParamOf
    | VarOf
    | SignalOf
    | HeadOf
    | Aggregate
    | TokenIs
    | ClassOf
    | FieldOf
    | Comparison
    | Arithmetic
    | Every
    | Some
    | Negation
)


def _classes(expr: Some) -> list[str]:
    """Return the names of a row of classes; none where an `or` asks for more."""
    names: list[str] = [item.name for item in expr.of if isinstance(item, ClassOf)]
    return names if len(names) == len(expr.of) else []


def _asks(expr: Expr) -> bool:
    """Return whether an expression is one question of the candidate, which has its own negation."""
    return isinstance(expr, (TokenIs, ClassOf)) or (isinstance(expr, Some) and bool(_classes(expr)))


def _inner(expr: Expr, level: int) -> str:
    """Return an operand as text, in brackets where it binds looser than its place (`or` 1 ... `*` 6)."""
    match expr:
        case Some() if _classes(expr):
            own = 3
        case Some():
            own = 1
        case Every():
            own = 2
        case Negation() | Comparison() | TokenIs() | ClassOf():
            own = 3
        case Arithmetic(sign="+" | "-"):
            own = 5
        case Arithmetic():
            own = 6
        case _:
            own = 9
    return str(expr) if own >= level else f"({expr})"


# How the operands of an expression are got, by its class; all others are leaves.
_OPERANDS: dict[type, Callable[[Any], tuple[Expr, ...]]] = {
    **dict.fromkeys((Comparison, Arithmetic), attrgetter("left", "right")),
    **dict.fromkeys((Every, Some), attrgetter("of")),
    **dict.fromkeys((Negation, Aggregate), lambda expr: (expr.of,)),
}


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the operands of an expression, in order."""
    operands = _OPERANDS.get(type(expr))
    return () if operands is None else operands(expr)


def walk(expr: Expr) -> Iterator[Expr]:
    """Return an expression and everything in it, operands first."""
    out, left = [], [expr]
    while left:
        part = left.pop()
        out.append(part)
        left += children(part)
    return reversed(out)


def rewrite(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return an expression with `change` applied to every part of it, operands first."""
    match expr:
        case Comparison() | Arithmetic():
            left, right = rewrite(expr.left, change), rewrite(expr.right, change)
            return change(replace(expr, left=left, right=right))
        case Every() | Some():
            return change(replace(expr, of=tuple(rewrite(item, change) for item in expr.of)))
        case Negation() | Aggregate():
            return change(replace(expr, of=rewrite(expr.of, change)))
        case _:
            return change(expr)
