"""The syntax tree of a `.route` file: one class a grammar rule, nothing resolved, every node with its range.

`start` and `end` are offsets in code points; `Source.span` makes spans of them. Names and literals are tokens as written.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Node:
    """A range of the source."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Tok(Node):
    """A token; `kind` is its terminal."""

    kind: str
    text: str


# Expressions


@dataclass(frozen=True, slots=True)
class Quantity(Node):
    """A number with or without a unit."""

    number: Tok
    unit: Tok | None


@dataclass(frozen=True, slots=True)
class Text(Node):
    """A string."""

    token: Tok


@dataclass(frozen=True, slots=True)
class Flag(Node):
    """`true` or `false`."""

    value: bool


@dataclass(frozen=True, slots=True)
class Reference(Node):
    """A name."""

    name: Tok


@dataclass(frozen=True, slots=True)
class Call(Node):
    """`name(arguments)`."""

    name: Tok
    arguments: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Field(Node):
    """`owner.name`."""

    owner: Tok
    name: Tok


@dataclass(frozen=True, slots=True)
class Group(Node):
    """`(expr)`."""

    of: Expr


@dataclass(frozen=True, slots=True)
class Minus(Node):
    """A sign before a value."""

    sign: Tok
    of: Expr


@dataclass(frozen=True, slots=True)
class Chain(Node):
    """Operands with signs between them, of one precedence: sums, products, comparisons."""

    operands: tuple[Expr, ...]
    signs: tuple[Tok, ...]


@dataclass(frozen=True, slots=True)
class Sum(Chain):
    """`a + b - ...`."""


@dataclass(frozen=True, slots=True)
class Product(Chain):
    """`a * b / ...`."""


@dataclass(frozen=True, slots=True)
class Comparison(Chain):
    """`a < b`; more than one sign, or `=`, is refused later."""


@dataclass(frozen=True, slots=True)
class Is(Node):
    """`token is "x"`, `class is word`."""

    of: Expr
    negated: bool
    value: Literal | Tok


@dataclass(frozen=True, slots=True)
class In(Node):
    """`token in {"x", "y"}`."""

    of: Expr
    negated: bool
    values: tuple[Tok, ...]


@dataclass(frozen=True, slots=True)
class Negation(Node):
    """`not a`."""

    of: Expr


@dataclass(frozen=True, slots=True)
class And(Node):
    """`a and b ...`."""

    of: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or(Node):
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


@dataclass(frozen=True, slots=True)
class Literal(Node):
    """A literal outside expressions: `value` is the number, string, `true` or `false`."""

    sign: Tok | None
    value: Tok
    unit: Tok | None


# Actions


@dataclass(frozen=True, slots=True)
class For(Node):
    """`for n`."""

    count: Expr


@dataclass(frozen=True, slots=True)
class Until(Node):
    """`until COND at most n`."""

    condition: Expr
    most: Expr


@dataclass(frozen=True, slots=True)
class Borrow(Node):
    """`borrow M ...`."""

    model: Tok
    stay: For | Until


@dataclass(frozen=True, slots=True)
class Share(Node):
    """`M: weight`."""

    model: Tok
    weight: Literal


@dataclass(frozen=True, slots=True)
class Mix(Node):
    """`mix { ... }`."""

    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Commit(Node):
    """`commit`, with what follows `then`."""

    then: Tok | Mix | Borrow | None


@dataclass(frozen=True, slots=True)
class Retry(Node):
    """`retry M`."""

    model: Tok


@dataclass(frozen=True, slots=True)
class Stop(Node):
    """`stop`."""


@dataclass(frozen=True, slots=True)
class Reserved(Node):
    """An action of the next version."""

    word: Tok


Action = Commit | Retry | Borrow | Mix | Stop | Reserved


@dataclass(frozen=True, slots=True)
class Set(Node):
    """`set NAME = EXPR`."""

    name: Tok
    value: Expr


# Policies


