"""What must hold of the IR between passes. A failure is a defect of ours, never of the policy."""

from __future__ import annotations

from tokenrouter.compiler.expr import Expr, HeadOf, ParamOf, SignalOf, VarOf, walk
from tokenrouter.compiler.ir import Automaton, Borrow, Mix, Rule, To, targets


def verify(auto: Automaton, after: str) -> None:
    """Assert the invariants of `ir`; `after` names the pass that is to blame."""
    names = [decl.name for decl in auto.models]
    assert names, f"{after}: no model is left"
    assert [state.model for state in auto.states] == names, f"{after}: states {auto.states}"
    assert auto.start and auto.start[-1].when is None, f"{after}: start {auto.start}"
    known = set(names)
    for start_rule in auto.start:
        assert set(targets(start_rule.go)) <= known, f"{after}: {start_rule}"
        _ask(auto, start_rule.when, after)
    for state in auto.states:
        whens = [rule.when for rule in state.rules]
        assert not whens or whens[-1] is None, f"{after}: {state} has no `otherwise`"
        assert None not in whens[:-1], f"{after}: {state} goes on after `otherwise`"
        for rule in state.rules:
            _rule(auto, state.model, rule, after)


def _rule(auto: Automaton, model: str, rule: Rule, after: str) -> None:
    known = {decl.name for decl in auto.models}
    assert set(targets(rule.go)) <= known, f"{after}: {rule} names a model that is gone"
    if isinstance(rule.go, (To, Borrow)):
        assert rule.go.model != model, f"{after}: {rule} hands over to its own model"
    if isinstance(rule.go, Mix):
        total = sum(weight for _, weight in rule.go.weights)
        assert abs(total - 1.0) < 1e-9, f"{after}: {rule} has weights with sum {total}"
    if not rule.keep:
        assert isinstance(rule.go, (To, Borrow)), f"{after}: {rule} leaves the position to nobody"
    exprs = [rule.when, *(assign.value for assign in rule.sets)]
    if isinstance(rule.go, Borrow):
        exprs += [rule.go.most, rule.go.until]
    for expr in exprs:
        _ask(auto, expr, after)


def _ask(auto: Automaton, expr: Expr | None, after: str) -> None:
    if expr is None:
        return
    models = {decl.name for decl in auto.models}
    params = {decl.name for decl in auto.params}
    variables = {decl.name for decl in auto.vars}
    heads = {decl.name for decl in auto.heads}
    for part in walk(expr):
        match part:
            case ParamOf():
                assert part.name in params, f"{after}: no param {part}"
            case VarOf():
                assert part.name in variables, f"{after}: no var {part}"
            case HeadOf():
                assert part.name in heads, f"{after}: no head {part}"
            case SignalOf():
                unknown = [a for a in part.args if isinstance(a, str) and a not in models]
                assert not unknown, f"{after}: {part} names a model that is gone"
            case _:
                pass
