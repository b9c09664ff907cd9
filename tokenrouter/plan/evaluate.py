"""What a program decides, from given values of signals: plain Python, for tests of policies and for simulation.

The runtime has its own evaluator on tensors; both follow the structs' meaning: numbers are float64, x / 0 is 0, a borrow
below 1 passes its rule over, windows look at the last n values that they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tokenrouter.plan.literal import arithmetic, compare
from tokenrouter.plan.nodes import closure
from tokenrouter.plan.structs import (
    AllOf,
    AnyOf,
    Arith,
    Borrow,
    ClassIs,
    Compare,
    Const,
    HeadRef,
    Node,
    Not,
    ParamRef,
    Plan,
    Program,
    RequestField,
    Signal,
    TokenIn,
    Value,
    VarRef,
    Window,
)

Given = Callable[[Node], Value]  # the value of a signal, head, token, class or request node


@dataclass(eq=False, slots=True)
class Request:
    """What a request carries from step to step."""

    params: list[float | bool]
    vars: list[float | bool]
    windows: dict[tuple[int, int], list[float]] = field(default_factory=dict)  # by model and node


def begin(plan: Plan) -> Request:
    """Return a request at its start, with the plan's params."""
    return Request([param.value for param in plan.params], [var.value for var in plan.vars])


def needed(program: Program) -> list[int]:
    """Return the nodes that the rules of a program read themselves, in order."""
    roots: list[int] = []
    for rule in program.rules:
        if rule.when is not None:
            roots.append(rule.when)
        if isinstance(rule.go, Borrow):
            roots.append(rule.go.most)
        roots += [assign.value for assign in rule.sets]
    return roots


def values(plan: Plan, model: int, request: Request, given: Given, roots: list[int]) -> list[Value]:
    """Return the value of every node of a program; nodes that no root needs keep 0 and move no window."""
    nodes = plan.programs[model].nodes
    live = closure(nodes, roots)
    out: list[Value] = [0.0] * len(nodes)
    for index, node in enumerate(nodes):
        if index in live:
            out[index] = _value(model, index, node, out, request, given)
    return out


def _value(
    model: int, index: int, node: Node, out: list[Value], request: Request, given: Given
) -> Value:
    match node:
        case Const():
            return node.value
        case ParamRef():
            return request.params[node.param]
        case VarRef():
            return request.vars[node.var]
        case Signal() | HeadRef() | TokenIn() | ClassIs() | RequestField():
            return given(node)
        case Window():
            past = request.windows.setdefault((model, index), [])
            past.append(float(out[node.of]))
            del past[: -node.n]
            return window(node.kind, node.n, past)
        case AllOf():
            return all(out[of] for of in node.of)
        case AnyOf():
            return any(out[of] for of in node.of)
        case Not():
            return not out[node.of]
        case Compare():
            return compare(node.sign, out[node.left], out[node.right])
        case Arith():
            return arithmetic(node.sign, float(out[node.left]), float(out[node.right]))


def window(kind: str, n: int, past: list[float]) -> float:
    """Return an aggregate of the last values, oldest first; ewma gives the newest the weight 2 / (n + 1)."""
    match kind:
        case "mean":
            return sum(past) / len(past)
        case "max":
            return max(past)
        case _:
            running = past[0]
            for x in past[1:]:
                running += (x - running) * 2.0 / (n + 1)
            return running


def fires(program: Program, found: list[Value]) -> int | None:
    """Return the first rule that holds; None where even `otherwise` is passed over, which commits and stays."""
    for index, rule in enumerate(program.rules):
        if rule.when is not None and not found[rule.when]:
            continue
        if isinstance(rule.go, Borrow) and not float(found[rule.go.most]) >= 1.0:
            continue
        return index
    return None