@dataclass(frozen=True, slots=True)
class StartRule(Node):
    """`when EXPR -> M`, or `otherwise -> M`."""

    when: Expr | None
    go: Tok | Mix


@dataclass(frozen=True, slots=True)
class StartRules(Node):
    """`{ ... }` behind `start`."""

    rules: tuple[StartRule, ...]


@dataclass(frozen=True, slots=True)
class Start(Node):
    """`start ...`."""

    go: Tok | Mix | StartRules


@dataclass(frozen=True, slots=True)
class Rule(Node):
    """`when EXPR -> ACTION set ...`; `when` is None for `otherwise`."""

    when: Expr | None
    action: Action
    sets: tuple[Set, ...]


@dataclass(frozen=True, slots=True)
class At(Node):
    """`at M { ... }`; the token's kind is ANY for `at any`."""

    model: Tok
    rules: tuple[Rule, ...]


@dataclass(frozen=True, slots=True)
class Claim(Node):
    """`guarantee EXPR`, `enforce EXPR`."""

    keyword: Tok
    bound: Expr


@dataclass(frozen=True, slots=True)
class Objective(Node):
    """`objective NAME where EXPR`."""

    name: Tok
    where: Expr | None


@dataclass(frozen=True, slots=True)
class Fallback(Node):
    """`fallback M`."""

    model: Tok


@dataclass(frozen=True, slots=True)
class Template(Node):
    """`template from M`."""

    model: Tok


Member = Start | At | Claim | Objective | Fallback | Template


@dataclass(frozen=True, slots=True)
class Policy(Node):
    """`policy NAME { ... }`."""

    name: Tok
    members: tuple[Member, ...]


# Declarations


@dataclass(frozen=True, slots=True)
class Part(Node):
    """`M.{a, b}` or `M.a`."""

    owner: Tok
    names: tuple[Tok, ...]


@dataclass(frozen=True, slots=True)
class Property(Node):
    """`NAME VALUE` of a model or head."""

    name: Tok
    value: Literal | Tok | Part


@dataclass(frozen=True, slots=True)
class Model(Node):
    """`model NAME { ... }`."""

    name: Tok
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class Head(Node):
    """`head NAME { ... }`."""

    name: Tok
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class Bounds(Node):
    """`in [low, high]`."""

    low: Literal
    high: Literal


@dataclass(frozen=True, slots=True)
class Param(Node):
    """`param NAME: UNIT = VALUE in [low, high]`."""

    name: Tok
    unit: Tok | None
    value: Literal | None
    bounds: Bounds | None


@dataclass(frozen=True, slots=True)
class Var(Node):
    """`var NAME: UNIT = VALUE`."""

    name: Tok
    unit: Tok | None
    value: Literal | None


@dataclass(frozen=True, slots=True)
class Signal(Node):
    """`signal NAME = EXPR`."""

    name: Tok
    value: Expr


@dataclass(frozen=True, slots=True)
class Import(Node):
    """`import "file"`."""

    path: Tok


# Tests


@dataclass(frozen=True, slots=True)
class Given(Node):
    """`EXPR = VALUE`, or `token is "x"` with `value` a literal or name."""

    of: Expr
    value: Expr | Literal | Tok


@dataclass(frozen=True, slots=True)
class Case(Node):
    """`at M given ... -> ACTION`; without a model `start given ... -> M`."""

    model: Tok | None
    givens: tuple[Given, ...]
    expect: Action | Tok
    sets: tuple[Set, ...]


@dataclass(frozen=True, slots=True)
class Test(Node):
    """`test "NAME" for POLICY { ... }`."""

    name: Tok
    policy: Tok
    cases: tuple[Case, ...]


Item = Import | Model | Head | Param | Var | Signal | Policy | Test


@dataclass(frozen=True, slots=True)
class Header(Node):
    """`route 1`."""

    version: Tok


@dataclass(frozen=True, slots=True)
class File(Node):
    """A whole file."""

    header: Header | None
    items: tuple[Item, ...]
