"""What must hold of route programs: references in range, nodes in dependency order, types, rules that always end."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from tokenrouter.plan.nodes import Type, node_type, operands
from tokenrouter.plan.structs import (
    Borrow,
    ClassIs,
    Compare,
    Const,
    Go,
    HeadRef,
    Mix,
    Node,
    ParamRef,
    Plan,
    Rule,
    Signal,
    StartRule,
    Stay,
    Stop,
    To,
    TokenIn,
    VarRef,
    Window,
)
from tokenrouter.signals import SIGNALS


def verify(plan: Plan) -> list[str]:
    """Return what is wrong with the programs and the start rules, one line each."""
    problems: list[str] = []
    for index, (model, program) in enumerate(zip(plan.models, plan.programs, strict=True)):
        found = list(_nodes(plan, program.nodes, index))
        if not found:  # the rules are held against the nodes
            found += _rules(plan, index)
        problems += [f"program of `{model.name}`: {problem}" for problem in found]
    problems += [f"start: {problem}" for problem in _start(plan)]
    return problems


def _nodes(plan: Plan, nodes: list[Node], model: int | None) -> Iterator[str]:
    types: list[Type] = []
    for index, node in enumerate(nodes):
        if any(not 0 <= of < index for of in operands(node)):
            yield f"node {index} reads a node that does not come before it"
            return
        problem = _reference(plan, node, model)
        if problem:
            yield f"node {index} {problem}"
            return
        problem = _types(node, types)
        if problem:
            yield f"node {index} {problem}"
        types.append(node_type(node, plan.params, plan.vars))


def _reference(plan: Plan, node: Node, model: int | None) -> str:
    """Return what a node refers to in vain; '' where all is there."""
    match node:
        case ParamRef() if not 0 <= node.param < len(plan.params):
            return f"names no param: {node.param}"
        case VarRef() if not 0 <= node.var < len(plan.vars):
            return f"names no var: {node.var}"
        case HeadRef() if not 0 <= node.head < len(plan.heads):
            return f"names no head: {node.head}"
        case HeadRef() if plan.heads[node.head].model != model:
            return f"reads head `{plan.heads[node.head].name}` of another model"
        case Const() if isinstance(node.value, float) and not isfinite(node.value):
            return "is not finite"
        case Window() if node.n < 1:
            return "looks at no step"
        case TokenIn() if not node.texts:
            return "compares with no text"
        case Signal():
            return _signal(plan, node)
        case _:
            return ""


def _signal(plan: Plan, node: Signal) -> str:
    kind = SIGNALS.get(node.name)
    if kind is None:
        return f"names no signal: `{node.name}`"
    if len(node.args) != len(kind.args):
        return f"gives `{node.name}` {len(node.args)} arguments for {len(kind.args)}"
    for role, arg in zip(kind.args, node.args, strict=True):
        if role == "model" and not 0 <= arg < len(plan.models):
            return f"names no model: `{node.name}` of {arg}"
        if role == "int" and arg < 0:
            return f"gives `{node.name}` a negative argument"
    return ""


def _types(node: Node, types: list[Type]) -> str:
    """Return how a node misuses its operands; '' where their types fit."""
    got = [types[of] for of in operands(node)]
    match node:
        case Compare():
            ordered = node.sign not in ("==", "!=")
            if got[0] != got[1] or (ordered and got[0] != "number"):
                return f"compares {got[0]} {node.sign} {got[1]}"
        case Window() | Const() | Signal() | ClassIs():
            return "aggregates no number" if "bool" in got or "text" in got else ""
        case _:
            wanted: Type = "number" if node.__struct_config__.tag == "arith" else "bool"
            if any(type_ != wanted for type_ in got):
                return f"takes {wanted}, not {' and '.join(got)}"
    return ""


def _rules(plan: Plan, model: int) -> Iterator[str]:
    program = plan.programs[model]
    if program.rules:
        yield from _ends(program.rules)
    for index, rule in enumerate(program.rules):
        if not _is(plan, program.nodes, rule.when, "bool"):
            yield f"rule {index} is guarded by no bool node"
        problem = _go(plan, model, rule.go) or _keep(rule)
        if problem:
            yield f"rule {index} {problem}"
        yield from (f"rule {index} {problem}" for problem in _sets(plan, program.nodes, rule))
    for index, node in enumerate(program.untils):
        if not _is(plan, program.nodes, node, "bool"):
            yield f"until {index} is no bool node"


def _ends(rules: list[Rule] | list[StartRule]) -> Iterator[str]:
    """`otherwise` stands last, and only there."""
    if rules[-1].when is not None:
        yield "the last rule is not `otherwise`"
    if any(rule.when is None for rule in rules[:-1]):
        yield "a rule follows `otherwise`"


def _is(plan: Plan, nodes: list[Node], index: int | None, wanted: Type) -> bool:
    if index is None:
        return True
    if not 0 <= index < len(nodes):
        return False
    return node_type(nodes[index], plan.params, plan.vars) == wanted


def _keep(rule: Rule) -> str:
    if not rule.keep and isinstance(rule.go, (Stay, Stop, Mix)):
        return "drops the candidate and leaves nobody to decide this position"
    return ""


def _go(plan: Plan, model: int, go: Go) -> str:
    match go:
        case To() | Mix():
            return _targets(plan, go, model)
        case Borrow():
            return _borrow(plan, model, go)
        case Stay() | Stop():
            return ""


def _targets(plan: Plan, go: To | Mix, model: int | None) -> str:
    """Return what is wrong with a hand-off after which the target's own rules decide."""
    targets = [go.model] if isinstance(go, To) else [share.model for share in go.weights]
    if not targets or not all(0 <= target < len(plan.models) for target in targets):
        return f"names no model: {targets}"
    if isinstance(go, To) and go.model == model:
        return "hands the request to the model that it is at"
    without = [plan.models[target].name for target in targets if not plan.programs[target].rules]
    if without:
        return f"hands the request to `{without[0]}`, which has no rules"
    if isinstance(go, Mix):
        weights = [share.weight for share in go.weights]
        if len(set(targets)) < len(targets):
            return "mixes a model twice"
        if min(weights) <= 0 or abs(sum(weights) - 1) > 1e-9:
            return "has weights that are not positive with sum 1"
    return ""


