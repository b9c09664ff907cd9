"""The guarded-transition IR: one state a model, and rules that are tried in order, each a guarded move.

A rule is «keep the candidate or drop it» times «who decides the next position». The IR prints as text, which is what
`trc compile --emit ir` shows and what golden tests hold. Models, params, vars and heads are named, not numbered, so a
pass may drop one without renumbering.

INVARIANT: the last rule of a state has no guard, and no other rule is without one.
INVARIANT: `retry`, `commit then` and `borrow` never name the model that they are at; `mix` may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from tokenrouter.compiler.expr import Expr, rewrite
from tokenrouter.diagnostics import Span
from tokenrouter.plan.literal import number, quote, value_text

Dtype = Literal["float64", "float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class ModelDecl:
    """A model as the policy declares it."""

    name: str
    use: str
    span: Span
    dtype: Dtype = "float32"
    quantize: Literal["none", "int8"] = "none"
    tensor_parallel: int = 1
    cost: float = 1.0

    def __str__(self) -> str:
        more = "" if self.quantize == "none" else f" {self.quantize}"
        more += "" if self.tensor_parallel == 1 else f" tensor_parallel {self.tensor_parallel}"
        return f"model {self.name} {quote(self.use)} {self.dtype}{more} cost {number(self.cost)}"


@dataclass(frozen=True, slots=True)
class ParamDecl:
    """A dial: its value here is the default of a request."""

    name: str
    unit: str
    value: float | bool
    span: Span
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        bounds = ""
        if self.low is not None and self.high is not None:
            bounds = f" in [{number(self.low)}, {number(self.high)}]"
        return f"param {self.name}: {self.unit} = {value_text(self.value)}{bounds}"


@dataclass(frozen=True, slots=True)
class VarDecl:
    """A request variable and its first value."""

    name: str
    unit: str
    value: float | bool
    span: Span

    def __str__(self) -> str:
        return f"var {self.name}: {self.unit} = {value_text(self.value)}"


@dataclass(frozen=True, slots=True)
class HeadDecl:
    """A router head and what it reads of its model's step."""

    name: str
    kind: Literal["linear", "mlp", "r2r", "python"]
    file: str
    model: str
    reads: tuple[Literal["hidden", "logits", "token"], ...]
    span: Span

    def __str__(self) -> str:
        reads = ", ".join(self.reads)
        return f"head {self.name} {self.kind} {quote(self.file)} reads {self.model}.{{{reads}}}"


@dataclass(frozen=True, slots=True)
class Stay:
    """The same model decides next."""

    def __str__(self) -> str:
        return "stay"


@dataclass(frozen=True, slots=True)
class To:
    """`model` decides next."""

    model: str

    def __str__(self) -> str:
        return self.model


@dataclass(frozen=True, slots=True)
class Borrow:
    """`model` writes up to `most` tokens, then back here."""

    model: str
    most: Expr
    until: Expr | None = None

    def __str__(self) -> str:
        until = "" if self.until is None else f" until {self.until}"
        return f"borrow {self.model}{until} for {self.most}"


@dataclass(frozen=True, slots=True)
class Mix:
    """The next model is drawn; the weights sum to 1."""

    weights: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        return "mix " + " ".join(f"{model}:{number(weight)}" for model, weight in self.weights)


@dataclass(frozen=True, slots=True)
class Stop:
    """The request ends with this token."""

    def __str__(self) -> str:
        return "stop"


Go = Stay | To | Borrow | Mix | Stop


def targets(go: Go | To | Mix) -> tuple[str, ...]:
    """Return the models that a move may hand the next position to, in order; a stay hands it to none."""
    match go:
        case To() | Borrow():
            return (go.model,)
        case Mix():
            return tuple(model for model, _ in go.weights)
        case Stay() | Stop():
            return ()


def action(keep: bool, go: Go) -> str:
    """Return an action in the words of the language."""
    then = "commit then " if keep else ""
    match go:
        case Stay():
            return "commit"
        case Stop():
            return "stop"
        case To():
            return f"{then}{go.model}" if keep else f"retry {go.model}"
        case Mix():
            parts = "  ".join(f"{model}: {number(weight)}" for model, weight in go.weights)
            return f"{then}mix {{ {parts} }}"
        case Borrow(until=None):
            return f"{then}borrow {go.model} for {go.most}"
        case Borrow():
            return f"{then}borrow {go.model} until {go.until} at most {go.most}"


@dataclass(frozen=True, slots=True)
class Assign:
    """`set NAME = EXPR`."""

    var: str
    value: Expr

    def __str__(self) -> str:
        return f"{self.var} = {self.value}"


