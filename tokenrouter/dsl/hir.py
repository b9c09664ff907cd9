"""The resolved, typed policy: what both front ends give and what the compiler lowers.

Every name is resolved, every expression has a unit, numbers are in base units (shares and probabilities in [0, 1],
milliseconds, nats), names are snake_case, defaults are filled in. It keeps what the compiler does not need but people
do: spans, texts as written, names of derived signals, tests, comments.

What the front end has made sure of, and the compiler need not ask again:
    names are unique and known; units agree; a condition is `bool`
    every block with rules ends in its only `otherwise`; `at any` is expanded: one block a model, in the order of
        `Policy.models`; a model that is only borrowed from has a block without rules
    `retry`, `commit then` and `borrow` never name the model that they are at
        (in `at any`, at the named model itself: `commit then M` became `commit`; a rule with `retry M` or `borrow M` is
        passed over, which means left out; an `otherwise` with one became `commit`)
    a head is read at its own model only; `start` rules read only what is known before a step
    the weights of a mixture are positive, sum to 1 and name each model once
    k, ids and window lengths are whole literals; claims have the form `share(M) <= x` or `count(M) <= n`

A policy holds the declarations that it mentions and those that no policy of its file mentions (they get a warning), so
two policies of one file do not change each other's hash. `Policy.heads` holds only what is mentioned.

Spans take no part in equality, so equal policies from different spellings are equal values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tokenrouter.diagnostics import Diagnostic, Span
from tokenrouter.dsl.expr import (
    AllOf,
    AnyOf,
    Arith,
    ArithSign,
    Class,
    ClassIs,
    Compare,
    Const,
    Derived,
    Expr,
    HeadRef,
    Not,
    ParamRef,
    RequestField,
    Sign,
    SignalRef,
    TokenIn,
    Value,
    VarRef,
    Window,
    WindowKind,
    children,
    place,
    walk,
)
from tokenrouter.signals import Unit

__all__ = [
    "Action",
    "AllOf",
    "AnyOf",
    "Arith",
    "ArithSign",
    "Assign",
    "Block",
    "Borrow",
    "Case",
    "Claim",
    "ClaimKind",
    "Class",
    "ClassIs",
    "Comment",
    "Compare",
    "Const",
    "Derived",
    "DerivedSignal",
    "Dtype",
    "Expr",
    "Given",
    "Go",
    "Goal",
    "Head",
    "HeadKind",
    "HeadRef",
    "Measure",
    "Mix",
    "Model",
    "Not",
    "Objective",
    "Param",
    "ParamRef",
    "Place",
    "Policy",
    "Quantize",
    "Reads",
    "RequestField",
    "Resolved",
    "Rule",
    "Sign",
    "SignalRef",
    "StartRule",
    "Stay",
    "Stop",
    "Test",
    "To",
    "TokenIn",
    "Unit",
    "Value",
    "Var",
    "VarRef",
    "Window",
    "WindowKind",
    "children",
    "place",
    "walk",
]

Dtype = Literal["float64", "float32", "bfloat16", "float16"]
HeadKind = Literal["linear", "mlp", "r2r", "python"]
ClaimKind = Literal["guarantee", "enforce"]
Measure = Literal["share", "count"]
Place = Literal["above", "end"]
Goal = Literal["throughput", "latency"]
Quantize = Literal["none", "int8"]
Reads = Literal["hidden", "logits", "token"]


# Actions: keep the candidate or drop it, times who decides the next position.


@dataclass(frozen=True, slots=True)
class Stay:
    """The same model decides next."""


@dataclass(frozen=True, slots=True)
class To:
    """`model` decides next: `commit then M` where the candidate is kept, `retry M` where it is dropped."""

    model: str


@dataclass(frozen=True, slots=True)
class Borrow:
    """`model` writes up to `most` tokens; `until` is asked on the lender's steps."""

    model: str
    most: Expr  # unit `count`
    until: Expr | None = None


@dataclass(frozen=True, slots=True)
class Mix:
    """The next model is drawn; the weights sum to 1."""

    weights: tuple[tuple[str, float], ...]
    given: tuple[float, ...] = field(default=(), compare=False)  # the weights as written


@dataclass(frozen=True, slots=True)
class Stop:
    """The request ends with this token."""


Go = Stay | To | Borrow | Mix | Stop


@dataclass(frozen=True, slots=True)
class Assign:
    """`set NAME = EXPR`."""

    var: str
    value: Expr
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Action:
    """What happens to the candidate, and who decides next; `span` is that of the action alone."""

    keep: bool
    go: Go
    sets: tuple[Assign, ...] = ()
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """A guarded action; `when` is None for `otherwise`. `text` is the rule as written, on one line."""

    when: Expr | None
    action: Action
    span: Span = field(default_factory=place, compare=False)
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Block:
    """The rules of one model; none where it is only borrowed from."""

    model: str
    rules: tuple[Rule, ...]
    span: Span = field(default_factory=place, compare=False)  # of the `at` block, or of the model
    from_any: bool = field(default=False, compare=False)  # whether `at any` stands for it


