"""What must hold of task graphs: ids, labels and edges fit, every step ends, and the graph can do what the program says."""

from __future__ import annotations

from collections.abc import Iterator

from tokenrouter.plan.nodes import reads_hidden
from tokenrouter.plan.structs import Borrow, Extend, Label, Mix, Plan, Send, Subserver, To

# By the kind of a task: the labels by which requests may leave it.
LABELS: dict[str, tuple[Label, ...]] = {
    "admit": ("next",),
    "resume": ("next",),
    "gate": ("next",),
    "extend": ("next",),
    "sample": ("own", "borrowed"),
    "signals": ("next",),
    "route": ("keep", "drop"),
    "count_down": ("next",),
    "commit": ("stay", "leave", "ended"),
    "park": ("next",),
    "send": (),
    "finish": (),
}


def verify(plan: Plan) -> list[str]:
    """Return what is wrong with the task graphs, one line each."""
    problems: list[str] = []
    for index, (model, graph) in enumerate(zip(plan.models, plan.subservers, strict=True)):
        found = list(_structure(graph))
        if not found:
            found += _reach(graph)
            found += _peers(plan, index)
            found += _abilities(plan, index)
        problems += [f"task graph of `{model.name}`: {problem}" for problem in found]
    return problems


def kinds(graph: Subserver) -> dict[str, str]:
    """Return the kind of each task, by id."""
    return {task.id: str(task.__struct_config__.tag) for task in graph.tasks}


def _structure(graph: Subserver) -> Iterator[str]:
    kind = kinds(graph)
    if len(kind) < len(graph.tasks):
        yield "an id stands twice"
        return
    for needed in ("admit", "gate", "extend", "sample", "commit", "finish"):
        if list(kind.values()).count(needed) != 1:
            yield f"there must be one `{needed}`"
    seen: set[tuple[str, str]] = set()
    for edge in graph.edges:
        if edge.source not in kind or edge.target not in kind:
            yield f"edge `{edge.source}` -> `{edge.target}` ends nowhere"
            continue
        if edge.label not in LABELS[kind[edge.source]]:
            yield f"no request leaves `{edge.source}` by `{edge.label}`"
        if (edge.source, edge.label) in seen:
            yield f"requests leave `{edge.source}` by `{edge.label}` to two tasks"
        seen.add((edge.source, edge.label))
    left = {source for source, _ in seen}
    for id_, name in kind.items():
        if LABELS[name] and id_ not in left:
            yield f"`{id_}` leads nowhere"


def _reach(graph: Subserver) -> Iterator[str]:
    kind = kinds(graph)
    after: dict[str, list[str]] = {id_: [] for id_ in kind}
    for edge in graph.edges:
        after[edge.source].append(edge.target)
    reached: set[str] = set()
    stack = [id_ for id_, name in kind.items() if name in ("admit", "resume")]
    while stack:
        id_ = stack.pop()
        if id_ not in reached:
            reached.add(id_)
            stack += after[id_]
    for id_ in kind:
        if id_ not in reached:
            yield f"`{id_}` is never reached"
    between = {("admit", "gate"), ("resume", "gate"), ("gate", "extend"), ("extend", "sample")}
    for source, target in sorted(between):
        for edge in graph.edges:
            if kind[edge.source] == source and kind[edge.target] != target:
                yield f"`{edge.source}` must lead to `{target}`"
    for edge in graph.edges:
        # A request that finishes without having ended would be waited for for ever.
        if kind[edge.target] == "finish" and edge.label != "ended":
            yield f"`{edge.source}` must not lead to `{edge.target}` by `{edge.label}`"
        if edge.label == "stay" and kind[edge.target] != "gate":
            yield f"`{edge.source}` must lead to the gate by `stay`"


def _peers(plan: Plan, model: int) -> Iterator[str]:
    peers = handoffs(plan, model)
    sends = [task for task in plan.subservers[model].tasks if isinstance(task, Send)]
    for send in sends:
        if send.peers != sorted(set(send.peers)):
            yield f"the peers of `{send.id}` are not ascending"
    lacking = peers - {peer for send in sends for peer in send.peers}
    if lacking:
        names = ", ".join(f"`{plan.models[peer].name}`" for peer in sorted(lacking))
        yield f"no `send` to {names}, where the program hands requests to"
    if any(not 0 <= peer < len(plan.models) for send in sends for peer in send.peers):
        yield "a `send` names no model"


def handoffs(plan: Plan, model: int) -> set[int]:
    """Return the models that one may hand a request to, the homes of borrowed stays included."""
    peers: set[int] = set()
    for home, program in enumerate(plan.programs):
        for rule in program.rules:
            match rule.go:
                case Borrow(model=lender) if lender == model:
                    peers.add(home)
                case To(model=target) | Borrow(model=target) if home == model:
                    peers.add(target)
                case Mix(weights=weights) if home == model:
                    peers |= {share.model for share in weights}
                case _:
                    pass
    return peers - {model}


def _abilities(plan: Plan, model: int) -> Iterator[str]:
    """The tasks that the program calls for are there."""
    graph, program = plan.subservers[model], plan.programs[model]
    labels = {edge.label for edge in graph.edges}
    borrowed = any(
        isinstance(rule.go, Borrow) and rule.go.model == model
        for other in plan.programs
        for rule in other.rules
    )
    needed: set[Label] = {"ended"}
    if program.rules:
        needed |= {"own", "keep", "stay"}
    if any(not rule.keep for rule in program.rules):
        needed.add("drop")
    if borrowed:
        needed |= {"borrowed", "leave", "stay"}
    if any(rule.keep and not _stays(rule.go, model) for rule in program.rules):
        needed.add("leave")
    for label in sorted(needed - labels):
        yield f"no edge `{label}`, which the program calls for"
    if reads_hidden(plan, model) and not any(
        isinstance(task, Extend) and task.hidden for task in graph.tasks
    ):
        yield "a head reads the hidden state, and `extend` does not return it"


def _stays(go: object, model: int) -> bool:
    """Return whether a kept candidate never leaves the model."""
    if isinstance(go, Mix):
        return all(share.model == model for share in go.weights)
    return not isinstance(go, (To, Borrow))
