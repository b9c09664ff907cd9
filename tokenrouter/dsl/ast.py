"""The syntax tree of a `.route` file: one class a grammar rule, nothing resolved, every node with its range.

`start` and `end` are offsets in code points; `Source.span` makes spans of them. Names and literals are tokens as written.

They are msgspec structs and not dataclasses, because a process that checks one small file would spend a fifth of its time
on making fifty dataclasses.
"""

from __future__ import annotations

from tokenrouter.dsl.ast_expr import (
    And,
    Call,
    Chain,
    Comparison,
    Compound,
    Expr,
    Field,
    Flag,
    Group,
    In,
    Is,
    Literal,
    Minus,
    Negation,
    Node,
    Or,
    Product,
    Quantity,
    Reference,
    Sum,
    Text,
    Tok,
)

__all__ = [
    "Action",
    "And",
    "At",
    "Borrow",
    "Bounds",
    "Call",
    "Case",
    "Chain",
    "Claim",
    "Commit",
    "Comparison",
    "Compound",
    "Expr",
    "Fallback",
    "Field",
    "File",
    "Flag",
    "For",
    "Given",
    "Group",
    "Head",
    "Header",
    "Import",
    "In",
    "Is",
    "Item",
    "Literal",
    "Member",
    "Minus",
    "Mix",
    "Model",
    "Negation",
    "Node",
    "Objective",
    "Or",
    "Param",
    "Part",
    "Policy",
    "Product",
    "Property",
    "Quantity",
    "Reference",
    "Reserved",
    "Retry",
    "Rule",
    "Set",
    "Share",
    "Signal",
    "Start",
    "StartRule",
    "StartRules",
    "Stop",
    "Sum",
    "Template",
    "Test",
    "Text",
    "Tok",
    "Until",
    "Var",
]

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
