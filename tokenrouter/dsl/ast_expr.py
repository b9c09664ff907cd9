"""Nodes of expressions and literals. Import them from `tokenrouter.dsl.ast`."""

from __future__ import annotations

import msgspec


class Node(msgspec.Struct, frozen=True):
    """A range of the source."""

    start: int
    end: int


class Tok(Node, frozen=True):
    """A token; `kind` is its terminal."""

    kind: str
    text: str


class Quantity(Node, frozen=True):
    """A number with or without a unit."""

    number: Tok
    unit: Tok | None


class Text(Node, frozen=True):
    """A string."""

    token: Tok


class Flag(Node, frozen=True):
    """`true` or `false`."""

    value: bool


class Reference(Node, frozen=True):
    """A name."""

    name: Tok


class Call(Node, frozen=True):
    """`name(arguments)`."""

    name: Tok
    arguments: tuple[Expr, ...]


class Field(Node, frozen=True):
    """`owner.name`."""

    owner: Tok
    name: Tok


class Group(Node, frozen=True):
    """`(expr)`."""

    of: Expr


class Minus(Node, frozen=True):
    """A sign before a value."""

    sign: Tok
    of: Expr


class Chain(Node, frozen=True):
    """Operands with signs between them, of one precedence: sums, products, comparisons."""

    operands: tuple[Expr, ...]
    signs: tuple[Tok, ...]


class Sum(Chain, frozen=True):
    """`a + b - ...`."""


class Product(Chain, frozen=True):
    """`a * b / ...`."""


class Comparison(Chain, frozen=True):
    """`a < b`; more than one sign, or `=`, is refused later."""


class Is(Node, frozen=True):
    """`token is "x"`, `class is word`."""

    of: Expr
    negated: bool
    value: Literal | Tok


class In(Node, frozen=True):
    """`token in {"x", "y"}`."""

    of: Expr
    negated: bool
    values: tuple[Tok, ...]


class Negation(Node, frozen=True):
    """`not a`."""

    of: Expr


class And(Node, frozen=True):
    """`a and b ...`."""

    of: tuple[Expr, ...]


class Or(Node, frozen=True):
    """`a or b ...`."""

    of: tuple[Expr, ...]


Compound = Group | Minus | Sum | Product | Comparison | Is | In | Negation | And | Or
Expr = Quantity | Text | Flag | Reference | Call | Field | Compound


class Literal(Node, frozen=True):
    """A literal outside expressions: `value` is the number, string, `true` or `false`."""

    sign: Tok | None
    value: Tok
    unit: Tok | None
