"""Find cycles of hand-offs in which no token is ever kept.

Needs: reachable states. Gives: every cycle of moves keeps a token. Reports: TR2201.

A `retry` passes the same position on without keeping anything. If retries form a cycle, the same position can go round;
the runtime bounds that by one turn a model, and a policy that relies on it does not say what it means. What a request's
past says stays the same while its position goes round, so rules that ask contradictory things of it form no cycle. What
changes on the way is carried along (`turns`): vars by their `set`s, `switches` by one a hand-off, `since_switch` to 0, `elapsed`
only upwards; a var that nothing sets keeps its first value. Rules above one that fires do not hold, nor what they join by `or`,
which counts where it asks of nothing but the past. A cycle must close a second time, and ask for no bound that what grows from round to round comes to.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from math import prod

from tokenrouter.compiler.expr import Expr, Lit, Some, VarOf
from tokenrouter.compiler.feasible import Region, whole
from tokenrouter.compiler.fold import fold_one
from tokenrouter.compiler.graph import Move, moves
from tokenrouter.compiler.ir import Automaton, Borrow, map_exprs
from tokenrouter.compiler.liveness import passed_over
from tokenrouter.compiler.space import Bound, Space, Way
from tokenrouter.compiler.turns import Past, is_steady
from tokenrouter.diagnostics import Diagnostic, Label

MOST_CYCLES = 32  # of them are told; a policy with more has one mistake many times
MOST_LOOKED_AT = 1000
MOST_WAYS = 16  # round a cycle, beyond which only rounds that are all alike are looked for
MOST_ROUNDS = 256  # that close once are looked at
MOST_ABOVE = 16  # rules above one that fires, of those that ask of nothing but the past


def livelock(auto: Automaton) -> list[Diagnostic]:
    """Return one error a cycle of moves that keep nothing; the cycle is named rule by rule."""
    auto = _never_set(auto)
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
    cycles = sorted(_from_first(cycle) for cycle in islice(nx.simple_cycles(graph), MOST_LOOKED_AT))
    for cycle in cycles[:MOST_CYCLES]:
        steps = zip(cycle, (*cycle[1:], cycle[0]), strict=True)
        way = _endless([ways[step] for step in steps], everything)
        if way is not None:
            found.append(_livelock(cycle, way))
    return found


def _from_first(cycle: list[str]) -> tuple[str, ...]:
    """Return a cycle that begins at its least name, so that the order of discovery does not show."""
    at = cycle.index(min(cycle))
    return tuple(cycle[at:] + cycle[:at])


def _endless(choices: list[list[Move]], everything: Region) -> list[Move] | None:
    """Return one rule a step by which a position goes round and round; None where there is none."""
    way = _closing(choices, everything)
    if way is None and 1 < prod(map(len, choices)) <= MOST_WAYS:
        way = _closing(choices * 2, everything)  # rounds that take turns
    return None if way is None else way[: len(choices)]


def _closing(choices: list[list[Move]], everything: Region) -> list[Move] | None:
    """Return one rule a step of a round that can be gone twice, and by all that is known again and again."""
    for way, left, past in islice(_rounds(choices, [everything], Past()), MOST_ROUNDS):
        if not past.changed:
            return way
        again = [[move] for move in way]
        if next(_rounds(again, left, past.once_more()), None) is not None:
            return way
    return None


def _rounds(
    choices: list[list[Move]], regions: list[Region], past: Past
) -> Iterator[tuple[list[Move], list[Region], Past]]:
    """Yield one rule a step such that nothing they ask of the past is contradictory, what is left, and the past then."""
    if not choices:
        yield [], regions, past
        return
    for move in choices[0]:
        space = regions[0].space
        asked, then = past.asks(move.rule.when, _above(space.auto, move))
        ways = space.ways(asked)
        if ways is None:
            asked, then = past.asks(move.rule.when)
            ways = space.ways(asked)
        ways = [()] if ways is None else [way for way in ways if not _outgrown(past, space, way)]
        left = [part for region in regions for way in ways if (part := region.part(way))]
        if left:
            for rest, end, last in _rounds(choices[1:], left, then.after(move.rule)):
                yield [move, *rest], end, last


def _above(auto: Automaton, move: Move) -> tuple[Expr, ...]:
    """Return the guards that cannot have held where a rule fires, of those that ask of nothing but the past."""
    rules = islice(auto.state(move.source).rules, move.number)
    guards = (rule.when for rule in rules if rule.when and not passed_over(auto, rule))
    parts = (part for when in guards for part in (when.of if isinstance(when, Some) else (when,)))
    return tuple(islice(filter(is_steady, parts), MOST_ABOVE))


def _never_set(auto: Automaton) -> Automaton:
    """Return the policy with each var that no rule sets at the value that it keeps."""
    written = {item.var for _, _, rule in auto.rules() for item in rule.sets}
    values = {decl.name: decl for decl in auto.vars if decl.name not in written}

    def change(part: Expr) -> Expr:
        if isinstance(part, VarOf) and part.name in values:
            return Lit(values[part.name].value, part.unit)
        return fold_one(part)

    return map_exprs(auto, change) if values else auto


def _outgrown(past: Past, space: Space, way: Way) -> bool:
    """Return whether a way keeps below a bound what grows from round to round."""
    for atom in way:
        if isinstance(atom, Bound):
            x, y = (past.growth(space.terms[term]) for term in (atom.x, atom.y))
            if x > y:
                return True
    return False


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