@dataclass(frozen=True, slots=True)
class StartRule:
    """A guarded choice of the first model; `start M` is one rule without a guard."""

    when: Expr | None
    go: To | Mix
    span: Span = field(default_factory=place, compare=False)


# Declarations.


@dataclass(frozen=True, slots=True)
class Model:
    """A model as the policy declares it."""

    name: str
    use: str
    dtype: Dtype = "float32"
    quantize: Quantize = "none"
    tensor_parallel: int = 1
    cost: float = 1.0
    span: Span = field(default_factory=place, compare=False)
    text: str = field(default="", compare=False)  # the declaration as written, on one line


@dataclass(frozen=True, slots=True)
class Param:
    """A dial; `value` is what `--set` left, `declared` what the file says."""

    name: str
    unit: Unit
    value: float | bool
    low: float | None = None
    high: float | None = None
    span: Span = field(default_factory=place, compare=False)
    declared: float | bool = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Var:
    """A request variable and its first value."""

    name: str
    unit: Unit
    value: float | bool
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Head:
    """A router head: `file` is a path, or `package.module:Class` where the kind is `python`."""

    name: str
    kind: HeadKind
    file: str
    model: str
    reads: tuple[Reads, ...]  # in the order hidden, logits, token
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class DerivedSignal:
    """`signal NAME = EXPR`; `text` is the expression as written, on one line."""

    name: str
    of: Expr
    unit: Unit
    span: Span = field(default_factory=place, compare=False)
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """`guarantee share(M) <= x` or `enforce count(M) <= n`; `span` begins at the keyword."""

    kind: ClaimKind
    measure: Measure
    model: str
    bound: float
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Objective:
    """What windows are chosen for; `speed` is the floor of tokens/s a request, or None."""

    kind: Goal = "throughput"
    speed: float | None = None
    span: Span = field(default_factory=place, compare=False)

    def __str__(self) -> str:
        return self.kind if self.speed is None else f"{self.kind} where speed >= {self.speed:g}"


@dataclass(frozen=True, slots=True)
class Given:
    """What a test supposes: a signal, head, window, param, var or request field, and its value."""

    of: Expr
    value: Value
    span: Span = field(default_factory=place, compare=False)


@dataclass(frozen=True, slots=True)
class Case:
    """One line of a test: at `model` (None: at the start), under `given`, `expect` happens."""

    model: str | None
    given: tuple[Given, ...]
    expect: Action
    span: Span = field(default_factory=place, compare=False)
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Test:
    """A `test` block for this policy; `text` is its source."""

    name: str
    cases: tuple[Case, ...]
    span: Span = field(default_factory=place, compare=False)
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment and what it belongs to; the fields are those of `plan.structs.Comment`.

    Anchors: `file` (above: before the header, end: after everything), `import 0`, `model small`, `param tau`, `var n`,
    `head h`, `signal s`, `policy`, `start`, `at small`, `at any`, `rule small 0`, `rule any 0`, `start rule 0`,
    `claim 0`, `objective`, `fallback`, `template`, `test 0`. A comment before a `}` is `end` of the block, on a line of
    its own.
    """

    anchor: str
    place: Place
    text: str


@dataclass(frozen=True, slots=True)
class Policy:
    """A whole policy."""

    name: str
    models: tuple[Model, ...]
    start: tuple[StartRule, ...]  # the last has no guard
    blocks: tuple[Block, ...]  # by model, in the order of `models`
    params: tuple[Param, ...] = ()
    vars: tuple[Var, ...] = ()
    heads: tuple[Head, ...] = ()
    signals: tuple[DerivedSignal, ...] = ()
    claims: tuple[Claim, ...] = ()
    objective: Objective = field(default_factory=Objective)
    fallback: str | None = None  # None: the start model
    template_from: str | None = None  # None: the start model, the first of a mix
    tests: tuple[Test, ...] = field(default=(), compare=False)
    comments: tuple[Comment, ...] = field(default=(), compare=False)
    span: Span = field(default_factory=place, compare=False)  # of the policy's name
    idle_heads: tuple[Head, ...] = field(default=(), compare=False)  # declared, and read by no rule


@dataclass(frozen=True, slots=True)
class Resolved:
    """A file without errors. `texts` maps every file name that a span may hold to its text.

    Made by `tokenrouter.dsl.load`:
        load(path, policy=None, sets={}) -> Resolved      raises PolicyError (all errors at once), SourceError
        parse_text(text, filename) -> Resolved            the same for a text at hand
        check_source(text, filename) -> list[Diagnostic]  never raises
    `sets` maps params to texts such as "0.5" or "20%". `policy` picks one of several; without it `policies` holds all,
    and `only()` is the one that is meant.
    """

    file: str
    policies: tuple[Policy, ...]
    diagnostics: tuple[Diagnostic, ...]  # warnings and infos, in source order
    texts: dict[str, str]
    doubted: frozenset[str] = (
        frozenset()
    )  # policies of which the passes might tell what only follows from an error

    def only(self) -> Policy:
        """Return the one policy; `load` has made sure that there is one where it was asked for one."""
        assert len(self.policies) == 1, [policy.name for policy in self.policies]
        return self.policies[0]
