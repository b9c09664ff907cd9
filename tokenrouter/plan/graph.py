"""The graphs of a plan as nodes and edges, ready to be drawn: who hands requests to whom, and what a step does."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tokenrouter.plan.structs import Borrow, Mix, Plan, Stop, To
from tokenrouter.plan.text import action_text, node_text


@dataclass(frozen=True, slots=True)
class Node:
    """A box; `round` ones are where requests come in or end."""

    id: str
    text: str
    round: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge; a dashed one keeps no token, or is the return from a borrowed stay."""

    source: str
    target: str
    text: str
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class Graph:
    """A titled graph. Ids are words."""

    title: str
    nodes: tuple[Node, ...]
    arrows: tuple[Arrow, ...]


def transitions(plan: Plan) -> Graph:
    """Return the transition graph: one node a model, one arrow a move, labelled by its rule."""
    nodes = [Node("start", "start", round=True)]
    for at, model in enumerate(plan.models):
        share = plan.estimates.by_model[at].share
        nodes.append(Node(f"m{at}", f"{model.name} ({share:.0%} expected)"))
    arrows = [arrow for rule in plan.start.rules for arrow in _start(plan, rule.when, rule.go)]
    ends = False
    for at, program in enumerate(plan.programs):
        for index, rule in enumerate(program.rules):
            label = _label(plan, at, index)
            match rule.go:
                case Stop():
                    ends = True
                    arrows.append(Arrow(f"m{at}", "end", label))
                case To():
                    arrows.append(Arrow(f"m{at}", f"m{rule.go.model}", label, not rule.keep))
                case Borrow():
                    arrows.append(Arrow(f"m{at}", f"m{rule.go.model}", label, not rule.keep))
                    arrows.append(Arrow(f"m{rule.go.model}", f"m{at}", "back", True))
                case Mix():
                    drawn = f"rule {index}: {_guard(plan, at, index)} -> commit, drawn with"
                    arrows += [
                        Arrow(f"m{at}", f"m{share.model}", f"{drawn} {share.weight:.3g}")
                        for share in rule.go.weights
                    ]
                case _:
                    arrows.append(Arrow(f"m{at}", f"m{at}", label))
    if ends:
        nodes.append(Node("end", "end", round=True))
    return Graph(f"policy {plan.policy}", tuple(nodes), tuple(dict.fromkeys(arrows)))


def _start(plan: Plan, when: int | None, go: To | Mix) -> list[Arrow]:
    guard = "" if when is None else node_text(plan, plan.start.nodes, when)
    if isinstance(go, To):
        return [Arrow("start", f"m{go.model}", guard)]
    return [
        Arrow("start", f"m{share.model}", f"{guard} drawn with {share.weight:.3g}".lstrip())
        for share in go.weights
    ]


def _label(plan: Plan, at: int, index: int) -> str:
    """Return a rule's number, guard and action, as short as they can be."""
    rule = plan.programs[at].rules[index]
    action = action_text(plan, at, rule.keep, rule.go)
    return f"rule {index}: {_guard(plan, at, index)} -> {action}"


def _guard(plan: Plan, at: int, index: int) -> str:
    program = plan.programs[at]
    when = program.rules[index].when
    return "otherwise" if when is None else node_text(plan, program.nodes, when)


def tasks(plan: Plan, model: int) -> Graph:
    """Return the task graph of one model."""
    graph = plan.subservers[model]
    kinds = {task.id: str(task.__struct_config__.tag) for task in graph.tasks}
    nodes = tuple(
        Node(
            id_,
            id_ if id_ == kind else f"{id_} ({kind})",
            kind in ("admit", "resume", "finish", "send"),
        )
        for id_, kind in kinds.items()
    )
    arrows = tuple(
        Arrow(edge.source, edge.target, "" if edge.label == "next" else edge.label)
        for edge in graph.edges
    )
    return Graph(f"tasks of {plan.models[model].name}", nodes, arrows)


def mermaid(graph: Graph) -> str:
    """Return a graph in Mermaid's flowchart syntax."""
    lines = ["---", f"title: {graph.title}", "---", "flowchart LR"]
    for node in graph.nodes:
        left, right = ("([", "])") if node.round else ("[", "]")
        lines.append(f"  {_id(node.id)}{left}{_quoted(node.text)}{right}")
    for arrow in graph.arrows:
        line = "-.->" if arrow.dashed else "-->"
        label = f"|{_quoted(arrow.text)}|" if arrow.text else ""
        lines.append(f"  {_id(arrow.source)} {line}{label} {_id(arrow.target)}")
    return "\n".join(lines) + "\n"


def _id(id_: str) -> str:
    return f"n_{id_}"  # `end` and others are words of Mermaid's own


def _quoted(text: str) -> str:
    """Return text as Mermaid takes it: in quotes, what it or Markdown would read as markup by number."""
    escaped = re.sub(
        r"[\"#<&`|\n\\*~$]|(?<![^\W_])_|_(?![^\W_])", lambda found: f"#{ord(found[0])};", text
    )
    return f'"{escaped}"'
