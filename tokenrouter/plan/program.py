"""Structs of route programs: expressions as node lists, actions, rules. Import them from `tokenrouter.plan.structs`.

A program's nodes form one list in dependency order; operands are indices below their user. An action is «keep the
candidate or drop it» times «who decides the next position».
"""

from __future__ import annotations

from typing import Literal

import msgspec

Value = bool | float | str


class Const(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="const",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """A literal in base units."""

    value: Value  # the value
    unit: str  # of `tokenrouter.signals`, `text` or `bool`


class ParamRef(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="param",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """The request's value of a param."""

    param: int  # index into `Plan.params`


class VarRef(
    msgspec.Struct, frozen=True, kw_only=True, tag="var", tag_field="op", forbid_unknown_fields=True
):
    """The value of a request variable before this step's `set`."""

    var: int  # index into `Plan.vars`


class Signal(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="signal",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """A signal of `tokenrouter.signals` by its name, with its integer arguments."""

    name: str  # key of the catalogue
    args: list[
        int
    ] = []  # k of mass(k), the id of column(ID), the model of count(M), share(M), queue(M)


class HeadRef(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="head",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """The output of a router head."""

    head: int  # index into `Plan.heads`


class Window(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="window",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """An aggregate of a numeric node over the last `n` rule-evaluated steps at this model, this one included."""

    kind: Literal["mean", "ewma", "max"]  # how the values are joined
    of: int  # node
    n: int  # steps, at least 1


class TokenIn(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="token_in",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """Whether the candidate's text is one of these."""

    texts: list[str]  # at least one


class ClassIs(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="class_is",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """Whether the candidate's text falls into a lexical class."""

    name: Literal["code", "number", "word", "space", "newline", "punct", "special"]  # the class


class RequestField(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="request",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """A value of the metadata that the client sent; `default` where it sent none."""

    name: str  # key of the metadata
    default: Value  # its type is the type of the node


class Compare(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="compare",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """A comparison of two nodes of one type."""

    sign: Literal["<", "<=", ">", ">=", "==", "!="]  # only `==` and `!=` between bools or texts
    left: int  # node
    right: int  # node


class Arith(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="arith",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """Arithmetic on two numbers; x / 0 is 0, so that no guard is ever NaN."""

    sign: Literal["+", "-", "*", "/"]  # the operation
    left: int  # node
    right: int  # node


class AllOf(
    msgspec.Struct, frozen=True, kw_only=True, tag="all", tag_field="op", forbid_unknown_fields=True
):
    """True where every operand is."""

    of: list[int]  # bool nodes


class AnyOf(
    msgspec.Struct, frozen=True, kw_only=True, tag="any", tag_field="op", forbid_unknown_fields=True
):
    """True where some operand is."""

    of: list[int]  # bool nodes


class Not(
    msgspec.Struct, frozen=True, kw_only=True, tag="not", tag_field="op", forbid_unknown_fields=True
):
    """The negation of a bool node."""

    of: int  # bool node


Node = (
    Const
    | ParamRef
    | VarRef
    | Signal
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
)


class Stay(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="stay",
    tag_field="to",
    forbid_unknown_fields=True,
):
    """The same model decides next."""


class To(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="model",
    tag_field="to",
    forbid_unknown_fields=True,
):
    """`model` decides next: `commit then M` where the candidate is kept, `retry M` where it is dropped."""

    model: int  # index into `Plan.models`


class Borrow(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="borrow",
    tag_field="to",
    forbid_unknown_fields=True,
):
    """`model` writes up to `most` tokens without its rules being asked, then the request comes back here."""

    model: int  # the lender, index into `Plan.models`
    most: int  # node of the rule's own program; below 1 the rule is passed over
    until: int | None = (
        None  # index into `Program.untils` of the borrowed model; the token it holds on is kept
    )


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One component of a mixture."""

    model: int  # index into `Plan.models`
    weight: float  # normalised: the weights of a mixture sum to 1


class Mix(
    msgspec.Struct, frozen=True, kw_only=True, tag="mix", tag_field="to", forbid_unknown_fields=True
):
    """The next model is drawn from the request's own random stream."""

    weights: list[Share]  # each model once


class Stop(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="stop",
    tag_field="to",
    forbid_unknown_fields=True,
):
    """The request ends with this token, finish reason `stop`."""


Go = Stay | To | Borrow | Mix | Stop


class Assign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`set NAME = EXPR`: all of a rule's assignments read the old values."""

    var: int  # index into `Plan.vars`
    value: int  # node


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A guarded action; the first rule of a program whose guard holds fires."""

    when: int | None  # bool node; None is `otherwise`
    keep: bool  # whether the candidate is committed
    go: Go  # who decides the next position
    sets: list[Assign] = []  # only of the rule that fired
    source: Literal["policy", "enforced", "fallback"] = "policy"  # who wrote the rule


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model's route program: what a step must expose and what is decided from it."""

    nodes: list[Node] = []  # only what the rules and untils need, shared subexpressions once
    rules: list[Rule] = []  # empty where the model is only borrowed from
    untils: list[int] = []  # bool nodes that `Borrow.until` of other models refers to


class StartRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A guarded choice of the first model."""

    when: int | None  # bool node of the start; None is `otherwise`
    go: To | Mix  # who decides the first position


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who decides the first position; guards read prompt signals, params and request fields only."""

    nodes: list[Node] = []  # as in a program
    rules: list[StartRule]  # the last is `otherwise`
