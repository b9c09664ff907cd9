"""Find rules that can never fire, rules that always do, and thresholds that make them so.

Needs: rules in order, folded guards. Gives: nothing is changed.
Reports:
    TR2301  a guard that no step can satisfy, with the law that forbids it
    TR2302  a guard that earlier rules leave nothing of
    TR2303  a guard that every step satisfies, so that later rules wait in vain
    TR2304  a guard that, at the params' values, no step (or every step) satisfies, or earlier rules leave nothing of
    TR2305  an `otherwise` that earlier rules leave nothing of
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tokenrouter.compiler.expr import Expr, ParamOf, walk
from tokenrouter.compiler.feasible import Empty, Region, whole
from tokenrouter.compiler.graph import leaves
from tokenrouter.compiler.ir import Automaton, Rule, State, action
from tokenrouter.compiler.liveness import Cut, alive, at_values, cut, passed_over, some
from tokenrouter.compiler.seen import Look, anew
from tokenrouter.compiler.space import Way
from tokenrouter.diagnostics import Diagnostic, Label, Span

LOOKS = 1000  # at earlier rules of a state, for the one that covers a dead rule alone; then rules are told together


def coverage(auto: Automaton, look: Look = anew) -> list[Diagnostic]:
    """Return what is wrong with the rules of all states, and with those of the start."""
    out = list(look("start", auto, _start(auto), _looked_at))
    for state in auto.states:
        out += look("coverage", auto, state, _looked_at)
    stands = Counter(rule.span for _, _, rule in auto.rules())
    said = Counter((d.span, _says(d)) for d in out)
    return [d for d in out if said[d.span, _says(d)] >= stands[d.span]]


def _looked_at(auto: Automaton, state: State) -> list[Diagnostic]:
    found = list(_state(auto, state))
    told = {d.span for d in found if d.code != "TR2305"}
    return [*found, *_crossed(auto, state, told)]


def _says(diagnostic: Diagnostic) -> str:
    """Return what is said of a rule; one of `at any` is told of where it holds at each model that the block stands for."""
    return "never" if diagnostic.code in ("TR2301", "TR2302") else diagnostic.code


def _start(auto: Automaton) -> State:
    """Return the start as if it were a state: its rules are chosen from in the same way."""
    rules = []
    for rule in auto.start:
        guard = "otherwise" if rule.when is None else f"when {rule.when}"
        text = f"{guard} -> {action(True, rule.go).removeprefix('commit then ')}"
        rules.append(Rule(rule.when, True, rule.go, rule.span, text))
    return State("start", tuple(rules), auto.span)


def _state(auto: Automaton, state: State) -> Iterator[Diagnostic]:
    everything = whole(auto)
    left: list[Region] | None = [everything]  # the steps that no earlier rule took
    settings = _Settings(auto)
    looks = LOOKS
    for index, rule in enumerate(state.rules):
        if rule.when is None:
            if left == [] and index:
                yield _idle(state, rule)
            return
        always, never = everything.space.ways(rule.when), everything.space.ways(rule.when, False)
        if always is None or never is None:
            left = None
            continue
        done = None if left is None else cut(left, always, never)
        problem = _alone(everything, settings, state, index, always, never, done)
        if problem is None and done is not None and not done.fires:
            by = _coverer(everything, state.rules[: min(index, looks)], always)
            looks -= min(index, looks)
            problem = _covered(rule, by)
        if problem is not None:
            yield problem
            if problem.code == "TR2303":
                return
        if not passed_over(auto, rule):
            left = None if done is None else done.left


def _alone(
    everything: Region,
    settings: _Settings,
    state: State,
    index: int,
    always: list[Way],
    never: list[Way],
    done: Cut | None,
) -> Diagnostic | None:
    """Return what is wrong with one guard by itself; what it was seen to do to the steps left for it needs no look."""
    rule = state.rules[index]
    assert rule.when is not None
    if not (done and done.fires) and not some([everything], always):
        return _never(rule, _reason(everything, always))
    sure = not passed_over(everything.space.auto, rule)
    if sure and not (done and done.passes) and not some([everything], never):
        return _always(state, rule, _reason(everything, never))
    return settings.problem(rule, rule.when, sure)


def _reason(region: Region, ways: list[Way]) -> str:
    """Return the law that forbids the first of the ways that has one; '' where the guard forbids itself."""
    ends = (region.assume(way) for way in ways)
    return next((end.why for end in ends if isinstance(end, Empty) and end.why), "")


class _Settings:
    """A look at single guards with each param that they read at its value instead of anywhere in its bounds."""

    def __init__(self, auto: Automaton) -> None:
        self.auto = auto
        self.numbers = {decl.name: decl for decl in auto.params if not isinstance(decl.value, bool)}
        self.regions: dict[frozenset[str], Region] = {}

    def problem(self, rule: Rule, guard: Expr, sure: bool) -> Diagnostic | None:
        """Return what is wrong with a guard at the values of its params; `sure` where its rule is never passed over."""
        names = self.numbers.keys() & {p.name for p in walk(guard) if isinstance(p, ParamOf)}
        if not names:
            return None
        region = self._region(frozenset(names))
        always, never = region.space.ways(guard), region.space.ways(guard, False)
        assert always is not None and never is not None, guard  # as they were for the same guard
        values = ", ".join(f"`{name}` = {self.numbers[name].value:g}" for name in sorted(names))
        if not some([region], always):
            return _setting(rule, values, "no", _reason(region, always))
        if sure and not some([region], never):
            return _setting(rule, values, "every", _reason(region, never))
        return None

    def _region(self, names: frozenset[str]) -> Region:
        if names not in self.regions:
            fixed = tuple(
                replace(decl, low=float(decl.value), high=float(decl.value))
                if decl.name in names
                else decl
                for decl in self.auto.params
            )
            self.regions[names] = whole(replace(self.auto, params=fixed))
        return self.regions[names]


def _coverer(everything: Region, rules: Sequence[Rule], always: list[Way]) -> Rule | None:
    """Return the first rule that fires wherever one of the ways is gone; None where no single one does."""
    mine = [part for way in always if (part := everything.part(way))]
    for rule in rules:
        sure = rule.when is not None and not passed_over(everything.space.auto, rule)
        never = everything.space.ways(rule.when, False) if rule.when and sure else None
        if never is not None and not some(mine, never):
            return rule
    return None


def _covered(rule: Rule, by: Rule | None) -> Diagnostic:
    """TR2302."""
    who = "the rules above cover it together" if by is None else "an earlier rule covers it"
    label = "this rule fires on every step that it would"
    return Diagnostic(
        "TR2302",
        "error",
        f"rule `{rule.text}` can never fire, because {who}",
        rule.span,
        () if by is None else (Label(by.span, label),),
        help="put the narrower rule first, or remove it",
    )


def _never(rule: Rule, reason: str) -> Diagnostic:
    """TR2301."""
    because = f": {reason}" if reason else ", because its parts exclude each other"
    return Diagnostic(
        "TR2301",
        "error",
        f"rule `{rule.text}` can never fire{because}",
        rule.span,
        help="no step satisfies its condition, whatever the model says; mend a threshold or remove the rule",
    )


def _always(state: State, rule: Rule, reason: str) -> Diagnostic:
    """TR2303."""
    because = f": {reason}" if reason else ""
    return Diagnostic(
        "TR2303",
        "warning",
        f"rule `{rule.text}` fires on every step, so no later rule of `{state.model}` ever does{because}",
        rule.span,
        help="write it as `otherwise`, or mend its threshold",
    )


def _crossed(auto: Automaton, state: State, told: set[Span]) -> Iterator[Diagnostic]:
    """Yield the rules that earlier ones cover only because params have the values that they have."""
    reads = [_params(rule) for rule in state.rules]
    if not any(reads):
        return
    fixed = at_values(auto)
    live = list(alive(fixed, state.rules))
    leaving = [index for index in range(len(live)) if leaves(state, index)]
    if not any(live[index] for index in leaving):
        told = told | {state.rules[index].span for index in leaving}  # TR2102 tells of these
    everything = whole(fixed)
    for index, rule in enumerate(state.rules):
        if live[index] or rule.when is None or rule.span in told:
            continue
        always = everything.space.ways(rule.when)
        if always is None or not some([everything], always):
            continue
        by = _coverer(everything, state.rules[: min(index, LOOKS)], always)
        if by is not None and by.span in told:
            continue
        rules = state.rules[: index + 1] if by is None else (by, rule)
        names = sorted({name for each in rules for name in _params(each)})
        values = ", ".join(
            f"`{d.name}` = {d.value:g}" for name in names for d in auto.params if d.name == name
        )
        yield _covered_there(rule, by, values)


def _params(rule: Rule) -> set[str]:
    """Return the params that a guard compares as numbers."""
    parts = () if rule.when is None else walk(rule.when)
    return {part.name for part in parts if isinstance(part, ParamOf) and part.unit != "bool"}


def _covered_there(rule: Rule, by: Rule | None, values: str) -> Diagnostic:
    """TR2304."""
    who = "the rules above cover it together" if by is None else "an earlier rule covers it"
    return Diagnostic(
        "TR2304",
        "warning",
        f"with {values} rule `{rule.text}` can never fire: {who}",
        rule.span,
        () if by is None else (Label(by.span, "this rule fires on every step that it would"),),
        help="set the params so that this rule has steps of its own",
    )


def _setting(rule: Rule, values: str, which: str, reason: str) -> Diagnostic:
    """TR2304."""
    because = f": {reason}" if reason else ""
    fires = "can never fire" if which == "no" else "fires on every step"
    return Diagnostic(
        "TR2304",
        "warning",
        f"with {values} rule `{rule.text}` {fires}{because}",
        rule.span,
        help="set the param to a value that some steps are above and some below",
    )


def _idle(state: State, rule: Rule) -> Diagnostic:
    """TR2305."""
    return Diagnostic(
        "TR2305",
        "info",
        f"the rules above leave nothing for `otherwise` of `{state.model}`",
        rule.span,
        help="the last of them can be written as `otherwise`",
    )
