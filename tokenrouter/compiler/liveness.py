"""Which rules of a list some step can reach, with what earlier rules take away."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tokenrouter.compiler.atoms import MOST, Conjunction, disjuncts
from tokenrouter.compiler.feasible import Region
from tokenrouter.compiler.ir import Automaton, Rule, StartRule


def some(regions: list[Region], ways: list[Conjunction]) -> bool:
    """Return whether some step in the regions goes one of the ways."""
    return any(isinstance(region.assume(way), Region) for region in regions for way in ways)


def narrow(regions: list[Region], ways: list[Conjunction]) -> list[Region] | None:
    """Return the parts of the regions that go one of the ways; None where they are too many to look at."""
    if len(regions) * len(ways) > MOST:
        return None
    parts = (region.assume(way) for region in regions for way in ways)
    return [part for part in parts if isinstance(part, Region)]


def alive(auto: Automaton, rules: Sequence[Rule | StartRule]) -> list[bool]:
    """Return for each rule whether some step may make it fire; a rule that is too wide to look at may."""
    left: list[Region] = [Region(auto)]
    out = []
    for rule in rules:
        if rule.when is None:
            out.append(bool(left))
            continue
        always, never = disjuncts(rule.when), disjuncts(rule.when, False)
        out.append(always is None or some(left, always))
        rest = None if never is None else narrow(left, never)
        left = left if rest is None else rest
    return out


def at_values(auto: Automaton) -> Automaton:
    """Return the policy with each param at its value instead of anywhere in its bounds."""
    fixed = tuple(
        decl
        if isinstance(decl.value, bool)
        else replace(decl, low=float(decl.value), high=float(decl.value))
        for decl in auto.params
    )
    return replace(auto, params=fixed)
