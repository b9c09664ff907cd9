"""The transition graph of a policy as the passes leave it: what `trc graph` draws of a policy, without a plan or a model file.

Needs: an automaton. Gives: the same graph as `plan.graph.transitions` draws of the plan, but that no share is expected of a
model yet, and that rules which `enforce` wrote say so.
"""

from __future__ import annotations

from tokenrouter.compiler.ir import (
    Automaton,
    Borrow,
    Mix,
    Rule,
    State,
    Stop,
    To,
    action,
)
from tokenrouter.plan.graph import Arrow, Graph, Node

WRITTEN_BY = {"policy": "", "enforced": " (enforced)", "fallback": " (fallback)"}


def transitions(auto: Automaton) -> Graph:
    """Return one node a model and one arrow a move, labelled by its rule."""
    arrows = [arrow for rule in auto.start for arrow in _start(rule.when, rule.go)]
    for state, index, rule in auto.rules():
        arrows += _moves(state, index, rule)
    nodes = [Node("start", "start", round=True)]
    nodes += [Node(_id(model.name), model.name) for model in auto.models]
    if any(arrow.target == "end" for arrow in arrows):
        nodes.append(Node("end", "end", round=True))
    return Graph(f"policy {auto.policy}", tuple(nodes), tuple(dict.fromkeys(arrows)))


def _id(model: str) -> str:
    return f"m_{model}"  # a model may be called `end`


def _start(when: object, go: To | Mix) -> list[Arrow]:
    guard = "" if when is None else str(when)
    if isinstance(go, To):
        return [Arrow("start", _id(go.model), guard)]
    return [
        Arrow("start", _id(model), f"{guard} drawn with {weight:.3g}".lstrip())
        for model, weight in go.weights
    ]


def _moves(state: State, index: int, rule: Rule) -> list[Arrow]:
    here = _id(state.model)
    guard = "otherwise" if rule.when is None else str(rule.when)
    text = f"rule {index}: {guard} -> "
    label = text + action(rule.keep, rule.go) + WRITTEN_BY[rule.source]
    match rule.go:
        case Stop():
            return [Arrow(here, "end", label)]
        case To(model=model):
            return [Arrow(here, _id(model), label, not rule.keep)]
        case Borrow(model=model):
            return [
                Arrow(here, _id(model), label, not rule.keep),
                Arrow(_id(model), here, "back", True),
            ]
        case Mix(weights=weights):
            drawn = f"{text}commit, drawn with"
            return [Arrow(here, _id(model), f"{drawn} {weight:.3g}") for model, weight in weights]
        case _:
            return [Arrow(here, here, label)]
