"""IR -> route programs: one list of nodes a model, in dependency order, each needed and each only once.

A program holds what its own rules, its borrow lengths, its assignments and the `until` conditions of others need, and
nothing more. Names become indices here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tokenrouter.compiler import ir
from tokenrouter.compiler.expr import (
    Aggregate,
    Arithmetic,
    ClassOf,
    Comparison,
    Every,
    Expr,
    FieldOf,
    HeadOf,
    Lit,
    Negation,
    ParamOf,
    SignalOf,
    Some,
    TokenIs,
    VarOf,
)
from tokenrouter.compiler.ir import Automaton
from tokenrouter.plan import structs as s


@dataclass(frozen=True, slots=True)
class Index:
    """The places of names in the plan's lists."""

    models: dict[str, int]
    params: dict[str, int]
    vars: dict[str, int]
    heads: dict[str, int]


def index(auto: Automaton) -> Index:
    """Return the places of an automaton's names."""
    return Index(
        {decl.name: at for at, decl in enumerate(auto.models)},
        {decl.name: at for at, decl in enumerate(auto.params)},
        {decl.name: at for at, decl in enumerate(auto.vars)},
        {decl.name: at for at, decl in enumerate(auto.heads)},
    )


@dataclass(eq=False, slots=True)
class _Nodes:
    """A node list that grows by what is asked for."""

    places: Index
    nodes: list[s.Node] = field(default_factory=list)
    known: dict[Expr, int] = field(default_factory=dict)

    def add(self, expr: Expr) -> int:
        """Return the node of an expression, made now where it is new."""
        if expr not in self.known:
            node = self._node(expr)
            self.nodes.append(node)
            self.known[expr] = len(self.nodes) - 1
        return self.known[expr]

    def maybe(self, expr: Expr | None) -> int | None:
        """Return the node of an expression, or None where there is none."""
        return None if expr is None else self.add(expr)

    def _node(self, expr: Expr) -> s.Node:
        match expr:
            case Comparison():
                left, right = self.add(expr.left), self.add(expr.right)
                return s.Compare(sign=expr.sign, left=left, right=right)
            case Arithmetic():
                left, right = self.add(expr.left), self.add(expr.right)
                return s.Arith(sign=expr.sign, left=left, right=right)
            case Every():
                return s.AllOf(of=[self.add(item) for item in expr.of])
            case Some():
                return s.AnyOf(of=[self.add(item) for item in expr.of])
            case Negation():
                return s.Not(of=self.add(expr.of))
            case Aggregate():
                return s.Window(kind=expr.kind, of=self.add(expr.of), n=expr.n)
            case _:
                return self._leaf(expr)

    def _leaf(
        self, expr: Lit | ParamOf | VarOf | SignalOf | HeadOf | TokenIs | ClassOf | FieldOf
    ) -> s.Node:
        match expr:
            case Lit():
                return s.Const(value=expr.value, unit=expr.unit)
            case ParamOf():
                return s.ParamRef(param=self.places.params[expr.name])
            case VarOf():
                return s.VarRef(var=self.places.vars[expr.name])
            case SignalOf():
                args = [self.places.models[a] if isinstance(a, str) else a for a in expr.args]
                return s.Signal(name=expr.name, args=args)
            case HeadOf():
                return s.HeadRef(head=self.places.heads[expr.name])
            case TokenIs():
                return s.TokenIn(texts=list(expr.texts))
            case ClassOf():
                return s.ClassIs(name=expr.name)
            case FieldOf():
                return s.RequestField(name=expr.name, default=expr.default)


def find(places: Index, nodes: list[s.Node], expr: Expr) -> int | None:
    """Return the node of an expression in a program; None where the program does not ask for it."""
    probe = _Known(places, list(nodes))
    at = probe.add(expr)
    return at if at < len(nodes) else None


@dataclass(eq=False, slots=True)
class _Known(_Nodes):
    """A node list that finds what it holds by value."""

    def add(self, expr: Expr) -> int:
        """Return the node of an expression; one behind the end where it is new."""
        node = self._node(expr)
        if node not in self.nodes:
            self.nodes.append(node)
        return self.nodes.index(node)


def programs(auto: Automaton) -> list[s.Program]:
    """Return the route program of every model, in the order of the models."""
    places = index(auto)
    untils = _untils(auto)
    return [_program(state, places, untils) for state in auto.states]


def _untils(auto: Automaton) -> dict[str, list[Expr]]:
    """Return, by lender, the conditions that end a borrowed stay there, each once."""
    found: dict[str, list[Expr]] = {decl.name: [] for decl in auto.models}
    for _, _, rule in auto.rules():
        if isinstance(rule.go, ir.Borrow) and rule.go.until is not None:
            conditions = found[rule.go.model]
            if rule.go.until not in conditions:
                conditions.append(rule.go.until)
    return found


def _program(state: ir.State, places: Index, untils: dict[str, list[Expr]]) -> s.Program:
    nodes = _Nodes(places)
    rules = []
    for rule in state.rules:
        when = nodes.maybe(rule.when)
        go = _go(rule.go, nodes, untils)
        sets = [
            s.Assign(var=places.vars[assign.var], value=nodes.add(assign.value))
            for assign in rule.sets
        ]
        rules.append(s.Rule(when=when, keep=rule.keep, go=go, sets=sets, source=rule.source))
    ends = [nodes.add(condition) for condition in untils[state.model]]
    return s.Program(nodes=nodes.nodes, rules=rules, untils=ends)


def _go(go: ir.Go, nodes: _Nodes, untils: dict[str, list[Expr]]) -> s.Go:
    models = nodes.places.models
    match go:
        case ir.Stay():
            return s.Stay()
        case ir.Stop():
            return s.Stop()
        case ir.To() | ir.Mix():
            return _choice(go, models)
        case ir.Borrow():
            until = None if go.until is None else untils[go.model].index(go.until)
            return s.Borrow(model=models[go.model], most=nodes.add(go.most), until=until)


def _choice(go: ir.To | ir.Mix, models: dict[str, int]) -> s.To | s.Mix:
    if isinstance(go, ir.To):
        return s.To(model=models[go.model])
    return s.Mix(weights=[s.Share(model=models[name], weight=w) for name, w in go.weights])


def start(auto: Automaton) -> s.Start:
    """Return the program that chooses the first model."""
    nodes = _Nodes(index(auto))
    rules = []
    for rule in auto.start:
        when = nodes.maybe(rule.when)
        rules.append(s.StartRule(when=when, go=_choice(rule.go, nodes.places.models)))
    return s.Start(nodes=nodes.nodes, rules=rules)
