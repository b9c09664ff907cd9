"""A plan's task graph, made ready to be walked: successors by label, and the order of one step.

A step begins at `extend` and ends where every request of the batch rests: at the gate again, sent away, or finished.
Between those the graph must not loop, so that every task runs once a step, with all its requests together.
"""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TypeVar

from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.structs import Extend, Gate, Label, Subserver, Task

T = TypeVar("T")


class GraphError(TokenRouterError):
    """A task graph cannot be walked; the message says why."""


class TaskGraph:
    """Tasks by id, their successors, and the order in which a step runs them."""

    def __init__(self, graph: Subserver) -> None:
        self.tasks: dict[str, Task] = {task.id: task for task in graph.tasks}
        self._next: dict[tuple[str, Label], str] = {
            (edge.source, edge.label): edge.target for edge in graph.edges
        }
        self.gate = self.only(Gate).id
        self.extend = self.only(Extend)
        self.order = self._step_order()

    def only(self, kind: type[T]) -> T:
        """Return the one task of a kind."""
        found = [task for task in self.tasks.values() if isinstance(task, kind)]
        if len(found) != 1:
            raise GraphError(f"the task graph has {len(found)} tasks `{kind.__name__.lower()}`")
        return found[0]

    def follow(self, task: str, label: Label) -> str:
        """Return where requests go that leave a task by a label."""
        target = self._next.get((task, label))
        if target is None:
            raise GraphError(f"no edge leaves task `{task}` by `{label}`, and a request does")
        return target

    def _step_order(self) -> list[str]:
        """Return the tasks of a step, each after all that lead to it."""
        before: dict[str, list[str]] = {}
        reached = [self.extend.id]
        for source in reached:
            for (at, _), target in self._next.items():
                if at == source and target != self.gate:
                    before.setdefault(target, []).append(source)
                    if target not in reached:
                        reached.append(target)
        before.setdefault(self.extend.id, [])
        try:
            return list(TopologicalSorter(before).static_order())
        except CycleError as error:
            loop = " -> ".join(error.args[1])
            raise GraphError(f"the task graph loops within a step: {loop}") from None
