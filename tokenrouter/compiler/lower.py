"""Resolved policy -> IR: derived signals written out, constants folded, texts and spans kept by rule."""

from __future__ import annotations

from collections.abc import Callable

from tokenrouter.compiler import expr as e
from tokenrouter.compiler import ir
from tokenrouter.compiler.fold import fold_one
from tokenrouter.dsl import hir


def lower_state(block: hir.Block) -> ir.State:
    """Return the IR of the rules of a model."""
    own = bool(block.rules) and not block.from_any
    return ir.State(block.model, tuple(map(_rule, block.rules)), block.span, own=own)


def lower(policy: hir.Policy, state: Callable[[hir.Block], ir.State] = lower_state) -> ir.Automaton:
    """Return the IR of a policy; `state` may know that of a block from before."""
    return ir.Automaton(
        policy=policy.name,
        models=tuple(
            ir.ModelDecl(m.name, m.use, m.span, m.dtype, m.quantize, m.tensor_parallel, m.cost)
            for m in policy.models
        ),
        start=tuple(
            ir.StartRule(_maybe(rule.when), _choice(rule.go), rule.span) for rule in policy.start
        ),
        states=tuple(map(state, policy.blocks)),
        span=policy.span,
        params=tuple(
            ir.ParamDecl(p.name, p.unit, p.value, p.span, p.low, p.high) for p in policy.params
        ),
        vars=tuple(ir.VarDecl(v.name, v.unit, v.value, v.span) for v in policy.vars),
        heads=tuple(
            ir.HeadDecl(h.name, h.kind, h.file, h.model, h.reads, h.span) for h in policy.heads
        ),
        claims=tuple(
            ir.ClaimDecl(c.kind, c.measure, c.model, c.bound, c.span) for c in policy.claims
        ),
        fallback=policy.fallback,
        template_from=policy.template_from,
        objective=str(policy.objective),
    )


def _rule(rule: hir.Rule) -> ir.Rule:
    action = rule.action
    return ir.Rule(
        when=_maybe(rule.when),
        keep=action.keep,
        go=lower_go(action.go),
        span=rule.span,
        text=rule.text,
        sets=tuple(ir.Assign(item.var, lower_expr(item.value)) for item in action.sets),
    )


def lower_go(go: hir.Go) -> ir.Go:
    """Return who decides next, in the IR."""
    match go:
        case hir.Stay():
            return ir.Stay()
        case hir.Stop():
            return ir.Stop()
        case hir.Borrow():
            return ir.Borrow(go.model, lower_expr(go.most), _maybe(go.until))
        case hir.To() | hir.Mix():
            return _choice(go)


def _choice(go: hir.To | hir.Mix) -> ir.To | ir.Mix:
    return ir.To(go.model) if isinstance(go, hir.To) else ir.Mix(go.weights)


def _maybe(expr: hir.Expr | None) -> e.Expr | None:
    return None if expr is None else lower_expr(expr)


def lower_expr(expr: hir.Expr) -> e.Expr:
    """Return an expression of the IR, folded."""
    match expr:
        case hir.Not():
            return fold_one(e.Negation(lower_expr(expr.of)))
        case hir.Compare():
            return fold_one(e.Comparison(expr.sign, lower_expr(expr.left), lower_expr(expr.right)))
        case hir.AllOf():
            return fold_one(e.Every(tuple(map(lower_expr, expr.of))))
        case hir.AnyOf():
            return fold_one(e.Some(tuple(map(lower_expr, expr.of))))
        case hir.Arith():
            return fold_one(e.Arithmetic(expr.sign, lower_expr(expr.left), lower_expr(expr.right)))
        case hir.Derived():
            return lower_expr(expr.of)
        case hir.Window():
            return e.Aggregate(expr.kind, lower_expr(expr.of), expr.n)
        case _:
            return _leaf(expr)


def _leaf(
    expr: hir.Const
    | hir.ParamRef
    | hir.VarRef
    | hir.SignalRef
    | hir.HeadRef
    | hir.TokenIn
    | hir.ClassIs
    | hir.RequestField,
) -> e.Expr:
    match expr:
        case hir.Const():
            is_number = not isinstance(expr.value, (bool, str))
            return e.Lit(float(expr.value) if is_number else expr.value, expr.unit)
        case hir.ParamRef():
            return e.ParamOf(expr.name, expr.unit)
        case hir.VarRef():
            return e.VarOf(expr.name, expr.unit)
        case hir.SignalRef():
            return e.SignalOf(expr.name, expr.args)
        case hir.HeadRef():
            return e.HeadOf(expr.name)
        case hir.TokenIn():
            return e.TokenIs(expr.texts)
        case hir.ClassIs():
            return e.ClassOf(expr.name)
        case hir.RequestField():
            return e.FieldOf(expr.name, expr.default, expr.unit)
