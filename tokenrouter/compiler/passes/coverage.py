"""Find rules that can never fire, rules that always do, and thresholds that make them so.

Needs: rules in order, folded guards. Gives: nothing is changed.
Reports:
    TR2301  a guard that no step can satisfy, with the law that forbids it
    TR2302  a guard that earlier rules leave nothing of
    TR2303  a guard that every step satisfies, so that later rules wait in vain
    TR2304  a guard that, at the params' values, no step (or every step) satisfies
    TR2305  an `otherwise` that earlier rules leave nothing of
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokenrouter.compiler.atoms import Conjunction, disjuncts
from tokenrouter.compiler.expr import Expr, ParamOf, walk
from tokenrouter.compiler.feasible import Empty, Region
from tokenrouter.compiler.ir import Automaton, Rule, State, action
from tokenrouter.compiler.liveness import narrow, some
from tokenrouter.diagnostics import Diagnostic, Label


def coverage(auto: Automaton) -> list[Diagnostic]:
    """Return what is wrong with the rules of all states, and with those of the start."""
    return [found for state in (_start(auto), *auto.states) for found in _state(auto, state)]


def _start(auto: Automaton) -> State:
    """Return the start as if it were a state: its rules are chosen from in the same way."""
    rules = []
    for rule in auto.start:
        guard = "otherwise" if rule.when is None else f"when {rule.when}"
        text = f"{guard} -> {action(True, rule.go).removeprefix('commit then ')}"
        rules.append(Rule(rule.when, True, rule.go, rule.span, text))
    return State("start", tuple(rules), auto.span)


def _state(auto: Automaton, state: State) -> Iterator[Diagnostic]:
    left: list[Region] | None = [Region(auto)]  # the steps that no earlier rule took
    for index, rule in enumerate(state.rules):
        if rule.when is None:
            if left == [] and index:
                yield _idle(state, rule)
            return
        always, never = disjuncts(rule.when), disjuncts(rule.when, False)
        if always is None or never is None:
            left = None
            continue
        problem = _alone(auto, state, index, always, never)
        if problem is None and left is not None and not some(left, always):
            problem = _covered(auto, state, index, always)
        if problem is not None:
            yield problem
            if problem.code == "TR2303":
                return
        left = None if left is None else narrow(left, never)


def _alone(
    auto: Automaton,
    state: State,
    index: int,
    always: list[Conjunction],
    never: list[Conjunction],
) -> Diagnostic | None:
    """Return what is wrong with one guard by itself."""
    rule = state.rules[index]
    assert rule.when is not None
    whole = Region(auto)
    if not some([whole], always):
        return _never(rule, _reason(whole, always))
    if not some([whole], never):
        return _always(state, rule)
    return _at_values(auto, rule, rule.when, always, never)


def _reason(region: Region, ways: list[Conjunction]) -> str:
    """Return the law that forbids the first of the ways that has one; '' where the guard forbids itself."""
    ends = (region.assume(way) for way in ways)
    return next((end.why for end in ends if isinstance(end, Empty) and end.why), "")


def _at_values(
    auto: Automaton,
    rule: Rule,
    guard: Expr,
    always: list[Conjunction],
    never: list[Conjunction],
) -> Diagnostic | None:
    """Look again with each param at its value instead of anywhere in its bounds."""
    names = {part.name for part in walk(guard) if isinstance(part, ParamOf)}
    numbers = {decl.name: decl for decl in auto.params if not isinstance(decl.value, bool)}
    if not names & numbers.keys():
        return None
    fixed = tuple(
        replace(decl, low=float(decl.value), high=float(decl.value))
        if decl.name in names & numbers.keys()
        else decl
        for decl in auto.params
    )
    region = Region(replace(auto, params=fixed))
    settings = ", ".join(
        f"`{name}` = {numbers[name].value:g}" for name in sorted(names & numbers.keys())
    )
    if not some([region], always):
        return _setting(rule, settings, "no", _reason(region, always))
    if not some([region], never):
        return _setting(rule, settings, "every", _reason(region, never))
    return None


def _covered(auto: Automaton, state: State, index: int, always: list[Conjunction]) -> Diagnostic:
    """TR2302."""
    rule = state.rules[index]
    labels = []
    for earlier in state.rules[:index]:
        never = None if earlier.when is None else disjuncts(earlier.when, False)
        rest = None if never is None else narrow([Region(auto)], never)
        if rest is not None and not some(rest, always):
            labels.append(Label(earlier.span, "this rule fires on every step that it would"))
            break
    by = "an earlier rule covers it" if labels else "the rules above cover it together"
    return Diagnostic(
        "TR2302",
        "error",
        f"rule `{rule.text}` can never fire, because {by}",
        rule.span,
        tuple(labels),
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


def _always(state: State, rule: Rule) -> Diagnostic:
    """TR2303."""
    return Diagnostic(
        "TR2303",
        "warning",
        f"rule `{rule.text}` fires on every step, so no later rule of `{state.model}` ever does",
        rule.span,
        help="write it as `otherwise`, or mend its threshold",
    )


def _setting(rule: Rule, settings: str, which: str, reason: str) -> Diagnostic:
    """TR2304."""
    because = f": {reason}" if reason else ""
    fires = "can never fire" if which == "no" else "fires on every step"
    return Diagnostic(
        "TR2304",
        "warning",
        f"with {settings} rule `{rule.text}` {fires}{because}",
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
