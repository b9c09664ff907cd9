"""A difference of two plans as text, for those who review a change of policy."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from tokenrouter.plan.difference import Difference, Expected, Fact, Fires, Place, RuleAt, RuleChange
from tokenrouter.plan.show import columns

MOST = 100  # characters of a value

FIRES: dict[Fires, str] = {
    "same": "fires on the same steps",
    "more": "fires on more steps",
    "fewer": "fires on fewer steps",
    "other": "fires on some other steps",
    "unknown": "",
}


def text(told: Difference) -> str:
    """Return a difference as text; it always says whether the meaning is the same."""
    return "\n".join(_lines(told)) + "\n"


def _lines(told: Difference) -> Iterator[str]:
    program, tuning = (
        tuple(h[:16] for h in pair) for pair in (told.program_hash, told.tuning_hash)
    )
    if told.same_meaning and told.same_tuning:
        yield f"same meaning ({program[0]}), same tuning ({tuning[0]})"
    elif told.same_meaning:
        yield f"same meaning ({program[0]}), other tuning: no request gets other tokens"
    else:
        yield f"the meaning differs: program {program[0]} -> {program[1]}"
        yield from _facts(told.meaning)
        for place in told.places:
            yield ""
            yield from _place(place)
    if told.tuning:
        yield ""
        yield f"tuning {tuning[0]} -> {tuning[1]}"
        yield from (line for fact in told.tuning for line in _fact(fact))
    yield from _expected(told)


def _facts(facts: list[Fact]) -> Iterator[str]:
    for kind, group in groupby(facts, key=lambda fact: fact.kind):
        yield ""
        yield PLURALS.get(kind, kind)
        for fact in group:
            yield from _fact(fact)


PLURALS = {"model": "models", "param": "params", "var": "vars", "head": "heads", "claim": "claims"}


def _fact(fact: Fact) -> Iterator[str]:
    """Yield a fact on one line, or on two where its values are long."""
    if fact.old is None:
        yield f"  + {fact.name}: {fact.new}"
    elif fact.new is None:
        yield f"  - {fact.name}: {fact.old}"
    else:
        parts = [fact.kind] if not fact.name else []
        field = "" if (fact.kind, fact.field) == ("param", "value") else fact.field
        what = " ".join(part for part in (*parts, fact.name, field) if part)
        old, new = _short(fact.old), _short(fact.new)
        if len(old) + len(new) > MOST // 2:
            yield f"  ~ {what}"
            yield f"      was {old}"
            yield f"      now {new}"
        else:
            yield f"  ~ {what}: {old} -> {new}{_direction(fact)}"


def _direction(fact: Fact) -> str:
    """Return whether a dial went up or down."""
    if fact.kind != "param" or fact.field != "value" or fact.old is None or fact.new is None:
        return ""
    try:
        old, new = (float(value.split()[0]) for value in (fact.old, fact.new))
    except ValueError:
        return ""
    if fact.old.split()[1:] != fact.new.split()[1:]:
        return ""  # of two units neither is more
    return " (up)" if new > old else " (down)"


def _short(value: str) -> str:
    return value if len(value) <= MOST else value[: MOST - 3] + "..."


def _place(place: Place) -> Iterator[str]:
    yield place.at if place.at == "start" else f"at {place.at}"
    for change in place.rules:
        last = change.new is not None and change.new.text.startswith("otherwise")
        if not (change.change == "settings" and last):  # the rules above it say it all
            yield from _rule(change)
    if not place.compared:
        yield "  too many cases to say on which steps it acts differently"
    for shift in place.shifts:
        yield f"  {shift.before}  =>  {shift.after}"
        yield from (f"      where {where}" for where in shift.where)


def _rule(change: RuleChange) -> Iterator[str]:
    old, new = change.old, change.new
    if old is None or new is None:
        mark, rule = ("+", new) if old is None else ("-", old)
        assert rule is not None, change
        yield f"  {mark} {_at(rule)}"
        return
    if change.change in ("guard", "action"):
        yield f"  - {_at(old)}"
        yield f"  + {_at(new)}"
    elif change.change == "moved":
        yield f"  > {_at(new)}"
        yield f"      moved: it was rule {old.rule}"
    else:
        yield f"  = {_at(new)}"
    if FIRES[change.fires]:
        yield f"      {FIRES[change.fires]}"


def _at(rule: RuleAt) -> str:
    mark = "" if rule.source == "policy" else f" ({rule.source})"
    line = "" if rule.line is None else f", line {rule.line}"
    return f"rule {rule.rule}{line}{mark}: {rule.text}"


def _expected(told: Difference) -> Iterator[str]:
    """Yield what is expected before and after, where it is not all the same."""
    before, after = told.probabilities
    if told.same_meaning and told.same_tuning and before == after:
        return
    source = before if before == after else f"{before}, then {after}"
    yield ""
    if all(row.old == row.new for row in told.expected):
        yield f"expected shares, hand-offs and cost are the same, from {source} probabilities"
    else:
        yield f"expected, from {source} probabilities"
        yield from columns([("", "before", "after"), *map(_row, told.expected)])
    if "assumed" in told.probabilities and not told.same_meaning:
        yield "  what is assumed does not follow thresholds: compile with --profile for what does"


def _row(row: Expected) -> tuple[str, str, str]:
    return (row.what, row.old or "-", row.new or "-")
