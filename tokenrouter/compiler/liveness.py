"""Which rules of a list some step can reach, with what earlier rules take away.

What is left of the steps is a list of regions, which may overlap. A rule splits only those that it can fire in, and a
part within another is dropped, so that a staircase of n rules leaves n + 1 regions and a rule that never fires leaves all
as it was. A stay that may be below 1 token takes nothing for certain, since its rule is then passed over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from tokenrouter.compiler.atoms import MOST
from tokenrouter.compiler.feasible import Region, whole
from tokenrouter.compiler.interval import interval
from tokenrouter.compiler.ir import Automaton, Borrow, Rule, StartRule
from tokenrouter.compiler.space import Way


def some(regions: list[Region], ways: list[Way]) -> bool:
    """Return whether some step in the regions goes one of the ways."""
    return any(region.meets(way) for region in regions for way in ways)


class Cut(NamedTuple):
    """What a rule does to the steps that reach it."""

    fires: bool  # on some of them
    passes: bool  # on some that it might have fired on, its guard does not hold
    left: (
        list[Region] | None
    )  # those on which it does not fire; None where that is too many parts to look at


def narrow(regions: list[Region], always: list[Way], never: list[Way]) -> list[Region] | None:
    """Return what a rule leaves of the regions."""
    return cut(regions, always, never).left


def cut(regions: list[Region], always: list[Way], never: list[Way]) -> Cut:
    """Return what a rule does to the regions, by the ways in which its guard holds and in which it does not."""
    out: list[Region] = []
    fires = passes = False
    for region in regions:
        if some([region], always):
            fires = True
            parts = [part for way in never if (part := region.part(way)) is not None]
            passes = passes or bool(parts)
        else:
            same = region.aware(always)
            parts = [] if same is None else [same]
        for part in parts:
            if not any(part.within(other) for other in out):
                out = [other for other in out if not other.within(part)]
                out.append(part)
        if len(out) > MOST:
            return Cut(fires, passes, None)  # more than there were: the rule fired, and split some
    return Cut(fires, passes, out)


def passed_over(auto: Automaton, rule: Rule | StartRule) -> bool:
    """Return whether a rule may not fire although its guard holds: a stay below 1 is none."""
    return isinstance(rule.go, Borrow) and not interval(auto, rule.go.most).low >= 1.0


def alive(auto: Automaton, rules: Sequence[Rule | StartRule]) -> Iterator[bool]:
    """Yield for each rule whether some step may make it fire; a rule that is too wide to look at may."""
    left = [whole(auto)]
    space = left[0].space
    for rule in rules:
        if rule.when is None:
            yield bool(left)
            continue
        always, never = space.ways(rule.when), space.ways(rule.when, False)
        if always is None or never is None:
            yield always is None or some(left, always)
            continue
        done = cut(left, always, never)
        yield done.fires
        if not passed_over(auto, rule):
            left = left if done.left is None else done.left


def at_values(auto: Automaton) -> Automaton:
    """Return the policy with each param at its value instead of anywhere in its bounds."""
    fixed = tuple(
        decl
        if isinstance(decl.value, bool)
        else replace(decl, low=float(decl.value), high=float(decl.value))
        for decl in auto.params
    )
    return replace(auto, params=fixed)
