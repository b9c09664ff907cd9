"""Find borrowed stays that never begin, or whose `until` never or always ends them.

Needs: folded expressions. Gives: nothing is changed.
Reports:
    TR2401  a stay whose length is always below 1, so that its rule is passed over
    TR2402  an `until` that no step of the lender satisfies
    TR2403  an `until` that every step of the lender satisfies
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenrouter.compiler.feasible import whole
from tokenrouter.compiler.interval import interval
from tokenrouter.compiler.ir import Automaton, Borrow, Rule
from tokenrouter.compiler.liveness import some
from tokenrouter.diagnostics import Diagnostic


def stays(auto: Automaton) -> list[Diagnostic]:
    """Return what is wrong with the borrowed stays of a policy."""
    return [found for _, _, rule in auto.rules() for found in _rule(auto, rule)]


def _rule(auto: Automaton, rule: Rule) -> Iterator[Diagnostic]:
    if not isinstance(rule.go, Borrow):
        return
    if interval(auto, rule.go.most).high < 1.0:
        yield Diagnostic(
            "TR2401",
            "error",
            f"`{rule.go.most}` is always below 1, so rule `{rule.text}` is always passed over",
            rule.span,
            help="borrow for at least one token",
        )
    if rule.go.until is None:
        return
    lender = rule.go.model
    if not _holds(auto, rule.go, True):
        yield Diagnostic(
            "TR2402",
            "warning",
            f"`{rule.go.until}` never holds at `{lender}`, so the stay always lasts its whole length",
            rule.span,
            help=f"mend the threshold, or write `borrow {lender} for {rule.go.most}`",
        )
    elif not _holds(auto, rule.go, False):
        yield Diagnostic(
            "TR2403",
            "warning",
            f"`{rule.go.until}` holds on every step of `{lender}`, so the stay is one token long",
            rule.span,
            help=f"mend the threshold, or write `borrow {lender} for 1`",
        )


def _holds(auto: Automaton, go: Borrow, value: bool) -> bool:
    """Return whether some step of the lender makes the condition true (or false)."""
    assert go.until is not None
    everything = whole(auto)
    ways = everything.space.ways(go.until, value)
    return ways is None or some([everything], ways)
