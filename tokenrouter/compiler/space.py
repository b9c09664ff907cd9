"""The terms of a policy's guards as small numbers, with what the laws say of each and of each pair.

A region asks the same few questions thousands of times; here each is answered once. Term 0 is the number 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, inf, isfinite
from typing import NamedTuple

from tokenrouter.compiler import laws
from tokenrouter.compiler.atoms import AtMost, Atom, Holds, disjuncts
from tokenrouter.compiler.expr import Expr, SignalOf
from tokenrouter.compiler.interval import interval
from tokenrouter.compiler.ir import Automaton
from tokenrouter.signals import SIGNALS

ZERO = 0


class Link(NamedTuple):
    """`x - y <= bound`, and the law behind it; '' where the guards say so themselves."""

    bound: float
    strict: bool
    why: str = ""

    def tighter(self, other: Link | None) -> bool:
        """Return whether this says more than another bound on the same pair."""
        if other is None:
            return True
        return self.bound < other.bound or (
            self.bound == other.bound and self.strict and not other.strict
        )

    def against(self, back: Link) -> bool:
        """Return whether this and a bound on `y - x` cannot both hold."""
        total = self.bound + back.bound
        return total < -1e-12 or (total <= 1e-12 and (self.strict or back.strict))


class Bound(NamedTuple):
    """A link between two terms."""

    x: int
    y: int
    link: Link


class Fact(NamedTuple):
    """A bool term that holds, or does not."""

    term: Expr
    value: bool


Way = tuple[Bound | Fact, ...]  # all of them hold


class Space:
    """The terms that were met so far; shared by all regions of a policy."""

    def __init__(self, auto: Automaton) -> None:
        """Start with the number 0 alone, and the term that the curved laws turn on."""
        self.auto = auto
        self.models = tuple(decl.name for decl in auto.models)
        self.terms: list[Expr | None] = [None]
        self._numbers: dict[Expr | None, int] = {None: ZERO}
        self._ways: dict[tuple[int, bool], tuple[Expr, list[Way] | None]] = {}  # by identity
        self._ranges: dict[int, tuple[Bound, ...]] = {}
        self._between: dict[tuple[int, int], tuple[Bound, ...]] = {}
        self.ready: dict[tuple[int, ...], object] = {}  # by terms: a region that mentions them
        self.bent: dict[int, SignalOf] = {}  # the terms beside it that they speak of
        self.tied: set[int] = set()  # the terms that curved laws tie to each other without it
        self.maxprob = self.number(laws.MAXPROB)

    def number(self, term: Expr | None) -> int:
        """Return the number of a term."""
        found = self._numbers.get(term)
        if found is None:
            found = self._numbers[term] = len(self.terms)
            self.terms.append(term)
            if isinstance(term, SignalOf) and term.name in laws.BENT:
                self.bent[found] = term
            if isinstance(term, SignalOf) and term.name in laws.TIED:
                self.tied.add(found)
        return found

    def ways(self, guard: Expr, value: bool = True) -> list[Way] | None:
        """Return the ways in which a guard is true (or false), or None where there are too many to look at."""
        known = self._ways.get((id(guard), value))
        if known is None:
            found = disjuncts(guard, value)
            ways = None if found is None else [tuple(map(self._atom, way)) for way in found]
            known = self._ways[id(guard), value] = guard, ways  # held, so that its id stays its own
        return known[1]

    def range(self, term: int) -> tuple[Bound, ...]:
        """Return where a term must lie."""
        found = self._ranges.get(term)
        if found is None:
            expr = self.terms[term]
            assert expr is not None
            at = interval(self.auto, expr)
            lies = f"lies in [{at.low:g}, {at.high:.4g}]"
            if at.high == inf:
                lies = f"is at least {at.low:g}"
            elif at.low == -inf:
                lies = f"is at most {at.high:g}"
            why = "" if at.low == at.high else f"`{expr}` {lies}"
            found = bounds(term, at, why)
            if expr == SignalOf("chance"):  # a draw is below 1
                found = (Bound(term, ZERO, Link(1.0, True, "`chance` is below 1")), found[1])
            self._ranges[term] = found
        return found

    def bends(self, terms: Sequence[int]) -> bool:
        """Return whether a curved law speaks of some terms, beside what `maxprob` would have to be."""
        return self.maxprob in terms or len(self.tied.intersection(terms)) > 1

    def between(self, x: int, y: int) -> tuple[Bound, ...]:
        """Return what the laws say of two terms."""
        found = self._between.get((x, y))
        if found is None:
            pairs = [(a, b, self.terms[a], self.terms[b]) for a, b in ((x, y), (y, x))]
            found = self._between[x, y] = tuple(
                Bound(a, b, Link(0.0, False, why))
                for a, b, left, right in pairs
                if left is not None and right is not None and (why := laws.at_most(left, right))
            )
        return found

    def _atom(self, atom: Atom) -> Bound | Fact:
        if isinstance(atom, Holds):
            return Fact(atom.term, atom.value)
        return Bound(self.number(atom.x), self.number(atom.y), _whole(atom))


def bounds(term: int, at: laws.Range, why: str) -> tuple[Bound, ...]:
    """Return an interval as links to 0."""
    above = (Bound(term, ZERO, Link(at.high, False, why)),) if isfinite(at.high) else ()
    below = (Bound(ZERO, term, Link(-at.low, False, why)),) if isfinite(at.low) else ()
    return above + below


def join(*reasons: str) -> str:
    """Return distinct reasons as one text."""
    given = [text for text in reasons if text]
    if len(given) < 2:
        return given[0] if given else ""
    return "; ".join(dict.fromkeys(part for text in reasons for part in text.split("; ") if part))


def _whole(atom: AtMost) -> Link:
    """Return the link of an atom; between counts, which are whole numbers, `<` is `<=` of the next."""
    whole = all(term is None or _counts(term) for term in (atom.x, atom.y))
    if not whole:
        return Link(atom.bound, atom.strict, atom.why)
    bound = ceil(atom.bound) - 1.0 if atom.strict else float(floor(atom.bound))
    return Link(bound, False, atom.why)


def _counts(term: Expr) -> bool:
    return isinstance(term, SignalOf) and SIGNALS[term.name].unit == "count"
