"""Decide the bounds that a policy guarantees, on the transition graph.

For share(M) <= x each move weighs x * kept - kept by M; for count(M) <= n it weighs minus what M keeps. Without a negative
cycle that the start reaches, the least weight of any way from the start is -c, and share(M) <= x is proved as
count(M) <= x * kept + c, count(M) <= n as c <= n. A borrowed stay weighs its worst length; one without a bound cannot
be proved; a mixture may draw whom it likes.

A negative cycle refutes a bound only where its rules ask nothing of a request's past and can each fire on some step.
Guards that ask more may well keep the bound: then the answer is «not proved».
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import floor, inf, isinf
from typing import TYPE_CHECKING, Literal

from tokenrouter.compiler.atoms import MOST, disjuncts
from tokenrouter.compiler.expr import (
    Aggregate,
    Expr,
    FieldOf,
    HeadOf,
    SignalOf,
    VarOf,
    walk,
)
from tokenrouter.compiler.feasible import Region
from tokenrouter.compiler.interval import interval
from tokenrouter.compiler.ir import Automaton, Borrow, ClaimDecl, Rule, State, Stop, targets
from tokenrouter.plan.text import number

if TYPE_CHECKING:
    import networkx as nx

END = ""  # the node where requests end; no model is called so


@dataclass(frozen=True, slots=True)
class Way:
    """One move with its worst weight for a claim."""

    source: str
    target: str
    rule: Rule
    weight: float
    lowest: float  # the least weight on the way, its end included
    certain: bool  # it asks nothing of the past, some step takes it, and its weight is exact


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known of a claim; `cycle` is what refutes it, or keeps it from being proved."""

    status: Literal["proved", "enforced", "refuted", "not proved"]
    evidence: str
    cycle: tuple[Way, ...] = ()


def decide(auto: Automaton, claim: ClaimDecl) -> Verdict:
    """Return what is known of a claim."""
    if claim.model not in {decl.name for decl in auto.models}:
        return Verdict("proved", f"`{claim.model}` is never reached")
    if claim.kind == "enforce":
        return Verdict("enforced", f"every hand-off to `{claim.model}` asks for it")
    certain = _cycle(auto, [way for way in _ways(_at_values(auto), claim) if way.certain])
    if certain:
        return Verdict("refuted", _round_trip(certain), certain)
    ways = list(_ways(auto, claim))
    cycle = _cycle(auto, ways)
    if cycle:
        return Verdict("not proved", _round_trip(cycle), cycle)
    constant = max(0.0, -_least(auto, ways))
    if claim.measure == "share":
        text = f"count({claim.model}) <= {number(claim.bound)} * kept + {constant:.4g}"
        return Verdict("proved", text)
    if constant <= claim.bound:
        return Verdict("proved", f"at most {constant:.4g} on every way")
    return Verdict("not proved", f"some way may keep {constant:.4g} tokens of `{claim.model}`")


def _round_trip(cycle: tuple[Way, ...]) -> str:
    return "can repeat for ever: " + ", then ".join(
        f"at {way.source} `{way.rule.text}`" for way in cycle
    )


def _ways(auto: Automaton, claim: ClaimDecl) -> Iterator[Way]:
    for state in auto.states:
        for index, rule in enumerate(state.rules):
            certain = _certain(auto, state, index)
            weight = _weight(claim, state.model, 1.0) if rule.keep else 0.0
            if isinstance(rule.go, Borrow):
                whole = weight + _stay_weight(auto, claim, rule.go)
                lowest = min(weight, whole)
                yield Way(state.model, state.model, rule, whole, lowest, certain)
                continue
            ends = (END,) if isinstance(rule.go, Stop) else targets(rule.go) or (state.model,)
            for target in ends:
                yield Way(state.model, target, rule, weight, weight, certain)


def _weight(claim: ClaimDecl, writer: str, n: float) -> float:
    """Return the weight of n tokens that one model keeps."""
    own = n if writer == claim.model else 0.0
    return claim.bound * n - own if claim.measure == "share" else -own


