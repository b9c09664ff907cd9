"""Whether some step can satisfy a conjunction of atoms: bounds on differences, closed under the signals' laws.

A region holds, for each pair of terms, the tightest known bound on their difference (a difference-bound matrix; the term
None is 0). Assuming an atom closes it again over all pairs; then the curved laws tighten single terms until nothing moves.
A region that turns out empty is certain to be so; one that does not may still be, since laws that are not written down and
terms that are not linear are held for free.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, floor, inf, isfinite

from tokenrouter.compiler import laws
from tokenrouter.compiler.atoms import AtMost, Atom, Conjunction, Holds
from tokenrouter.compiler.expr import Comparison, Expr, Lit, SignalOf, TokenIs
from tokenrouter.compiler.ir import Automaton
from tokenrouter.signals import SIGNALS

MOST_TERMS = 24  # a guard over more terms is held for free beyond them
ROUNDS = 4  # of the curved laws; each only tightens, so stopping early is safe

Term = Expr | None


@dataclass(frozen=True, slots=True)
class Link:
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


@dataclass(frozen=True, slots=True)
class Empty:
    """No step lies here; `why` names the law that forbids it, '' where the guards alone do."""

    why: str


@dataclass(frozen=True, slots=True)
class Texts:
    """What the candidate's text may be: one of `among` (None: anything), and none of `outside`."""

    among: frozenset[str] | None = None
    outside: frozenset[str] = frozenset()

    def narrow(self, texts: frozenset[str], holds: bool) -> Texts | None:
        """Return what is left where the text is one of some, or none of them; None where nothing is."""
        if holds:
            among = texts - self.outside if self.among is None else self.among & texts
            return Texts(among, self.outside) if among else None
        left = None if self.among is None else self.among - texts
        return None if left is not None and not left else Texts(left, self.outside | texts)


@dataclass(frozen=True, slots=True)
class Region:
    """The steps that satisfy all that was assumed so far."""

    auto: Automaton
    links: dict[tuple[Term, Term], Link] = field(default_factory=dict)
    terms: tuple[Term, ...] = (None,)
    facts: dict[Expr, bool] = field(default_factory=dict)
    equal: dict[Expr, Lit] = field(default_factory=dict)  # texts and bools that are known
    texts: Texts = field(default_factory=Texts)

    def assume(self, conjunction: Conjunction) -> Region | Empty:
        """Return the part of this region where all atoms hold too."""
        copy = _Draft(
            self.auto,
            dict(self.links),
            list(self.terms),
            dict(self.facts),
            dict(self.equal),
            self.texts,
        )
        for atom in conjunction:
            why = copy.add(atom)
            if why is not None:
                return Empty(why)
        why = copy.bend() if len(copy.terms) > 2 else None
        if why is not None:
            return Empty(why)
        return Region(copy.auto, copy.links, tuple(copy.terms), copy.facts, copy.equal, copy.texts)


