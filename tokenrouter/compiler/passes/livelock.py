"""Find cycles of hand-offs in which no token is ever kept.

Needs: reachable states. Gives: every cycle of moves keeps a token. Reports: TR2201.

A `retry` passes the same position on without keeping anything. If retries form a cycle, the same position can go round;
the runtime bounds that by one turn a model, and a policy that relies on it does not say what it means.
"""

from __future__ import annotations

from tokenrouter.compiler.graph import Move, moves
from tokenrouter.compiler.ir import Automaton, Borrow
from tokenrouter.diagnostics import Diagnostic, Label


def livelock(auto: Automaton) -> list[Diagnostic]:
    """Return one error a cycle of moves that keep nothing; the cycle is named rule by rule."""
    import networkx as nx  # noqa: PLC0415

    graph: nx.DiGraph[str] = nx.DiGraph()
    for move in moves(auto):
        if not move.keep and not isinstance(move.rule.go, Borrow):
            known = graph.has_edge(move.source, move.target)
            if not known:
                graph.add_edge(move.source, move.target, move=move)
    cycles = sorted(_from_first(cycle) for cycle in nx.simple_cycles(graph))
    return [
        _livelock(cycle, [graph.edges[step]["move"] for step in _steps(cycle)]) for cycle in cycles
    ]


def _from_first(cycle: list[str]) -> tuple[str, ...]:
    """Return a cycle that begins at its least name, so that the order of discovery does not show."""
    at = cycle.index(min(cycle))
    return tuple(cycle[at:] + cycle[:at])


def _steps(cycle: tuple[str, ...]) -> list[tuple[str, str]]:
    return list(zip(cycle, (*cycle[1:], cycle[0]), strict=True))


def _livelock(cycle: tuple[str, ...], way: list[Move]) -> Diagnostic:
    """TR2201."""
    path = " -> ".join(f"`{name}`" for name in (*cycle, cycle[0]))
    labels = tuple(
        Label(
            move.rule.span, f"`{move.source}` drops its candidate and passes the position on here"
        )
        for move in way[1:]
    )
    return Diagnostic(
        "TR2201",
        "error",
        f"livelock: one position can go round {path} and no token is ever kept",
        way[0].rule.span,
        labels,
        help="let one of these rules `commit then` instead of `retry`",
    )
