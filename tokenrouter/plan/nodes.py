"""What a program's nodes are: their operands, and the type of their value."""

from __future__ import annotations

from typing import Literal

from tokenrouter.plan.structs import (
    AllOf,
    AnyOf,
    Arith,
    ClassIs,
    Compare,
    Const,
    HeadRef,
    Node,
    Not,
    Param,
    ParamRef,
    Plan,
    RequestField,
    Signal,
    TokenIn,
    Value,
    Var,
    VarRef,
    Window,
)
from tokenrouter.signals import SIGNALS

Type = Literal["bool", "number", "text"]


def operands(node: Node) -> list[int]:
    """Return the indices of the nodes that this one reads."""
    match node:
        case Compare() | Arith():
            return [node.left, node.right]
        case AllOf() | AnyOf():
            return list(node.of)
        case Not() | Window():
            return [node.of]
        case _:
            return []


def value_type(value: Value) -> Type:
    """Return the type of a literal."""
    if isinstance(value, bool):
        return "bool"
    return "text" if isinstance(value, str) else "number"


def node_type(node: Node, params: list[Param], vars_: list[Var]) -> Type:
    """Return the type of a node whose references are all in range."""
    match node:
        case Const():
            return value_type(node.value)
        case RequestField():
            return value_type(node.default)
        case ParamRef():
            return value_type(params[node.param].value)
        case VarRef():
            return value_type(vars_[node.var].value)
        case Signal():
            unit = SIGNALS[node.name].unit
            return "bool" if unit == "bool" else "text" if unit == "text" else "number"
        case HeadRef() | Window() | Arith():
            return "number"
        case TokenIn() | ClassIs() | Compare() | AllOf() | AnyOf() | Not():
            return "bool"


def closure(nodes: list[Node], roots: list[int]) -> set[int]:
    """Return the indices of `roots` and of everything that they read."""
    found: set[int] = set()
    stack = list(roots)
    while stack:
        index = stack.pop()
        if index not in found:
            found.add(index)
            stack += operands(nodes[index])
    return found


def reads_hidden(plan: Plan, model: int) -> bool:
    """Return whether a head in a model's program reads its hidden state."""
    heads = (node.head for node in plan.programs[model].nodes if isinstance(node, HeadRef))
    return any("hidden" in plan.heads[head].reads for head in heads)


def reads_load(plan: Plan) -> bool:
    """Return whether a plan's tokens depend on load, so that only a replay of what was read gives them again."""
    nodes = [*plan.start.nodes, *(node for program in plan.programs for node in program.nodes)]
    return any(isinstance(node, Signal) and SIGNALS[node.name].needs == "load" for node in nodes)
