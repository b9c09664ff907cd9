"""Whether some step can satisfy a conjunction of atoms: bounds on differences, closed under the signals' laws.

A region holds, for each pair of terms, the tightest known bound on their difference (a difference-bound matrix; term 0
is the number 0). Assuming an atom closes it again over all pairs; then the curved laws tighten single terms until nothing
moves. A region that turns out empty is certain to be so; one that does not may still be, since laws that are not written
down and terms that are not linear are held for free. Most questions need no closure: an atom that a region implies changes
nothing, and one that contradicts a single link leaves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from tokenrouter.compiler import laws
from tokenrouter.compiler.expr import ClassOf, Comparison, Expr, Lit, TokenIs
from tokenrouter.compiler.ir import Automaton
from tokenrouter.compiler.space import ZERO, Bound, Fact, Link, Space, Way, bounds, join
from tokenrouter.plan.literal import quote
from tokenrouter.signals import lexical_class

MOST_TERMS = 24  # a guard over more terms is held for free beyond them
MOST_FACTS = 1024  # likewise; a region that holds more is copied for too long
ROUNDS = 4  # of the curved laws; each only tightens, so stopping early is safe


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

    space: Space
    links: dict[tuple[int, int], Link] = field(default_factory=dict)
    terms: tuple[int, ...] = (ZERO,)
    facts: dict[Expr, bool] = field(default_factory=dict)
    equal: dict[Expr, Lit] = field(default_factory=dict)  # texts and bools that are known
    texts: Texts = field(default_factory=Texts)

    def assume(self, way: Way) -> Region | Empty:
        """Return the part of this region that goes a way; the region itself where all of it does."""
        ready = self._ready(way)
        if ready is not self:
            return ready.assume(way)
        new = [atom for atom in way if not self._implies(atom)]
        if not new:
            return self
        draft = self._draft()
        for atom in new:
            why = draft.add(atom)
            if why is not None:
                return Empty(why)
        return draft.done()

    def part(self, way: Way) -> Region | None:
        """Return the part that goes a way, or None; where one link forbids it, without closing anything."""
        if self._forbids(way):
            return None
        part = self.assume(way)
        return part if isinstance(part, Region) else None

    def meets(self, way: Way) -> bool:
        """Return whether some step here goes a way."""
        ready = self._ready(way)
        if ready is not self:
            return ready.meets(way)
        if self._forbids(way):
            return False
        new = [atom for atom in way if not self._implies(atom)]
        if not new:
            return True
        if len(new) == 1 and isinstance(new[0], Bound) and not self.space.bends(self.terms):
            x, y, _ = new[0]
            if x != y and x in self.terms and y in self.terms:  # the bounds are closed
                links = {**self.links, (x, y): new[0].link}
                return no_maxprob(self.space, self.terms, links) is None
        return isinstance(self.assume(way), Region)

    def aware(self, ways: list[Way]) -> Region | None:
        """Return the same steps with what the laws say of the terms of some ways; None where there are none."""
        terms = [t for way in ways for atom in way if isinstance(atom, Bound) for t in atom[:2]]
        if all(term in self.terms for term in terms):
            return self
        draft = self._draft()
        for term in terms:
            if draft.mention(term) is not None:
                return None
        done = draft.done()
        return done if isinstance(done, Region) else None

    def within(self, other: Region) -> bool:
        """Return whether the bounds and facts here say all that another region's do."""
        links = self.links
        return (
            all(
                (mine := links.get(pair)) is not None and not link.tighter(mine)
                for pair, link in other.links.items()
            )
            and other.facts.items() <= self.facts.items()
        )

    def _ready(self, way: Way) -> Region:
        """Return, for the region of all steps, the same with the terms of a way mentioned, which most ways share."""
        if len(self.terms) > 1 or self.facts:
            return self
        terms = tuple(dict.fromkeys(t for atom in way if isinstance(atom, Bound) for t in atom[:2]))
        ready = self.space.ready
        if terms not in ready:
            draft = self._draft()
            sound = all(draft.mention(term) is None for term in terms)
            ready[terms] = draft.region() if sound and len(draft.terms) > 1 else self
        known = ready[terms]
        assert isinstance(known, Region), known
        return known

    def _draft(self) -> _Draft:
        return _Draft(
            self.space,
            dict(self.links),
            list(self.terms),
            dict(self.facts),
            dict(self.equal),
            self.texts,
        )

    def _forbids(self, way: Way) -> bool:
        """Return whether one atom of a way contradicts one link or fact."""
        for atom in way:
            if isinstance(atom, Fact):
                if self.facts.get(atom.term, atom.value) != atom.value:
                    return True
            else:
                back = self.links.get((atom.y, atom.x))
                if back is not None and atom.link.against(back):
                    return True
        return False

    def _implies(self, atom: Bound | Fact) -> bool:
        if isinstance(atom, Fact):
            return self.facts.get(atom.term) == atom.value
        known = self.links.get((atom.x, atom.y))
        return known is not None and not atom.link.tighter(known)


def whole(auto: Automaton) -> Region:
    """Return the region of all steps of a policy."""
    return Region(Space(auto))


