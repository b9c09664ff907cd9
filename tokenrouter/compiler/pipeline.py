"""The driver: order, verification and trace of the passes, in one place.

A pass is a pure function from the IR to the IR and what it found. Passes never import each other; the driver collects
what they report, and only it decides that a policy cannot be compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import wraps
from typing import TypeVar

from tokenrouter.compiler.ir import Automaton, Rule, StartRule
from tokenrouter.compiler.passes.coverage import coverage
from tokenrouter.compiler.passes.drop_unreached import drop_unreached
from tokenrouter.compiler.passes.enforce import enforce
from tokenrouter.compiler.passes.guarantees import guarantees
from tokenrouter.compiler.passes.livelock import livelock
from tokenrouter.compiler.passes.never_left import never_left
from tokenrouter.compiler.passes.stays import stays
from tokenrouter.compiler.passes.trust import trust
from tokenrouter.compiler.passes.variables import variables
from tokenrouter.compiler.seen import Look, anew
from tokenrouter.compiler.verify import verify
from tokenrouter.diagnostics import Diagnostic, Span

Pass = Callable[[Automaton], tuple[Automaton, list[Diagnostic]]]
Told = TypeVar("Told", Rule, StartRule)
Trace = Callable[[str, str], None]  # the name of a pass and the IR after it


def check(analysis: Callable[[Automaton], list[Diagnostic]]) -> Pass:
    """Return an analysis, which changes nothing, as a pass."""

    @wraps(analysis)
    def as_pass(auto: Automaton) -> tuple[Automaton, list[Diagnostic]]:
        return auto, analysis(auto)

    return as_pass


def by_state(analysis: Callable[[Automaton, Look], list[Diagnostic]], look: Look) -> Pass:
    """Return an analysis of one state after the other as a pass."""

    @wraps(analysis)
    def as_pass(auto: Automaton) -> tuple[Automaton, list[Diagnostic]]:
        return auto, analysis(auto, look)

    return as_pass


LIVELOCK, PROOF = check(livelock), check(guarantees)


def passes_that(look: Look) -> tuple[Pass, ...]:
    """Return the passes, those that look at one state after the other by `look`."""
    return (
        by_state(coverage, look),
        check(stays),
        check(trust),
        check(variables),
        drop_unreached,
        by_state(never_left, look),
        LIVELOCK,
        enforce,
        PROOF,
    )


PASSES = passes_that(anew)


def run(
    auto: Automaton, *, passes: tuple[Pass, ...] = PASSES, trace: Trace | None = None
) -> tuple[Automaton, list[Diagnostic]]:
    """Return the IR after all passes, and everything that they found, in source order."""
    found: list[Diagnostic] = []
    verify(auto, after="lower")
    for step in passes:
        before = auto
        if step in (LIVELOCK, PROOF):  # of what is left where no rule is told to be dead
            _, notes = step(_without(auto, found))
        else:
            auto, notes = step(auto)
        found += notes
        name = getattr(step, "__name__", "pass")
        if auto is not before:  # an analysis changes nothing
            verify(auto, after=name)
        if trace:
            trace(name, str(auto))
    return auto, _in_order(found)


def _without(auto: Automaton, found: list[Diagnostic]) -> Automaton:
    """Return the IR without the rules that are told never to fire, and without the models that only they lead to."""
    dead = {d.span for d in found if d.code in ("TR2301", "TR2302", "TR2305")}
    last = {d.span for d in found if d.code == "TR2303"}  # no rule below these ever fires
    if not dead and not last:
        return auto
    states = tuple(
        replace(state, rules=tuple(_living(state.rules, dead, last))) for state in auto.states
    )
    start = tuple(_living(auto.start, dead, last))
    return drop_unreached(replace(auto, states=states, start=start))[0]


def _living(rules: Iterable[Told], dead: set[Span], last: set[Span]) -> Iterator[Told]:
    """Yield the rules of a list that are not dead, and none below one that always fires."""
    for rule in rules:
        if rule.span not in dead:
            yield rule
        if rule.span in last:
            return


def _in_order(found: list[Diagnostic]) -> list[Diagnostic]:
    """Return diagnostics in source order, each once: a rule of `at any` stands in many states."""
    told = Counter(d.span for d in found)
    once = {(d.code, d.span): d for d in reversed(found) if not _follows(d, told)}
    return sorted(once.values(), key=lambda d: (d.span.file, d.span.start, d.code))


def _follows(diagnostic: Diagnostic, told: Counter[Span]) -> bool:
    """Return whether a warning only repeats what is said of the rules that it points at."""
    if diagnostic.severity != "warning" or not diagnostic.labels:
        return False
    places = (label.span for label in diagnostic.labels)
    return all(told[span] > (span == diagnostic.span) for span in places)
