"""The syntax tree of a `.route` file: one class a grammar rule, nothing resolved, every node with its range.

`start` and `end` are offsets in code points; `Source.span` makes spans of them. Names and literals are tokens as written.

They are msgspec structs and not dataclasses, because a process that checks one small file would spend a fifth of its time
on making fifty dataclasses.
"""

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


# Expressions


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


Expr = (
    Quantity
    | Text
    | Flag
    | Reference
    | Call
    | Field
    | Group
    | Minus
    | Sum
    | Product
    | Comparison
    | Is
    | In
    | Negation
    | And
    | Or
)


class Literal(Node, frozen=True):
    """A literal outside expressions: `value` is the number, string, `true` or `false`."""

    sign: Tok | None
    value: Tok
    unit: Tok | None


# Actions


class For(Node, frozen=True):
    """`for n`."""

    count: Expr


class Until(Node, frozen=True):
    """`until COND at most n`."""

    condition: Expr
    most: Expr


class Borrow(Node, frozen=True):
    """`borrow M ...`."""

    model: Tok
    stay: For | Until


class Share(Node, frozen=True):
    """`M: weight`."""

    model: Tok
    weight: Literal


class Mix(Node, frozen=True):
    """`mix { ... }`."""

    shares: tuple[Share, ...]


class Commit(Node, frozen=True):
    """`commit`, with what follows `then`."""

    then: Tok | Mix | Borrow | None


class Retry(Node, frozen=True):
    """`retry M`."""

    model: Tok


class Stop(Node, frozen=True):
    """`stop`."""


class Reserved(Node, frozen=True):
    """An action of the next version."""

    word: Tok


Action = Commit | Retry | Borrow | Mix | Stop | Reserved


class Set(Node, frozen=True):
    """`set NAME = EXPR`."""

    name: Tok
    value: Expr


# Policies


class StartRule(Node, frozen=True):
    """`when EXPR -> M`, or `otherwise -> M`."""

    when: Expr | None
    go: Tok | Mix


class StartRules(Node, frozen=True):
    """`{ ... }` behind `start`."""

    rules: tuple[StartRule, ...]


class Start(Node, frozen=True):
    """`start ...`."""

    go: Tok | Mix | StartRules


class Rule(Node, frozen=True):
    """`when EXPR -> ACTION set ...`; `when` is None for `otherwise`."""

    when: Expr | None
    action: Action
    sets: tuple[Set, ...]


class At(Node, frozen=True):
    """`at M { ... }`; the token's kind is ANY for `at any`."""

    model: Tok
    rules: tuple[Rule, ...]


class Claim(Node, frozen=True):
    """`guarantee EXPR`, `enforce EXPR`."""

    keyword: Tok
    bound: Expr


class Objective(Node, frozen=True):
    """`objective NAME where EXPR`."""

    name: Tok
    where: Expr | None


class Fallback(Node, frozen=True):
    """`fallback M`."""

    model: Tok


class Template(Node, frozen=True):
    """`template from M`."""

    model: Tok


Member = Start | At | Claim | Objective | Fallback | Template


class Policy(Node, frozen=True):
    """`policy NAME { ... }`."""

    name: Tok
    members: tuple[Member, ...]


# Declarations


class Part(Node, frozen=True):
    """`M.{a, b}` or `M.a`."""

    owner: Tok
    names: tuple[Tok, ...]


class Property(Node, frozen=True):
    """`NAME VALUE` of a model or head."""

    name: Tok
    value: Literal | Tok | Part


class Model(Node, frozen=True):
    """`model NAME { ... }`."""

    name: Tok
    properties: tuple[Property, ...]


class Head(Node, frozen=True):
    """`head NAME { ... }`."""

    name: Tok
    properties: tuple[Property, ...]


class Bounds(Node, frozen=True):
    """`in [low, high]`."""

    low: Literal
    high: Literal


class Param(Node, frozen=True):
    """`param NAME: UNIT = VALUE in [low, high]`."""

    name: Tok
    unit: Tok | None
    value: Literal | None
    bounds: Bounds | None


class Var(Node, frozen=True):
    """`var NAME: UNIT = VALUE`."""

    name: Tok
    unit: Tok | None
    value: Literal | None


class Signal(Node, frozen=True):
    """`signal NAME = EXPR`."""

    name: Tok
    value: Expr


class Import(Node, frozen=True):
    """`import "file"`."""

    path: Tok


# Tests


class Given(Node, frozen=True):
    """`EXPR = VALUE`, or `token is "x"` with `value` a literal or name."""

    of: Expr
    value: Expr | Literal | Tok


class Case(Node, frozen=True):
    """`at M given ... -> ACTION`; without a model `start given ... -> M`."""

    model: Tok | None
    givens: tuple[Given, ...]
    expect: Action | Tok
    sets: tuple[Set, ...]


class Test(Node, frozen=True):
    """`test "NAME" for POLICY { ... }`."""

    name: Tok
    policy: Tok
    cases: tuple[Case, ...]


Item = Import | Model | Head | Param | Var | Signal | Policy | Test


class Header(Node, frozen=True):
    """`route 1`."""

    version: Tok


class File(Node, frozen=True):
    """A whole file."""

    header: Header | None
    items: tuple[Item, ...]