@dataclass(eq=False, slots=True)
class _Draft:
    """A region that is being tightened. Its methods return why it became empty, or None."""

    auto: Automaton
    links: dict[tuple[Term, Term], Link]
    terms: list[Term]
    facts: dict[Expr, bool]
    equal: dict[Expr, Lit]
    texts: Texts

    def add(self, atom: Atom) -> str | None:
        if isinstance(atom, Holds):
            return self._fact(atom)
        if atom.x is None and atom.y is None:
            empty = atom.bound < 0.0 or (atom.bound == 0.0 and atom.strict)
            return "" if empty else None
        for term in (atom.x, atom.y):
            why = self._mention(term)
            if why is not None:
                return why
        if atom.x not in self.terms or atom.y not in self.terms:
            return None
        return self._link(atom.x, atom.y, _whole(atom))

    def _fact(self, atom: Holds) -> str | None:
        if self.facts.setdefault(atom.term, atom.value) != atom.value:
            return ""
        match atom.term:
            case TokenIs():
                left = self.texts.narrow(frozenset(atom.term.texts), atom.value)
                if left is None:
                    return ""
                self.texts = left
            case Comparison(left=x, right=Lit() as literal) if atom.value:
                known = self.equal.setdefault(x, literal)
                if known != literal:
                    return f"`{x}` cannot be {known} and {literal} at once"
            case _:
                pass
        return None

    def _mention(self, term: Term) -> str | None:
        """Bring in a term with its range and the laws between it and the terms that are here."""
        if term in self.terms or len(self.terms) >= MOST_TERMS:
            return None
        assert term is not None
        others = list(self.terms)
        self.terms.append(term)
        at = laws.range_of(self.auto, term)
        name = "" if at.low == at.high else f"`{term}` lies in [{at.low:g}, {at.high:.4g}]"
        found = self._bound(term, at, name)
        for other in others:
            if found is None and other is not None:
                found = self._law(term, other)
        return found

    def _law(self, x: Expr, y: Expr) -> str | None:
        for a, b in ((x, y), (y, x)):
            why = laws.at_most(a, b)
            if why:
                empty = self._link(a, b, Link(0.0, False, why))
                if empty is not None:
                    return empty
        return None

    def _bound(self, term: Expr, at: laws.Range, why: str) -> str | None:
        found = None
        if isfinite(at.high):
            found = self._link(term, None, Link(at.high, False, why))
        if found is None and isfinite(at.low):
            found = self._link(None, term, Link(-at.low, False, why))
        return found

    def _link(self, x: Term, y: Term, link: Link) -> str | None:
        """Tighten one pair and close over all others; every shortest way through the new link is looked at."""
        if not link.tighter(self.links.get((x, y))):
            return None
        back = self.links.get((y, x))
        if back is not None:
            total = link.bound + back.bound
            if total < -1e-12 or (abs(total) <= 1e-12 and (link.strict or back.strict)):
                return _join(link.why, back.why)
        self.links[x, y] = link
        into = [(i, self.links.get((i, x))) for i in self.terms if i not in (x, y)]
        out = [(j, self.links.get((y, j))) for j in self.terms if j not in (x, y)]
        into = [(x, None), *((i, step) for i, step in into if step is not None)]
        out = [(y, None), *((j, step) for j, step in out if step is not None)]
        for i, first in into:
            for j, last in out:
                if i != j:
                    way = _chain(first, link, last)
                    if way.tighter(self.links.get((i, j))):
                        self.links[i, j] = way
        return None

    def bend(self) -> str | None:
        """Apply the curved laws until nothing moves, or long enough."""
        for _ in range(ROUNDS):
            known = {term: self._range(term) for term in self.terms if term is not None}
            before = dict(self.links)
            for bound in laws.consequences(self.auto.vocabulary, known):
                why = self._bound(bound.term, bound.range, bound.why)
                if why is not None:
                    return why
            if self.links == before:
                return None
        return None

    def _range(self, term: Term) -> laws.Range:
        high, low = self.links.get((term, None)), self.links.get((None, term))
        return laws.Range(-inf if low is None else -low.bound, inf if high is None else high.bound)


def _chain(first: Link | None, link: Link, last: Link | None) -> Link:
    steps = [step for step in (first, link, last) if step is not None]
    bound, strict = sum(step.bound for step in steps), any(step.strict for step in steps)
    return Link(bound, strict, _join(*(step.why for step in steps)))


def _join(*reasons: str) -> str:
    """Return distinct reasons as one text."""
    return "; ".join(dict.fromkeys(part for text in reasons for part in text.split("; ") if part))


def _whole(atom: AtMost) -> Link:
    """Return the link of an atom; between counts, which are whole numbers, `<` is `<=` of the next."""
    whole = all(term is None or _counts(term) for term in (atom.x, atom.y))
    if not whole:
        return Link(atom.bound, atom.strict)
    return Link(ceil(atom.bound) - 1.0 if atom.strict else float(floor(atom.bound)), False)


def _counts(term: Expr) -> bool:
    return isinstance(term, SignalOf) and SIGNALS[term.name].unit == "count"