@dataclass(eq=False, slots=True)
class _Draft:
    """A region that is being tightened. Its methods return why it became empty, or None."""

    space: Space
    links: dict[tuple[int, int], Link]
    terms: list[int]
    facts: dict[Expr, bool]
    equal: dict[Expr, Lit]
    texts: Texts

    def add(self, atom: Bound | Fact) -> str | None:
        if isinstance(atom, Fact):
            return self._fact(atom)
        if atom.x == atom.y == ZERO:
            empty = atom.link.bound < 0.0 or (atom.link.bound == 0.0 and atom.link.strict)
            return "" if empty else None
        x, y, link = atom
        for term in (x, y):
            why = None if term in self.terms else self.mention(term)
            if why is not None:
                return why
        return self._link(x, y, link) if x in self.terms and y in self.terms else None

    def _fact(self, atom: Fact) -> str | None:
        if len(self.facts) >= MOST_FACTS and atom.term not in self.facts:
            return None
        if self.facts.setdefault(atom.term, atom.value) != atom.value:
            return ""
        match atom.term:
            case TokenIs():
                left = self.texts.narrow(frozenset(atom.term.texts), atom.value)
                if left is None:
                    return ""
                self.texts = left
                return None if left.among is None else self._class()
            case ClassOf() if atom.value:
                return self._class()
            case Comparison(left=x, right=Lit() as literal) if atom.value:
                known = self.equal.setdefault(x, literal)
                if known != literal:
                    return f"`{x}` cannot be {known} and {literal} at once"
            case _:
                pass
        return None

    def _class(self) -> str | None:
        """Hold the candidate to one class, and its text to that."""
        names = [
            term.name for term, holds in self.facts.items() if holds and isinstance(term, ClassOf)
        ]
        if len(names) > 1:
            return "a token has one class"
        among = self.texts.among
        if not names or among is None or names[0] == "special":
            return None  # a control token may have any text, which only its vocabulary knows
        fitting = frozenset(text for text in among if lexical_class(text) == names[0])
        if fitting:
            self.texts = replace(self.texts, among=fitting)
            return None
        text = min(among)
        return f"{quote(text)} is of class {lexical_class(text) or 'none'}"

    def mention(self, term: int) -> str | None:
        """Bring in a term with its range and the laws between it and the terms that are here."""
        if term in self.terms or len(self.terms) >= MOST_TERMS:
            return None
        others = list(self.terms)
        self.terms.append(term)
        for bound in self.space.range(term):
            why = self._link(bound.x, bound.y, bound.link)
            if why is not None:
                return why
        for other in others:
            for bound in self.space.between(term, other):
                why = self._link(bound.x, bound.y, bound.link)
                if why is not None:
                    return why
        return None

    def _link(self, x: int, y: int, link: Link) -> str | None:
        """Tighten one pair and close over all others; every shortest way through the new link is looked at."""
        links = self.links
        if not link.tighter(links.get((x, y))):
            return None
        back = links.get((y, x))
        if back is not None and link.against(back):
            return join(link.why, back.why)
        links[x, y] = link
        others = [term for term in self.terms if term != x and term != y]
        into = [(i, step) for i in others if (step := links.get((i, x))) is not None]
        out = [(j, step) for j in others if (step := links.get((y, j))) is not None]
        for j, last in out:
            self._close(x, j, link.bound + last.bound, link.strict or last.strict, link, last)
        for i, first in into:
            bound, strict = first.bound + link.bound, first.strict or link.strict
            self._close(i, y, bound, strict, first, link)
            for j, last in out:
                if i != j:
                    self._close(i, j, bound + last.bound, strict or last.strict, first, link, last)
        return None

    def _close(self, i: int, j: int, bound: float, strict: bool, *way: Link) -> None:
        """Tighten the bound between two terms to that of a way of links, where it is tighter."""
        known = self.links.get((i, j))
        if known is None or bound < known.bound or (bound == known.bound and strict > known.strict):
            self.links[i, j] = Link(bound, strict, join(*(link.why for link in way)))

    def done(self) -> Region | Empty:
        """Return the region, after the curved laws, which turn on `maxprob` whether a guard names it or not."""
        if self.space.maxprob not in self.terms:
            why = no_maxprob(self.space, self.terms, self.links)
        else:
            why = None
        if why is None and len(self.terms) > 2 and self.space.bends(self.terms):
            why = self._bend()
        return self.region() if why is None else Empty(why)

    def region(self) -> Region:
        """Return the region as it stands."""
        return Region(self.space, self.links, tuple(self.terms), self.facts, self.equal, self.texts)

    def _bend(self) -> str | None:
        """Apply the curved laws until nothing moves, or long enough."""
        number, auto = self.space.number, self.space.auto
        for _ in range(ROUNDS):
            terms = [(term, self.space.terms[term]) for term in self.terms]
            known = {e: span_of(term, self.links) for term, e in terms if e is not None}
            moved = False
            for bound in laws.consequences(auto.vocabulary, self.space.models, known):
                for link in bounds(number(bound.term), bound.range, ""):
                    if link.link.tighter(self.links.get((link.x, link.y))):
                        moved = True
                        told = link.link._replace(why=bound.why.format(*bound.of))
                        why = self._link(link.x, link.y, told)
                        if why is not None:
                            return why
            if not moved:
                return None
        return None


def span_of(term: int, links: dict[tuple[int, int], Link]) -> laws.Range:
    """Return where a term lies."""
    high, low = links.get((term, ZERO)), links.get((ZERO, term))
    return laws.Range(-inf if low is None else -low.bound, inf if high is None else high.bound)


def no_maxprob(
    space: Space, terms: Sequence[int], links: dict[tuple[int, int], Link]
) -> str | None:
    """Return why no largest probability goes with all terms that it is tied to; None where one does."""
    bent = [term for term in terms if term in space.bent]
    if len(bent) < 2:
        return None
    known = [(space.bent[term], span_of(term, links)) for term in bent]
    return laws.no_maxprob(space.auto.vocabulary, known)
