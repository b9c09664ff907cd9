"""Plan -> IR: the way back from programs to guarded transitions, names instead of indices again."""

from __future__ import annotations

from tokenrouter.compiler import expr as e
from tokenrouter.compiler import ir
from tokenrouter.diagnostics import Span
from tokenrouter.plan import structs as s
from tokenrouter.plan.structs import Plan
from tokenrouter.plan.text import rule_text
from tokenrouter.signals import SIGNALS

NOWHERE = Span(0, 0, 1, 1, 1, 1)


def start_rules(plan: Plan) -> list[ir.StartRule]:
    """Return the start rules of a plan."""
    return [
        ir.StartRule(
            None if rule.when is None else expr(plan, plan.start.nodes, rule.when),
            _choice(plan, rule.go),
            NOWHERE,
        )
        for rule in plan.start.rules
    ]


def state(plan: Plan, at: int) -> ir.State:
    """Return one model's rules."""
    program = plan.programs[at]
    nodes = program.nodes
    rules = tuple(
        ir.Rule(
            when=None if rule.when is None else expr(plan, nodes, rule.when),
            keep=rule.keep,
            go=_go(plan, at, rule.go),
            span=NOWHERE,
            text=rule_text(plan, at, rule),
            sets=tuple(
                ir.Assign(plan.vars[item.var].name, expr(plan, nodes, item.value))
                for item in rule.sets
            ),
            source=rule.source,
        )
        for rule in program.rules
    )
    return ir.State(plan.models[at].name, rules, NOWHERE)


def _go(plan: Plan, at: int, go: s.Go) -> ir.Go:
    match go:
        case s.Stay():
            return ir.Stay()
        case s.Stop():
            return ir.Stop()
        case s.To() | s.Mix():
            return _choice(plan, go)
        case s.Borrow():
            lender = plan.programs[go.model]
            until = None if go.until is None else expr(plan, lender.nodes, lender.untils[go.until])
            most = expr(plan, plan.programs[at].nodes, go.most)
            return ir.Borrow(plan.models[go.model].name, most, until)


def _choice(plan: Plan, go: s.To | s.Mix) -> ir.To | ir.Mix:
    if isinstance(go, s.To):
        return ir.To(plan.models[go.model].name)
    return ir.Mix(tuple((plan.models[part.model].name, part.weight) for part in go.weights))


def expr(plan: Plan, nodes: list[s.Node], at: int) -> e.Expr:
    """Return a node with everything under it as a tree."""
    node = nodes[at]
    match node:
        case s.Compare():
            left, right = expr(plan, nodes, node.left), expr(plan, nodes, node.right)
            return e.Comparison(node.sign, left, right)
        case s.Arith():
            left, right = expr(plan, nodes, node.left), expr(plan, nodes, node.right)
            return e.Arithmetic(node.sign, left, right)
        case s.AllOf():
            return e.Every(tuple(expr(plan, nodes, of) for of in node.of))
        case s.AnyOf():
            return e.Some(tuple(expr(plan, nodes, of) for of in node.of))
        case s.Not():
            return e.Negation(expr(plan, nodes, node.of))
        case s.Window():
            return e.Aggregate(node.kind, expr(plan, nodes, node.of), node.n)
        case _:
            return _leaf(plan, node)


def _leaf(
    plan: Plan,
    node: s.Const
    | s.ParamRef
    | s.VarRef
    | s.Signal
    | s.HeadRef
    | s.TokenIn
    | s.ClassIs
    | s.RequestField,
) -> e.Expr:
    match node:
        case s.Const():
            return e.Lit(node.value, node.unit)
        case s.ParamRef():
            return e.ParamOf(plan.params[node.param].name, plan.params[node.param].unit)
        case s.VarRef():
            return e.VarOf(plan.vars[node.var].name, plan.vars[node.var].unit)
        case s.Signal():
            args = zip(SIGNALS[node.name].args, node.args, strict=True)
            named = (plan.models[arg].name if kind == "model" else arg for kind, arg in args)
            return e.SignalOf(node.name, tuple(named))
        case s.HeadRef():
            return e.HeadOf(plan.heads[node.head].name)
        case s.TokenIn():
            return e.TokenIs(tuple(node.texts))
        case s.ClassIs():
            return e.ClassOf(node.name)
        case s.RequestField():
            return e.FieldOf(node.name, node.default, _unit(node.default))


def _unit(value: s.Value) -> str:
    if isinstance(value, bool):
        return "bool"
    return "text" if isinstance(value, str) else "number"
