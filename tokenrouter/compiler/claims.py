"""Decide the bounds that a policy guarantees, on the transition graph.

For share(M) <= x each move weighs x * kept - kept by M; for count(M) <= n it weighs minus what M keeps. Without a negative
cycle that the start reaches, the least weight of any way from the start is -c, and share(M) <= x is proved as
count(M) <= x * kept + c, count(M) <= n as c <= n. A borrowed stay weighs its worst length; one without a bound cannot
be proved; a mixture may draw whom it likes; a `retry` to a model that may have had its turn at the position may be refused,
and then keeps the candidate.

A negative cycle refutes a bound only where its rules ask nothing of a request's past and each fires on a step that was
found (`compiler.witness`), and where stays with `until` may last as long as it takes. Guards that ask more may well keep the bound, and what they ask is
named: then the answer is «not proved».
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf, isinf
from typing import Literal

from tokenrouter.compiler.expr import (
    Aggregate,
    Expr,
    FieldOf,
    HeadOf,
    Lit,
    ParamOf,
    SignalOf,
    VarOf,
    walk,
)
from tokenrouter.compiler.feasible import whole
from tokenrouter.compiler.fold import fold_one
from tokenrouter.compiler.graph import refusals
from tokenrouter.compiler.interval import interval
from tokenrouter.compiler.ir import (
    Automaton,
    Borrow,
    ClaimDecl,
    Rule,
    State,
    Stop,
    To,
    map_exprs,
    targets,
)
from tokenrouter.compiler.liveness import at_values, narrow, passed_over, some
from tokenrouter.compiler.witness import witnessed
from tokenrouter.plan.literal import number

Weight = Fraction | float  # a float only where it is infinite
END = ""  # the node where requests end; no model is called so


@dataclass(frozen=True, slots=True)
class Way:
    """One move with its worst weight for a claim."""

    source: str
    target: str
    rule: Rule
    weight: Weight
    lowest: Weight  # the least weight on the way, its end included
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
    if any(_keeps(other, claim) for other in auto.claims):
        return Verdict("enforced", f"every hand-off to `{claim.model}` asks for a bound as tight")
    certain = _counterexample(_at_values(auto), claim)
    if certain:
        return Verdict("refuted", _round_trip(certain), certain)
    ways = list(_ways(auto, claim))
    cycle = _cycle(auto, ways)
    if cycle:
        return Verdict("not proved", _perhaps(auto, cycle), cycle)
    constant = float(max(0, -_least(auto, ways)))
    if claim.measure == "share":
        text = f"count({claim.model}) <= {number(claim.bound)} * kept + {constant:.4g}"
        return Verdict("proved", text)
    if constant <= claim.bound:
        return Verdict("proved", f"at most {constant:.4g} on every way")
    return Verdict("not proved", f"some way may keep {constant:.4g} tokens of `{claim.model}`")


def _counterexample(auto: Automaton, claim: ClaimDecl) -> tuple[Way, ...]:
    """Return a negative cycle of rules for each of which a step was found that takes it."""
    ways = [way for way in _ways(auto, claim) if way.certain]
    while cycle := _cycle(auto, ways):
        unseen = [way for way in cycle if not _taken(auto, claim, way)]
        if not unseen:
            return cycle
        ways = [way for way in ways if way not in unseen]
    return ()


def _taken(auto: Automaton, claim: ClaimDecl, way: Way) -> bool:
    """Return whether a step was found that takes a rule, and one on which its stay weighs the worst."""
    above: list[Expr] = []
    for rule in auto.state(way.source).rules:
        if rule is way.rule:
            break
        if rule.when is not None:
            above.append(rule.when)
    if not witnessed(auto, [way.rule.when] if way.rule.when is not None else [], above):
        return False
    until = way.rule.go.until if isinstance(way.rule.go, Borrow) else None
    if until is None:
        return True
    may_end, may_last = _says(auto, until)
    if claim.model in targets(way.rule.go):
        return not may_last or witnessed(auto, [], [until])
    return not may_end or witnessed(auto, [until])


def _at_values(auto: Automaton) -> Automaton:
    """Return the policy with each param at its value, those that are true or false too."""
    values = {decl.name: decl.value for decl in auto.params if isinstance(decl.value, bool)}

    def change(part: Expr) -> Expr:
        if isinstance(part, ParamOf) and part.name in values:
            return Lit(values[part.name], "bool")
        return fold_one(part)

    return at_values(map_exprs(auto, change) if values else auto)


def _keeps(enforced: ClaimDecl, claim: ClaimDecl) -> bool:
    """Return whether a bound that is enforced is one that is claimed, or below it."""
    same = (enforced.measure, enforced.model) == (claim.measure, claim.model)
    return enforced.kind == "enforce" and same and enforced.bound <= claim.bound


def _round_trip(cycle: tuple[Way, ...]) -> str:
    return "this can repeat for ever: " + ", then ".join(
        f"at {way.source} `{way.rule.text}`" for way in cycle
    )


def _perhaps(auto: Automaton, cycle: tuple[Way, ...]) -> str:
    """Return what keeps a bound from being proved, with what of a request's past might still keep it."""
    past = dict.fromkeys(f"`{part}`" for way in cycle for part in _asked(auto, way))
    depends = f"; whether it does depends on {', '.join(past)}" if past else ""
    return f"as far as the rules alone tell, {_round_trip(cycle)}{depends}"