def _borrow(plan: Plan, model: int, go: Borrow) -> str:
    if not 0 <= go.model < len(plan.models):
        return f"names no model: {go.model}"
    if go.model == model:
        return "borrows from the model that it is at"
    if not _is(plan, plan.programs[model].nodes, go.most, "number"):
        return "borrows for a node that is no number"
    if go.until is not None and not 0 <= go.until < len(plan.programs[go.model].untils):
        return f"borrows until a condition that `{plan.models[go.model].name}` does not have"
    return ""


def _sets(plan: Plan, nodes: list[Node], rule: Rule) -> Iterator[str]:
    variables = [assign.var for assign in rule.sets]
    if len(set(variables)) < len(variables):
        yield "sets a var twice"
    for assign in rule.sets:
        if not 0 <= assign.var < len(plan.vars):
            yield f"sets no var: {assign.var}"
            continue
        var = plan.vars[assign.var]
        wanted: Type = "bool" if isinstance(var.value, bool) else "number"
        if not _is(plan, nodes, assign.value, wanted):
            yield f"sets `{var.name}` to a node that is no {wanted}"


def _start(plan: Plan) -> Iterator[str]:
    start = plan.start
    if not start.rules:
        yield "no rule"
        return
    found = list(_nodes(plan, start.nodes, None))
    yield from found
    if found:
        return
    for index, node in enumerate(start.nodes):
        of_a_step = isinstance(node, (VarRef, Window, TokenIn, ClassIs))
        if of_a_step or (isinstance(node, Signal) and not SIGNALS[node.name].in_start):
            yield f"node {index} needs a step, and none was taken yet"
    yield from _ends(start.rules)
    for index, rule in enumerate(start.rules):
        if not _is(plan, start.nodes, rule.when, "bool"):
            yield f"rule {index} is guarded by no bool node"
        problem = _targets(plan, rule.go, None)
        if problem:
            yield f"rule {index} {problem}"
