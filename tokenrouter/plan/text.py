"""Nodes, rules and start rules of a plan as text, in the words of the policy language."""

from __future__ import annotations

from tokenrouter.plan.literal import number, quote, value_text
from tokenrouter.plan.structs import (
    AllOf,
    AnyOf,
    Arith,
    Assign,
    Borrow,
    ClassIs,
    Compare,
    Const,
    Go,
    HeadRef,
    Mix,
    Node,
    Not,
    ParamRef,
    Plan,
    RequestField,
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


def node_text(plan: Plan, nodes: list[Node], index: int) -> str:
    """Return a node with everything under it."""
    node = nodes[index]
    match node:
        case Compare():
            left, right = _operand(plan, nodes, node.left, 4), _operand(plan, nodes, node.right, 4)
            return f"{left} {node.sign} {right}"
        case Arith():
            level = 5 if node.sign in "+-" else 6
            left = _operand(plan, nodes, node.left, level)
            return f"{left} {node.sign} {_operand(plan, nodes, node.right, level + 1)}"
        case AllOf():
            return " and ".join(_operand(plan, nodes, of, 3) for of in node.of)
        case AnyOf():
            return " or ".join(_operand(plan, nodes, of, 2) for of in node.of)
        case Not():
            return f"not {_operand(plan, nodes, node.of, 9)}"
        case Window():
            return f"{node.kind}({node_text(plan, nodes, node.of)}, {node.n})"
        case _:
            return _leaf(plan, node)


def _operand(plan: Plan, nodes: list[Node], index: int, level: int) -> str:
    """Return an operand, in brackets where it binds looser than its place."""
    text = node_text(plan, nodes, index)
    return text if _binds(nodes[index]) >= level else f"({text})"


def _binds(node: Node) -> int:
    match node:
        case AnyOf():
            return 1
        case AllOf():
            return 2
        case Not() | Compare() | TokenIn() | ClassIs():
            return 3
        case Arith(sign="+" | "-"):
            return 5
        case Arith():
            return 6
        case _:
            return 9


def _leaf(plan: Plan, node: Node) -> str:
    match node:
        case Const():
            return value_text(node.value)
        case ParamRef():
            return plan.params[node.param].name
        case VarRef():
            return plan.vars[node.var].name
        case HeadRef():
            return plan.heads[node.head].name
        case Signal():
            return signal_text(plan, node)
        case RequestField():
            return f"request.{node.name}"
        case TokenIn(texts=[one]):
            return f"token is {quote(one)}"
        case TokenIn():
            return "token in {" + ", ".join(map(quote, node.texts)) + "}"
        case ClassIs():
            return f"class is {node.name}"
        case _:
            raise AssertionError(node)


def signal_text(plan: Plan, node: Signal) -> str:
    """Return a signal with its arguments; models by name."""
    kinds = SIGNALS[node.name].args
    args = [
        plan.models[arg].name if kind == "model" else str(arg)
        for kind, arg in zip(kinds, node.args, strict=True)
    ]
    return f"{node.name}({', '.join(args)})" if args else node.name


def action_text(plan: Plan, model: int, keep: bool, go: Go) -> str:
    """Return an action of one model's program."""
    then = "commit then " if keep else ""
    match go:
        case Stay():
            return "commit"
        case Stop():
            return "stop"
        case To():
            name = plan.models[go.model].name
            return f"{then}{name}" if keep else f"retry {name}"
        case Mix():
            return f"{then}{mix_text(plan, go)}"
        case Borrow():
            name = plan.models[go.model].name
            most = node_text(plan, plan.programs[model].nodes, go.most)
            if go.until is None:
                return f"{then}borrow {name} for {most}"
            lender = plan.programs[go.model]
            until = node_text(plan, lender.nodes, lender.untils[go.until])
            return f"{then}borrow {name} until {until} at most {most}"


def mix_text(plan: Plan, go: Mix) -> str:
    """Return a mixture."""
    parts = (f"{plan.models[share.model].name}: {number(share.weight)}" for share in go.weights)
    return "mix { " + "  ".join(parts) + " }"


def rule_text(plan: Plan, model: int, rule: Rule) -> str:
    """Return a rule of one model's program on one line."""
    nodes = plan.programs[model].nodes
    guard = "otherwise" if rule.when is None else f"when {node_text(plan, nodes, rule.when)}"
    return f"{guard} -> {action_text(plan, model, rule.keep, rule.go)}{assigns_text(plan, model, rule)}"


def assigns_text(plan: Plan, model: int, rule: Rule) -> str:
    """Return a rule's assignments, each after a blank."""
    nodes = plan.programs[model].nodes
    return "".join(f" set {_assign(plan, nodes, assign)}" for assign in rule.sets)


def _assign(plan: Plan, nodes: list[Node], assign: Assign) -> str:
    return f"{plan.vars[assign.var].name} = {node_text(plan, nodes, assign.value)}"


def start_text(plan: Plan, rule: StartRule) -> str:
    """Return a start rule on one line."""
    go = plan.models[rule.go.model].name if isinstance(rule.go, To) else mix_text(plan, rule.go)
    if rule.when is None:
        return f"otherwise -> {go}"
    return f"when {node_text(plan, plan.start.nodes, rule.when)} -> {go}"