def _asked(auto: Automaton, way: Way) -> Iterator[Expr]:
    """Yield what a rule and those above it ask of a request's past."""
    for rule in auto.state(way.source).rules:
        go = rule.go if rule is way.rule and isinstance(rule.go, Borrow) else None
        parts = (rule.when, go and go.most, go and go.until)
        yield from (part for expr in parts if expr for part in walk(expr) if _remembers(part))
        if rule is way.rule:
            return


def _ways(auto: Automaton, claim: ClaimDecl) -> Iterator[Way]:
    refused = refusals(auto)
    for state in auto.states:
        for index, rule in enumerate(state.rules):
            retries = not rule.keep and isinstance(rule.go, To)
            if retries and (state.model, *targets(rule.go)) in refused:
                stay = _weight(claim, state.model, 1.0)  # the candidate is kept
                yield Way(state.model, state.model, rule, stay, stay, False)
            certain = _certain(auto, state, index)
            weight = _weight(claim, state.model, 1.0) if rule.keep else Fraction(0)
            if isinstance(rule.go, Borrow):
                whole = weight + _stay_weight(auto, claim, rule.go)
                lowest = min(weight, whole)
                yield Way(state.model, state.model, rule, whole, lowest, certain)
                if rule.when is None and interval(auto, rule.go.most).low < 1.0:
                    # A last rule that is passed over commits and stays.
                    stay = _weight(claim, state.model, 1.0)
                    yield Way(state.model, state.model, rule, stay, stay, False)
                continue
            ends = (END,) if isinstance(rule.go, Stop) else targets(rule.go) or (state.model,)
            for target in ends:
                yield Way(state.model, target, rule, weight, weight, certain)


def _weight(claim: ClaimDecl, writer: str, n: float) -> Weight:
    """Return the weight of n tokens that one model keeps; exact, so that a cycle of weight 0 is none below it."""
    own = Fraction(n) if writer == claim.model else Fraction(0)
    return Fraction(str(claim.bound)) * Fraction(n) - own if claim.measure == "share" else -own


def _stay_weight(auto: Automaton, claim: ClaimDecl, go: Borrow) -> Weight:
    """Return the worst weight of a borrowed stay."""
    length = interval(auto, go.most)
    may_end, may_last = (True, True) if go.until is None else _says(auto, go.until)
    if go.model == claim.model:
        longest = length.high if may_last else 1.0
        most = inf if isinf(longest) else floor(longest)
        return min(Fraction(0), _weight(claim, go.model, max(1.0, most))) if most < inf else -inf
    early = go.until is not None and may_end
    least = 1.0 if early or isinf(length.low) else max(1.0, floor(length.low))
    return max(Fraction(0), _weight(claim, go.model, least))


def _says(auto: Automaton, until: Expr) -> tuple[bool, bool]:
    """Return whether a condition holds on some step, and whether it fails on some."""
    region = whole(auto)
    holds, fails = region.space.ways(until), region.space.ways(until, False)
    return (
        holds is None or some([region], holds),
        fails is None or some([region], fails),
    )


def _certain(auto: Automaton, state: State, index: int) -> bool:
    """Return whether a rule asks nothing of a request's past, some step takes it, and its stay may weigh the worst."""
    if _depends(state.rules[index]) or passed_over(auto, state.rules[index]):
        return False
    regions = [whole(auto)]
    space = regions[0].space
    for rule in state.rules[: index + 1]:
        if rule.when is None:
            break
        if any(_remembers(part) for part in walk(rule.when)):
            return False
        always, never = space.ways(rule.when), space.ways(rule.when, False)
        if always is None or never is None:
            return False
        if rule is state.rules[index]:
            return some(regions, always)
        rest = narrow(regions, always, never)
        if rest is None:
            return False
        regions = rest
    return bool(regions)


def _depends(rule: Rule) -> bool:
    """Return whether how long a stay may last depends on more than the steps that it is made of."""
    go = rule.go
    parts = (go.most, go.until) if isinstance(go, Borrow) else ()
    return any(_remembers(part) for expr in parts if expr for part in walk(expr))


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


def _shortest(auto: Automaton, ways: list[Way]) -> tuple[dict[str, Weight], tuple[Way, ...]]:
    """Return the least weight from the start to each model, and a negative cycle where there is one (Bellman, Ford)."""
    least: dict[str, Weight] = {n: Fraction(0) for r in auto.start for n in targets(r.go)}
    last: dict[str, Way] = {}
    moved: str | None = None
    for _ in range(len(auto.models) + 1):
        moved = None
        for way in ways:
            if way.source in least:
                weight = least[way.source] + way.weight
                if way.target not in least or weight < least[way.target]:
                    least[way.target], last[way.target] = weight, way
                    moved = way.target
        if moved is None:
            return least, ()
    # One round more than there are models still found a lighter way: going back by the last steps leads into a cycle.
    assert moved is not None
    at = moved
    for _ in auto.models:
        at = last[at].source
    cycle, name = [last[at]], last[at].source
    while name != at:
        cycle.append(last[name])
        name = last[name].source
    return least, tuple(reversed(cycle))


def _cycle(auto: Automaton, ways: list[Way]) -> tuple[Way, ...]:
    """Return a negative cycle that the start reaches, or nothing; one rule alone where that is enough."""
    reached, cycle = _shortest(auto, ways)
    loops = (w for w in ways if w.source == w.target and w.weight < 0 and w.source in reached)
    return next(((way,) for way in loops), cycle)


def _least(auto: Automaton, ways: list[Way]) -> Weight:
    """Return the least weight of any way from the start, where no cycle is negative."""
    least, _ = _shortest(auto, ways)
    return min([Fraction(0), *(least[w.source] + w.lowest for w in ways if w.source in least)])
