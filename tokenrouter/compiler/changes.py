"""What differs in the rules of two plans: which came, went, moved or fire on other steps, and where they act differently.

Params stand at their values in each plan, so that a dial that was turned tells which rules it makes fire more often. Each
rule is compared with what the rules before it leave. Models of equal fingerprint are one model, whatever they are called.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from tokenrouter.compiler import ir, lift
from tokenrouter.compiler.expr import Arithmetic, Comparison, Every, Expr, Lit, ParamOf, rewrite
from tokenrouter.compiler.feasible import Region, whole
from tokenrouter.compiler.fold import TRUE, fold
from tokenrouter.compiler.steps import Cells, Choice, cells, tell
from tokenrouter.plan.diff import renamed
from tokenrouter.plan.difference import Fires, Kind, Place, RuleAt, RuleChange, Shift
from tokenrouter.plan.structs import Plan
from tokenrouter.plan.text import start_text

MOST_WHERE = 4  # conditions told of one change of action
OTHERWISE = "otherwise"
ONE = Lit(1.0, "count")


@dataclass(frozen=True, slots=True)
class _Rule:
    """A rule as written, and as it acts with the params at their values."""

    told: RuleAt
    guard: str  # as written
    action: str  # as written
    acts: Choice


def places(old: Plan, new: Plan) -> list[Place]:
    """Return what differs in the rules, model by model, the start first; models that act alike are left out."""
    old = renamed(old, new)
    everything = _everything(old, new)
    before, after = _lists(old), _lists(new)
    names = [*before, *(name for name in after if name not in before)]
    found = (_place(everything, name, before.get(name, []), after.get(name, [])) for name in names)
    return [place for place in found if place.rules or place.shifts]


def _everything(old: Plan, new: Plan) -> Region:
    """Return all steps, under the laws that hold for the vocabularies of both plans."""
    names = dict.fromkeys(model.name for plan in (old, new) for model in plan.models)
    return whole(
        ir.Automaton(
            policy=new.policy,
            models=tuple(ir.ModelDecl(name, "", lift.NOWHERE) for name in names),
            start=(),
            states=(),
            span=lift.NOWHERE,
            vocabulary=max(old.tokenizer.size, new.tokenizer.size, 2),
        )
    )


def _lists(plan: Plan) -> dict[str, list[_Rule]]:
    """Return the rules of the start and of every model."""
    lines = {(rule.model, rule.rule): rule.line for rule in plan.provenance.rules}
    out = {"start": [_start_rule(plan, at) for at in range(len(plan.start.rules))]}
    for at, model in enumerate(plan.models):
        state = lift.state(plan, at)
        out[model.name] = [
            _rule(plan, rule, index, lines.get((at, index)))
            for index, rule in enumerate(state.rules)
        ]
    return out


def _start_rule(plan: Plan, at: int) -> _Rule:
    rule = lift.start_rules(plan)[at]
    action = ir.action(True, rule.go).removeprefix("commit then ")
    told = RuleAt(rule=at, line=None, text=start_text(plan, plan.start.rules[at]))
    return _Rule(told, _text(rule.when), action, Choice(_set(plan, rule.when), action))


def _rule(plan: Plan, rule: ir.Rule, index: int, line: int | None) -> _Rule:
    go, when = rule.go, rule.when
    acts = _acts(plan, rule)
    if isinstance(go, ir.Borrow) and not _lasts(go.most):  # a stay below 1 passes the rule over
        least = Comparison(">=", go.most, ONE)
        when = least if when is None else Every((when, least))
    told = RuleAt(rule=index, line=line, text=rule.text, source=rule.source)
    sets = "".join(f" set {item}" for item in rule.sets)
    return _Rule(
        told, _text(rule.when), ir.action(rule.keep, go) + sets, Choice(_set(plan, when), acts)
    )


def _text(guard: Expr | None) -> str:
    return OTHERWISE if guard is None else str(guard)


def _lasts(most: Expr) -> bool:
    return isinstance(most, Lit) and float(most.value) >= 1.0


def _acts(plan: Plan, rule: ir.Rule) -> str:
    """Return an action with the params at their values."""
    go = rule.go
    if isinstance(go, ir.Borrow):
        go = ir.Borrow(go.model, _at_value(plan, go.most), _set(plan, go.until))
    sets = "".join(f" set {item.var} = {_at_value(plan, item.value)}" for item in rule.sets)
    return ir.action(rule.keep, go) + sets


def _at_value(plan: Plan, expr: Expr) -> Expr:
    values = {param.name: Lit(param.value, param.unit) for param in plan.params}
    fixed = fold(rewrite(expr, lambda e: values[e.name] if isinstance(e, ParamOf) else e))
    return rewrite(fixed, _spread)


def _spread(expr: Expr) -> Expr:
    """Return `k * (x + c)` as `k * x + k * c`, so that bounds of `enforce` at several positions compare.

    Only for telling: in floating point the two may differ in the last bit.
    """
    match expr:
        case Arithmetic(
            sign="*", left=Lit() as k, right=Arithmetic(sign="+" | "-", right=Lit() as c) as inner
        ):
            product = Lit(float(f"{float(k.value) * float(c.value):.12g}"), c.unit)
            return Arithmetic(inner.sign, Arithmetic("*", k, inner.left), product)
        case _:
            return expr


def _set(plan: Plan, expr: Expr | None) -> Expr | None:
    """Return a guard with the params at their values; None where every step satisfies it then."""
    found = None if expr is None else _at_value(plan, expr)
    return None if found == TRUE else found


def _place(everything: Region, name: str, old: Sequence[_Rule], new: Sequence[_Rule]) -> Place:
    both = bool(old and new)
    found = cells(everything, [r.acts for r in old], [r.acts for r in new]) if both else None
    changes = [_change(found, kind, a, b) for kind, a, b in _paired(old, new)]
    shown = [
        change
        for change in changes
        if change.change != "settings" or change.fires not in ("same", "unknown")
    ]
    shifts = [] if found is None else list(_shifts(found, old, new))
    return Place(at=name, rules=shown, shifts=shifts, compared=not both or found is not None)


def _change(found: Cells | None, kind: Kind, old: _Rule | None, new: _Rule | None) -> RuleChange:
    fires: Fires = "unknown"
    if old is None or new is None:
        fires = "more" if old is None else "fewer"
    elif found is not None:
        fires = _fires(found, old.told.rule, new.told.rule)
    return RuleChange(
        change=kind,
        old=None if old is None else old.told,
        new=None if new is None else new.told,
        fires=fires,
    )


def _fires(found: Cells, old: int, new: int) -> Fires:
    """Return on how many steps a rule fires, as against before."""
    lost = any(parts for (a, b), parts in found.items() if a == old and b != new)
    won = any(parts for (a, b), parts in found.items() if a != old and b == new)
    if lost and won:
        return "other"
    return "more" if won else "fewer" if lost else "same"


def _shifts(found: Cells, old: Sequence[_Rule], new: Sequence[_Rule]) -> Iterator[Shift]:
    """Yield the changes of action, with the steps on which they show."""
    by: dict[tuple[str, str], list[Region]] = {}
    for (a, b), parts in found.items():
        before = "commit" if a is None else old[a].acts.action
        after = "commit" if b is None else new[b].acts.action
        if before != after and parts:
            by.setdefault((before, after), []).extend(parts)
    for (before, after), regions in by.items():
        where = list(dict.fromkeys(map(tell, regions)))
        more = len(where) - MOST_WHERE
        shown = [*where[:MOST_WHERE], f"{more} more cases"] if more > 1 else where
        yield Shift(before=before, after=after, where=shown)


_Pair = tuple[Kind, _Rule | None, _Rule | None]


def _paired(old: Sequence[_Rule], new: Sequence[_Rule]) -> list[_Pair]:
    """Return what became of each rule: first by whole text, then by action, then by guard; in the new order."""
    a, b = [r.told.text for r in old], [r.told.text for r in new]
    pairs: dict[int, tuple[Kind, int]] = {}  # by new rule
    for tag, i, j, k, _ in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        if tag == "equal":
            pairs |= {k + n: ("settings", i + n) for n in range(j - i)}
    _match(pairs, "moved", a, b)
    _match(pairs, "guard", [_does(r) for r in old], [_does(r) for r in new])
    _match(pairs, "action", [r.guard for r in old], [r.guard for r in new])
    gone = sorted(set(range(len(old))) - {i for _, i in pairs.values()})
    out: list[_Pair] = []
    for k, rule in enumerate(new):
        kind, i = pairs.get(k, ("added", -1))
        while gone and i > gone[0]:
            out.append(("removed", old[gone.pop(0)], None))
        out.append((kind, None if i < 0 else old[i], rule))
    return [*out, *(("removed", old[i], None) for i in gone)]


def _does(rule: _Rule) -> str:
    """Return a rule's action; an `otherwise` is no match for a guarded rule."""
    return f"{'otherwise' if rule.guard == OTHERWISE else 'when'} {rule.action}"


def _match(pairs: dict[int, tuple[Kind, int]], kind: Kind, a: list[str], b: list[str]) -> None:
    """Pair rules of equal key that have no partner yet, in order."""
    taken = {i for _, i in pairs.values()}
    for k, key in enumerate(b):
        if k not in pairs:
            i = next((i for i, mine in enumerate(a) if i not in taken and mine == key), None)
            if i is not None:
                pairs[k] = (kind, i)
                taken.add(i)
