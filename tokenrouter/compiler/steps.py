"""On which steps two lists of rules act differently: each guard against each, by interval reasoning.

The steps are cut twice, by the old rules and by the new ones; a cell is what an old and a new rule have in common. A cell
of two different actions is a change that a user can meet. What `feasible` says holds here too: an empty cell is certain,
another one may be empty all the same, since terms that are not linear are held for free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tokenrouter.compiler.expr import Comparison, Expr
from tokenrouter.compiler.feasible import Region
from tokenrouter.compiler.liveness import narrow
from tokenrouter.compiler.space import ZERO, Way
from tokenrouter.plan.literal import number

MOST_CELLS = 2048  # regions in all cells; beyond it nothing is told rather than half of it


@dataclass(frozen=True, slots=True)
class Choice:
    """A rule as the comparison sees it: params at their values; no guard is `otherwise`."""

    when: Expr | None
    action: str


Cells = dict[
    tuple[int | None, int | None], list[Region]
]  # by old and new rule; None: no rule fired


def cells(whole: Region, old: Sequence[Choice], new: Sequence[Choice]) -> Cells | None:
    """Return the steps that each pair of rules takes; None where there are too many cases."""
    first = _cut([whole], old)
    if first is None:
        return None
    out: Cells = {}
    total = 0
    for at, regions in first.items():
        second = _cut(regions, new)
        if second is None:
            return None
        for to, parts in second.items():
            out[at, to] = parts
            total += len(parts)
        if total > MOST_CELLS:
            return None
    return out


def _cut(left: list[Region], rules: Sequence[Choice]) -> dict[int | None, list[Region]] | None:
    """Return what each rule takes of some steps; entries that are empty are left out."""
    out: dict[int | None, list[Region]] = {}
    for at, rule in enumerate(rules):
        if not left:
            return out
        if rule.when is None:
            out[at] = left
            return out
        space = left[0].space
        always, never = space.ways(rule.when), space.ways(rule.when, False)
        if always is None or never is None:
            return None
        taken = _parts(left, always)
        if taken:
            out[at] = taken
        rest = narrow(left, always, never)
        if rest is None:
            return None
        left = rest
    if left:
        out[None] = left
    return out


def _parts(regions: list[Region], ways: list[Way]) -> list[Region]:
    """Return the parts of regions that go one of the ways, none within another."""
    out: list[Region] = []
    for region in regions:
        for way in ways:
            part = region.part(way)
            if part is not None and not any(part.within(other) for other in out):
                out = [*(other for other in out if not other.within(part)), part]
    return out


def tell(region: Region) -> str:
    """Return the steps of a region as a condition; what the signals' laws add is left out."""
    parts = [text for term in region.terms if (text := _interval(region, term))]
    parts += _pairs(region)
    for term, value in region.facts.items():
        if isinstance(term, Comparison) and term.sign == "==":
            parts.append(f"{term.left} {'==' if value else '!='} {term.right}")
        else:
            parts.append(str(term) if value else f"not ({term})")
    return " and ".join(parts) or "every step"


def _interval(region: Region, term: int) -> str:
    """Return a term's bounds as far as guards set them; '' where none does."""
    name = region.space.terms[term]
    if name is None:
        return ""
    high, low = region.links.get((term, ZERO)), region.links.get((ZERO, term))
    above = (
        "" if high is None or high.why else f"{'<' if high.strict else '<='} {_number(high.bound)}"
    )
    below = "" if low is None or low.why else _number(-low.bound)
    if not below:
        return f"{name} {above}" if above else ""
    assert low is not None
    if not above:
        return f"{name} {'>' if low.strict else '>='} {below}"
    if high is not None and high.bound == -low.bound:
        return f"{name} == {below}"
    return f"{below} {'<' if low.strict else '<='} {name} {above}"


def _pairs(region: Region) -> list[str]:
    """Return the bounds between two terms that do not follow from those of each alone."""
    out = []
    for (x, y), link in region.links.items():
        left, right = region.space.terms[x], region.space.terms[y]
        if left is None or right is None or link.why:
            continue
        high, low = region.links.get((x, ZERO)), region.links.get((ZERO, y))
        alone = (inf if high is None else high.bound) + (inf if low is None else low.bound)
        if alone <= link.bound:
            continue
        shift = (
            ""
            if link.bound == 0.0
            else f" {'+' if link.bound > 0 else '-'} {_number(abs(link.bound))}"
        )
        out.append(f"{left} {'<' if link.strict else '<='} {right}{shift}")
    return out


def _number(value: float) -> str:
    return number(float(f"{value:.12g}") + 0.0)
