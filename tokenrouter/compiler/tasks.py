"""IR -> task graphs: one a model, with the tasks that its part in the policy calls for and no others.

A model with rules decides by `route`, after `signals` where a rule reads anything. A model that is borrowed from counts
down; only where a stay ends `until` something is its step looked at, by a `signals` task of its own called `watch`. The
hidden state is returned only where a head of the model's program reads it. Nothing is sent where no rule sends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tokenrouter.compiler.ir import Automaton, Borrow, State, targets
from tokenrouter.plan import structs as s

Prefill = Literal["eager", "lazy"]


@dataclass(eq=False, slots=True)
class _Graph:
    """A task graph that grows."""

    tasks: list[s.Task] = field(default_factory=list)
    edges: list[s.Edge] = field(default_factory=list)

    def edge(self, source: str, label: s.Label, target: str) -> None:
        self.edges.append(s.Edge(source=source, label=label, target=target))


def subserver(
    auto: Automaton, state: State, program: s.Program, heads: list[s.Head], prefill: Prefill
) -> s.Subserver:
    """Return the task graph of one model."""
    hidden = any(
        isinstance(node, s.HeadRef) and "hidden" in heads[node.head].reads for node in program.nodes
    )
    graph = _Graph()
    graph.tasks += [s.Admit(id="admit", prefill=prefill), s.Resume(id="resume"), s.Gate(id="gate")]
    graph.tasks += [s.Extend(id="extend", hidden=hidden), s.Sample(id="sample")]
    graph.edge("admit", "next", "gate")
    graph.edge("resume", "next", "gate")
    graph.edge("gate", "next", "extend")
    graph.edge("extend", "next", "sample")
    if state.rules:
        _own(program, graph)
    if auto.borrowed(state.model):
        _borrowed(program, graph)
    _ends(auto, state, graph)
    return s.Subserver(tasks=graph.tasks, edges=graph.edges)


def _own(program: s.Program, graph: _Graph) -> None:
    """The rules of this model are asked."""
    if any(_reads(rule) for rule in program.rules):
        graph.tasks.append(s.Signals(id="signals"))
        graph.edge("sample", "own", "signals")
        graph.edge("signals", "next", "route")
    else:
        graph.edge("sample", "own", "route")
    graph.tasks.append(s.Route(id="route"))
    graph.edge("route", "keep", "commit")
    if any(not rule.keep for rule in program.rules):
        graph.edge("route", "drop", "park")


def _reads(rule: s.Rule) -> bool:
    """Return whether a rule needs the value of some node."""
    return rule.when is not None or bool(rule.sets) or isinstance(rule.go, s.Borrow)


def _borrowed(program: s.Program, graph: _Graph) -> None:
    """Others borrow from this model: its rules are not asked, its tokens are counted."""
    if program.untils:
        graph.tasks.append(s.Signals(id="watch"))
        graph.edge("sample", "borrowed", "watch")
        graph.edge("watch", "next", "count_down")
    else:
        graph.edge("sample", "borrowed", "count_down")
    graph.tasks.append(s.CountDown(id="count_down"))
    graph.edge("count_down", "next", "commit")


def _ends(auto: Automaton, state: State, graph: _Graph) -> None:
    """What follows a decision: stay, leave, or the end."""
    graph.tasks.append(s.Commit(id="commit"))
    graph.edge("commit", "stay", "gate")
    if _leaves(auto, state):
        graph.edge("commit", "leave", "park")
    graph.edge("commit", "ended", "finish")
    peers = _peers(auto, state)
    if peers:
        graph.tasks += [s.Park(id="park"), s.Send(id="send", peers=peers)]
        graph.edge("park", "next", "send")
    graph.tasks.append(s.Finish(id="finish"))


def _peers(auto: Automaton, state: State) -> list[int]:
    """Return the models that requests go to from here, turning home included."""
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    found = {place[name] for rule in state.rules for name in targets(rule.go)}
    for other, _, rule in auto.rules():
        if isinstance(rule.go, Borrow) and rule.go.model == state.model:
            found.add(place[other.model])
    return sorted(found - {place[state.model]})


def _leaves(auto: Automaton, state: State) -> bool:
    """Return whether a kept candidate may send its request away."""
    kept = (rule for rule in state.rules if rule.keep)
    return auto.borrowed(state.model) or any(
        name != state.model for rule in kept for name in targets(rule.go)
    )
