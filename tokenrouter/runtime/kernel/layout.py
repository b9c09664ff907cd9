"""What a route kernel is given and what it gives, a row for each request of a step.

Given:
    words    int64 [B, 3 + windows]     seed, position, models tried at this position; how many values each window holds
    numbers  float64 [B, C]             a column for each node that the host knows: state, load, params, vars, request fields
    past     float64 [B, H]             the windows' values before this step, oldest first, n - 1 places a window
    heads    float64 [B, heads]         router heads, in the order of their index
    tables   uint8 [tables, V]          by id: whether a text or class node holds
Made:
    decided  int32 [B, 4]               rule (their number where none fires), keep, target (-1: stop), bits of the untils
    values   float64 [B, N]             nodes that the host reads: `set`, lengths of stays, windows, signals that a trace tells
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tokenrouter.plan.nodes import closure, node_type
from tokenrouter.plan.structs import (
    Borrow,
    ClassIs,
    Compare,
    HeadRef,
    Node,
    ParamRef,
    Plan,
    RequestField,
    Rule,
    Signal,
    TokenIn,
    VarRef,
    Window,
)
from tokenrouter.signals import SIGNALS

SEED, POSITION, TRIED, COUNTS = range(4)  # columns of `words`; windows' counts from the last on
RULE, KEEP, TARGET, UNTILS = range(4)  # columns of `decided`
STOP = -1
MOST_UNTILS = 31
MOST_LARGEST = 256  # k of mass(k), aleatoric(k), epistemic(k)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of one model's kernel."""

    needed: list[int]  # nodes, in dependency order
    numbers: list[int]  # nodes by column of `numbers`
    heads: list[int]  # heads by column of `heads`
    tables: list[int]  # nodes by row of `tables`
    windows: list[int]  # window nodes by slot
    past: list[int]  # first column of `past`, by slot
    values: list[int]  # nodes by column of `values`
    width: int  # columns of `past`


def layout(plan: Plan, model: int) -> Layout:
    """Return what the kernel of a model reads and writes."""
    program = plan.programs[model]
    nodes = program.nodes
    roots = [at for rule in program.rules for at in reads(rule)]
    needed = sorted(closure(nodes, [*roots, *program.untils]))
    # Texts do not travel: the host compares them.
    told = {at for at in needed if is_text(plan, nodes, nodes[at])}
    hidden = {at for at in needed if node_type(nodes[at], plan.params, plan.vars) == "text"}
    needed = [at for at in needed if at not in hidden]
    windows = [at for at, node in enumerate(nodes) if isinstance(node, Window)]
    past, width = [], 0
    for at in windows:
        past.append(width)
        node = nodes[at]
        assert isinstance(node, Window)
        width += node.n - 1
    shown = [
        at for at in needed if isinstance(nodes[at], (Signal, Window, HeadRef)) and at not in told
    ]
    kept = [assign.value for rule in program.rules for assign in rule.sets]
    kept += [rule.go.most for rule in program.rules if isinstance(rule.go, Borrow)]
    kept += [node.of for at in needed if isinstance(node := nodes[at], Window)]
    return Layout(
        needed=needed,
        numbers=[at for at in needed if at in told or is_host(nodes[at])],
        heads=sorted({node.head for at in needed if isinstance(node := nodes[at], HeadRef)}),
        tables=[at for at in needed if isinstance(nodes[at], (TokenIn, ClassIs))],
        windows=windows,
        past=past,
        values=sorted({*shown, *kept}),
        width=width,
    )


def reads(rule: Rule) -> Iterable[int]:
    """Return the nodes that a rule reads."""
    if rule.when is not None:
        yield rule.when
    if isinstance(rule.go, Borrow):
        yield rule.go.most
    yield from (assign.value for assign in rule.sets)


def is_text(plan: Plan, nodes: list[Node], node: Node) -> bool:
    """Return whether a node compares texts."""
    return (
        isinstance(node, Compare) and node_type(nodes[node.left], plan.params, plan.vars) == "text"
    )


def is_host(node: Node) -> bool:
    """Return whether a node's value is the host's to tell."""
    if isinstance(node, Signal):
        return SIGNALS[node.name].needs in ("state", "load")
    return isinstance(node, (ParamRef, VarRef, RequestField))


def why_not(plan: Plan, model: int) -> str | None:
    """Return why a model's program cannot be a kernel; None where it can."""
    program = plan.programs[model]
    if len(program.untils) > MOST_UNTILS:
        return (
            f"more than {MOST_UNTILS} conditions end borrowed stays at `{plan.models[model].name}`"
        )
    for node in program.nodes:
        if not isinstance(node, Signal) or node.name not in ("mass", "aleatoric", "epistemic"):
            continue
        if node.args[0] > MOST_LARGEST and (
            node.name != "mass" or node.args[0] < plan.tokenizer.size
        ):
            return f"{node.name}({node.args[0]}) asks for more than {MOST_LARGEST} logits"
    return None