def _stay_weight(auto: Automaton, claim: ClaimDecl, go: Borrow) -> float:
    """Return the worst weight of a borrowed stay."""
    length = interval(auto, go.most)
    if go.model == claim.model:
        most = inf if isinf(length.high) else floor(length.high)
        return min(0.0, _weight(claim, go.model, max(1.0, most))) if most < inf else -inf
    least = 1.0 if go.until is not None or isinf(length.low) else max(1.0, floor(length.low))
    return max(0.0, _weight(claim, go.model, least))


def _certain(auto: Automaton, state: State, index: int) -> bool:
    """Return whether a rule asks nothing of a request's past and some step takes it."""
    regions = [Region(auto)]
    for rule in state.rules[: index + 1]:
        last = rule is state.rules[index]
        if rule.when is None:
            break
        if any(_remembers(part) for part in walk(rule.when)):
            return False
        ways = disjuncts(rule.when, last)
        if ways is None or len(ways) * len(regions) > MOST:
            return False
        parts = [region.assume(way) for region in regions for way in ways]
        regions = [part for part in parts if isinstance(part, Region)]
    go = state.rules[index].go
    if isinstance(go, Borrow) and (go.until or any(_remembers(part) for part in walk(go.most))):
        return False
    return bool(regions)


def _remembers(part: Expr) -> bool:
    """Return whether a value depends on more than the step that it is read at."""
    match part:
        case Aggregate() | VarOf() | FieldOf() | HeadOf():
            return True  # a head is opaque: whether it can say both is not known
        case SignalOf():
            return part.name in (
                "position",
                "since_switch",
                "switches",
                "prompt_tokens",
                "count",
                "share",
                "queue",
                "elapsed",
            )
        case _:
            return False


def _at_values(auto: Automaton) -> Automaton:
    """Return the policy with each param at its value."""
    fixed = tuple(
        decl
        if isinstance(decl.value, bool)
        else replace(decl, low=float(decl.value), high=float(decl.value))
        for decl in auto.params
    )
    return replace(auto, params=fixed)


def _graph(auto: Automaton, ways: list[Way]) -> nx.DiGraph[str]:
    """Return the graph of the worst way between each two models that the start reaches."""
    import networkx as nx  # noqa: PLC0415

    graph: nx.DiGraph[str] = nx.DiGraph()
    for way in ways:
        known = graph.get_edge_data(way.source, way.target)
        if known is None or way.weight < known["weight"]:
            graph.add_edge(way.source, way.target, weight=way.weight, way=way)
    starts = {name for rule in auto.start for name in targets(rule.go)}
    graph.add_nodes_from(starts)
    live = set(starts)
    for name in sorted(starts):
        live |= nx.descendants(graph, name)
    return graph.subgraph(live).copy()


def _cycle(auto: Automaton, ways: list[Way]) -> tuple[Way, ...]:
    """Return a negative cycle that the start reaches, or nothing."""
    import networkx as nx  # noqa: PLC0415

    graph = _graph(auto, ways)
    for name in sorted(graph):
        loop = graph.get_edge_data(name, name)
        if loop is not None and loop["weight"] < -1e-12:
            return (loop["way"],)
    for name in sorted(graph):
        try:
            nodes = nx.find_negative_cycle(graph, name)
        except nx.NetworkXError:
            continue
        steps = list(pairwise(nodes))
        if sum(graph.edges[step]["weight"] for step in steps) < -1e-12:
            return tuple(graph.edges[step]["way"] for step in steps)
    return ()


def _least(auto: Automaton, ways: list[Way]) -> float:
    """Return the least weight of any way from the start, where no cycle is negative."""
    import networkx as nx  # noqa: PLC0415

    graph = _graph(auto, ways)
    starts = {name for rule in auto.start for name in targets(rule.go)}
    least = 0.0
    for name in sorted(starts):
        lengths = nx.single_source_bellman_ford_path_length(graph, name)
        lowest = (lengths[way.source] + way.lowest for way in ways if way.source in lengths)
        least = min(least, *lowest)
    return least
