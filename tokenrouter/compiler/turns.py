"""What guards ask of a request's past while one position goes from model to model and nothing is kept.

Vars are carried through the `set`s of the rules as values in terms of what they were before the first; `switches` is one
more after each hand-off; `since_switch` is 0 behind one; `elapsed` is another term each time, none below the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tokenrouter.compiler.atoms import linear
from tokenrouter.compiler.expr import (
    Aggregate,
    Arithmetic,
    ClassOf,
    Comparison,
    Every,
    Expr,
    HeadOf,
    Lit,
    Negation,
    SignalOf,
    TokenIs,
    VarOf,
    rewrite,
    walk,
)
from tokenrouter.compiler.fold import TRUE, fold
from tokenrouter.compiler.ir import Rule

# Equal for every model that has its turn at one position.
STEADY = {"position", "prompt_tokens", "count", "share"}
SWITCHES = SignalOf("switches")
SINCE = SignalOf("since_switch")
ELAPSED = SignalOf("elapsed")


@dataclass(frozen=True, slots=True)
class Past:
    """A request's past at one step of the way; a var that is not in `values` is as it was before the first."""

    values: dict[str, Expr] = field(default_factory=dict)
    handed: int = 0  # hand-offs so far
    changed: bool = (
        False  # whether anything that a guard read or a rule set is another on the next round
    )
    timed: int | None = None  # the last step at which a guard read `elapsed`
    grown: dict[str, float] = field(default_factory=dict)  # by var, what a round adds to it
    switched: int = 0  # hand-offs of a round; 0 on the first

    def asks(self, guard: Expr | None, above: tuple[Expr, ...] = ()) -> tuple[Expr, Past]:
        """Return what a guard asks of the past, and that the rules `above` do not hold, in terms of the beginning.

        With it comes the past, that being asked.
        """
        own = guard.of if isinstance(guard, Every) else () if guard is None else (guard,)
        parts = (*own, *map(Negation, above))
        asked = [part for part in map(self._at, parts) if is_steady(part)]
        read = {leaf for part in parts for leaf in walk(part)}
        past = self
        if ELAPSED in read:
            if self.timed is not None:
                asked.append(Comparison("<=", _time(self.timed), _time(self.handed)))
            past = replace(past, timed=self.handed)
        if read & {ELAPSED, SWITCHES, SINCE}:
            past = replace(past, changed=True)
        return fold(Every(tuple(asked))) if asked else TRUE, past

    def after(self, rule: Rule) -> Past:
        """Return the past after a rule that hands the position on."""
        values = self.values | {item.var: self._at(item.value) for item in rule.sets}
        changed = self.changed or bool(rule.sets)
        return replace(self, values=values, handed=self.handed + 1, changed=changed)

    def once_more(self) -> Past:
        """Return the past at the end of a round, at the beginning of a second, knowing what a round adds."""
        ends = {var: linear(value) for var, value in self.values.items()}
        grown = {
            var: offset
            for var, (term, offset) in ends.items()
            if isinstance(term, VarOf) and term.name == var
        }
        return replace(self, grown=grown, switched=self.handed)

    def growth(self, term: Expr | None) -> float:
        """Return what a round is known to add to a term."""
        match term:
            case VarOf(name=name):
                return self.grown.get(name, 0.0)
            case SignalOf(name="switches"):
                return float(self.switched)
            case _:
                return 0.0

    def _at(self, expr: Expr) -> Expr:
        return fold(rewrite(expr, self._now))

    def _now(self, part: Expr) -> Expr:
        match part:
            case VarOf():
                return self.values.get(part.name, part)
            case SignalOf(name="switches"):
                return Arithmetic("+", part, Lit(float(self.handed), "count"))
            case SignalOf(name="since_switch") if self.handed:
                return Lit(0.0, "count")
            case SignalOf(name="elapsed"):
                return _time(self.handed)
            case _:
                return part


def _time(step: int) -> SignalOf:
    """Return `elapsed` as it was at a step."""
    return SignalOf("elapsed", (step,))


def is_steady(part: Expr) -> bool:
    """Return whether a part of a guard asks of nothing but the past."""
    known = STEADY | {"switches", "since_switch", "elapsed"}
    return all(
        leaf.name in known
        if isinstance(leaf, SignalOf)
        else not isinstance(leaf, (HeadOf, Aggregate, TokenIs, ClassOf))
        for leaf in walk(part)
    )
