"""Who decides the first position: the plan's start rules, evaluated by the front end, without torch.

Start rules read what is known before any step: the prompt's length, params, and what the client sent. Load signals are
evaluated when a request comes in, from what subservers last told; `loads` has their values by node.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from tokenrouter.plan.literal import arithmetic
from tokenrouter.plan.structs import (
    AllOf,
    AnyOf,
    Arith,
    Compare,
    Const,
    Mix,
    Node,
    Not,
    ParamRef,
    Plan,
    RequestField,
    Signal,
    Value,
)
from tokenrouter.runtime.random import MIX, uniform

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


def first_owner(
    plan: Plan,
    seed: int,
    n_prompt: int,
    params: list[float],
    fields: Mapping[str, Value],
    loads: Mapping[int, float] | None = None,
) -> int:
    """Return the model that decides the first position of a request."""
    values: list[Value] = []
    for at, node in enumerate(plan.start.nodes):
        load = (loads or {}).get(at)
        values.append(_value(node, values, n_prompt, params, fields) if load is None else load)
    rule = next(r for r in plan.start.rules if r.when is None or values[r.when])
    if isinstance(rule.go, Mix):
        return draw(rule.go, seed, position=0, model=0)
    return rule.go.model


def draw(mix: Mix, seed: int, position: int, model: int) -> int:
    """Return the model that a mixture gives the position to; drawn at `model`, 0 before the first step."""
    u = uniform(seed, position, model, MIX)
    running = 0.0
    for share in mix.weights:
        running += share.weight
        if u < running:
            return share.model
    return mix.weights[-1].model


def field(node: RequestField, fields: Mapping[str, Value]) -> Value:
    """Return what the client sent under a name; the default where it sent nothing of that type."""
    value = fields.get(node.name, node.default)
    if isinstance(value, bool) != isinstance(node.default, bool):
        return node.default
    return value if isinstance(value, str) == isinstance(node.default, str) else node.default


def _value(
    node: Node,
    values: list[Value],
    n_prompt: int,
    params: list[float],
    fields: Mapping[str, Value],
) -> Value:
    match node:
        case Const():
            return node.value
        case ParamRef():
            return params[node.param]
        case RequestField():
            return field(node, fields)
        case Signal():
            return float(n_prompt) if node.name == "prompt_tokens" else 0.0
        case Compare():
            return bool(COMPARE[node.sign](values[node.left], values[node.right]))
        case Arith():
            return arithmetic(node.sign, float(values[node.left]), float(values[node.right]))
        case AllOf():
            return all(values[of] for of in node.of)
        case AnyOf():
            return any(values[of] for of in node.of)
        case Not():
            return not values[node.of]
        case _:
            raise AssertionError(f"{node!r} needs a step")
