"""What must hold of the IR between passes. A failure is a defect of ours, never of the policy."""

from __future__ import annotations

from typing import NamedTuple

from tokenrouter.compiler.expr import Expr, HeadOf, ParamOf, SignalOf, VarOf, walk
from tokenrouter.compiler.ir import Automaton, Borrow, Mix, Rule, To, targets


def verify(auto: Automaton, after: str) -> None:
    """Assert the invariants of `ir`; `after` names the pass that is to blame."""
    names = [decl.name for decl in auto.models]
    assert names, f"{after}: no model is left"
    assert [state.model for state in auto.states] == names, f"{after}: states {auto.states}"
    assert auto.start and auto.start[-1].when is None, f"{after}: start {auto.start}"
    known = _Names.of(auto)
    for start_rule in auto.start:
        assert set(targets(start_rule.go)) <= known.models, f"{after}: {start_rule}"
        _ask(known, start_rule.when, after)
    for state in auto.states:
        whens = [rule.when for rule in state.rules]
        assert not whens or whens[-1] is None, f"{after}: {state} has no `otherwise`"
        assert None not in whens[:-1], f"{after}: {state} goes on after `otherwise`"
        for rule in state.rules:
            _rule(known, state.model, rule, after)


class _Names(NamedTuple):
    models: set[str]
    params: set[str]
    vars: set[str]
    heads: set[str]

    @classmethod
    def of(cls, auto: Automaton) -> _Names:
        lists = (auto.models, auto.params, auto.vars, auto.heads)
        return cls(*({decl.name for decl in decls} for decls in lists))


def _rule(known: _Names, model: str, rule: Rule, after: str) -> None:
    assert set(targets(rule.go)) <= known.models, f"{after}: {rule} names a model that is gone"
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
        _ask(known, expr, after)


def _ask(known: _Names, expr: Expr | None, after: str) -> None:
    if expr is None:
        return
    for part in walk(expr):
        match part:
            case ParamOf():
                assert part.name in known.params, f"{after}: no param {part}"
            case VarOf():
                assert part.name in known.vars, f"{after}: no var {part}"
            case HeadOf():
                assert part.name in known.heads, f"{after}: no head {part}"
            case SignalOf():
                unknown = [a for a in part.args if isinstance(a, str) and a not in known.models]
                assert not unknown, f"{after}: {part} names a model that is gone"
            case _:
                pass