@dataclass(frozen=True, slots=True)
class Rule:
    """A guarded move; `text` and `span` are those of the policy."""

    when: Expr | None
    keep: bool
    go: Go
    span: Span
    text: str
    sets: tuple[Assign, ...] = ()
    source: Literal["policy", "enforced", "fallback"] = "policy"

    def __str__(self) -> str:
        guard = "otherwise" if self.when is None else str(self.when)
        sets = "".join(f"  set {assign}" for assign in self.sets)
        mark = "" if self.source == "policy" else f"  ({self.source})"
        return f"[{guard}] {'keep' if self.keep else 'drop'} -> {self.go}{sets}{mark}"


@dataclass(frozen=True, slots=True)
class State:
    """A model as a place where a request may be. Without rules it is only borrowed from."""

    model: str
    rules: tuple[Rule, ...]
    span: Span
    own: bool = True  # whether the policy writes rules for this very model, not only `at any`

    def __str__(self) -> str:
        return "\n".join([f"state {self.model}", *(f"  {rule}" for rule in self.rules)])


@dataclass(frozen=True, slots=True)
class StartRule:
    """A guarded choice of the first model."""

    when: Expr | None
    go: To | Mix
    span: Span

    def __str__(self) -> str:
        guard = "otherwise" if self.when is None else str(self.when)
        return f"  [{guard}] -> {self.go}"


@dataclass(frozen=True, slots=True)
class ClaimDecl:
    """A bound on what a model writes: `share(model) <= bound` or `count(model) <= bound`."""

    kind: Literal["guarantee", "enforce"]
    measure: Literal["share", "count"]
    model: str
    bound: float
    span: Span
    fallback: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.text}"

    @property
    def text(self) -> str:
        """Return the bound alone, normalised."""
        return f"{self.measure}({self.model}) <= {number(self.bound)}"


@dataclass(frozen=True, slots=True)
class Automaton:
    """A whole policy: what it declares, where a request starts, and how it moves."""

    policy: str
    models: tuple[ModelDecl, ...]
    start: tuple[StartRule, ...]
    states: tuple[State, ...]  # by model, in the order of `models`
    span: Span
    params: tuple[ParamDecl, ...] = ()
    vars: tuple[VarDecl, ...] = ()
    heads: tuple[HeadDecl, ...] = ()
    claims: tuple[ClaimDecl, ...] = ()
    fallback: str | None = None
    template_from: str | None = None  # None: the start model, the first of a mix
    objective: str = "throughput"
    vocabulary: int = (
        1 << 24
    )  # ids that the tokenizer knows; the largest thinkable while models are not at hand
    unreached: tuple[ModelDecl, ...] = field(default=())  # declared, and dropped by a pass

    def __str__(self) -> str:
        decls = [*self.models, *self.params, *self.vars, *self.heads, *self.claims]
        lines = [f"policy {self.policy}", *(str(decl) for decl in decls)]
        lines += [f"objective {self.objective}"] if self.objective != "throughput" else []
        lines += [f"template from {self.template_from}"] if self.template_from else []
        lines += ["start", *(str(rule) for rule in self.start)]
        lines += [str(state) for state in self.states]
        lines += [f"unreached {decl.name}" for decl in self.unreached]
        return "\n".join(lines) + "\n"

    def state(self, model: str) -> State:
        """Return the state of a model."""
        return next(state for state in self.states if state.model == model)

    def rules(self) -> Iterator[tuple[State, int, Rule]]:
        """Yield every rule with its state and its number there."""
        for state in self.states:
            for index, rule in enumerate(state.rules):
                yield state, index, rule

    def start_model(self) -> str:
        """Return the model of the last start rule, the first of a mix: where a request starts by default."""
        return targets(self.start[-1].go)[0]

    def borrowed(self, model: str) -> bool:
        """Return whether some rule borrows from a model."""
        return any(
            isinstance(rule.go, Borrow) and rule.go.model == model for _, _, rule in self.rules()
        )


def map_exprs(auto: Automaton, change: Callable[[Expr], Expr]) -> Automaton:
    """Return a policy with `change` applied to every part of every expression, operands first."""

    def maybe(expr: Expr | None) -> Expr | None:
        return None if expr is None else rewrite(expr, change)

    def go(move: Go) -> Go:
        if isinstance(move, Borrow):
            return replace(move, most=rewrite(move.most, change), until=maybe(move.until))
        return move

    def rule(old: Rule) -> Rule:
        sets = tuple(Assign(item.var, rewrite(item.value, change)) for item in old.sets)
        return replace(old, when=maybe(old.when), go=go(old.go), sets=sets)

    start = tuple(replace(old, when=maybe(old.when)) for old in auto.start)
    states = tuple(
        replace(state, rules=tuple(rule(old) for old in state.rules)) for state in auto.states
    )
    return replace(auto, start=start, states=states)
