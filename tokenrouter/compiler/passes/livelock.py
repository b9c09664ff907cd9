"""Find cycles of hand-offs in which no token is ever kept.

Needs: reachable states. Gives: every cycle of moves keeps a token. Reports: TR2201.

A `retry` passes the same position on without keeping anything. If retries form a cycle, the same position can go round;
the runtime bounds that by one turn a model, and a policy that relies on it does not say what it means. What a request's
past says stays the same while its position goes round, so rules that ask contradictory things of it form no cycle.
"""

from __future__ import annotations

from itertools import islice

from tokenrouter.compiler.expr import (
    Comparison,
    Every,
    Expr,
    FieldOf,
    ParamOf,
    SignalOf,
    VarOf,
    walk,
)
from tokenrouter.compiler.feasible import Region, whole
from tokenrouter.compiler.graph import Move, moves
from tokenrouter.compiler.ir import Automaton, Borrow
from tokenrouter.diagnostics import Diagnostic, Label

# Equal for every model that has its turn at one position.
STEADY = {"position", "prompt_tokens", "count", "share"}
MOST_CYCLES = 32  # of them are told; a policy with more has one mistake many times


def livelock(auto: Automaton) -> list[Diagnostic]:
    """Return one error a cycle of moves that keep nothing; the cycle is named rule by rule."""
    ways: dict[tuple[str, str], list[Move]] = {}
    for move in moves(auto):
        if not move.keep and not isinstance(move.rule.go, Borrow):
            ways.setdefault((move.source, move.target), []).append(move)
    if {source for source, _ in ways}.isdisjoint(target for _, target in ways):
        return []  # as in most policies, which then need not wait for networkx
    import networkx as nx  # noqa: PLC0415

    graph: nx.DiGraph[str] = nx.DiGraph(list(ways))
    found: list[Diagnostic] = []
    everything = whole(auto)
    cycles = sorted(_from_first(cycle) for cycle in islice(nx.simple_cycles(graph), 1000))
    for cycle in cycles[:MOST_CYCLES]:
        steps = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        way = _possible([ways[step] for step in steps], [everything])
        if way is not None:
            found.append(_livelock(cycle, way))
    return found


def _from_first(cycle: list[str]) -> tuple[str, ...]:
    """Return a cycle that begins at its least name, so that the order of discovery does not show."""
    at = cycle.index(min(cycle))
    return tuple(cycle[at:] + cycle[:at])


def _possible(choices: list[list[Move]], regions: list[Region]) -> list[Move] | None:
    """Return one rule a step such that nothing they ask of the past is contradictory; None where there is none."""
    if not choices:
        return []
    for move in choices[0]:
        asked = regions[0].space.ways(_steady(move.rule.when)) or [()]
        left = [part for region in regions for way in asked if (part := region.part(way))]
        rest = _possible(choices[1:], left) if left else None
        if rest is not None:
            return [move, *rest]
    return None


def _steady(guard: Expr | None) -> Expr:
    """Return the part of a guard that asks about the past."""
    parts = guard.of if isinstance(guard, Every) else () if guard is None else (guard,)
    return Every(tuple(p for p in parts if isinstance(p, Comparison) and _is_steady(p)))


def _is_steady(part: Expr) -> bool:
    leaves = [p for p in walk(part) if isinstance(p, (SignalOf, VarOf, FieldOf, ParamOf))]
    others = [
        p for p in walk(part) if type(p).__name__ in ("HeadOf", "Aggregate", "TokenIs", "ClassOf")
    ]
    return not others and all(not isinstance(p, SignalOf) or p.name in STEADY for p in leaves)


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
