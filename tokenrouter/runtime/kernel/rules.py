"""The rules of a program as lines of a kernel: written from the last to the first, so that the first that holds wins."""

from __future__ import annotations

from tokenrouter.plan.structs import Borrow, Mix, Rule, Stay, Stop, To
from tokenrouter.plan.text import rule_text
from tokenrouter.runtime.kernel.layout import STOP, TRIED
from tokenrouter.runtime.kernel.nodes import Names, plain
from tokenrouter.runtime.random import MIX


def rule_lines(names: Names) -> list[str]:
    """Return the lines that set `rule`, `keep` and `target`."""
    lines = []
    rules = names.rules
    if any(isinstance(rule.go, Mix) for rule in rules):
        lines.append(f"u = draw(seed, position + 1, {names.model}, {MIX})")
    if not rules or _guards(rules[-1]):
        lines.append("# no rule: the candidate is kept, the request stays")
        lines += _begin(len(rules), "1", str(names.model))
    for at in reversed(range(len(rules))):
        lines.append(f"# rule {at}: {plain(rule_text(names.plan, names.model, rules[at]))}")
        lines += _rule(names, at, rules[at])
    return lines


def _begin(rule: int, keep: str, target: str) -> list[str]:
    """Return the lines that decide unless a rule above fires."""
    found = {"rule": str(rule), "keep": keep, "target": target}
    return [
        f"{name} = {value}"
        if "tl." in value or value.startswith("drawn")
        else f"{name} = tl.full([], {value}, tl.int32)"
        for name, value in found.items()
    ]


def _guards(rule: Rule) -> list[str]:
    """Return what must hold for a rule to fire."""
    guards = [] if rule.when is None else [f"n{rule.when}"]
    if isinstance(rule.go, Borrow):
        guards.append(f"(n{rule.go.most} >= 1)")
    return guards


def _rule(names: Names, at: int, rule: Rule) -> list[str]:
    lines: list[str] = []
    keep, target = str(int(rule.keep)), str(names.model)
    match rule.go:
        case Stay():
            pass
        case Stop():
            target = str(STOP)
        case Borrow(model=lender):
            target = str(lender)
        case Mix():
            target = f"drawn{at}"
            lines += _drawn(target, rule.go)
        case To(model=other):
            target = str(other)
            if not rule.keep:
                # A target that had its turn at this position is not asked again.
                lines.append(f"tried = (tl.load(words + {TRIED}) >> {other}) & 1")
                keep = "tried.to(tl.int32)"
                target = f"tl.where(tried != 0, {names.model}, {other})"
    guards = _guards(rule)
    if not guards:
        return lines + _begin(at, keep, target)
    return [
        *lines,
        f"fires = {' & '.join(guards)}",
        f"rule = tl.where(fires, {at}, rule)",
        f"keep = tl.where(fires, {keep}, keep)",
        f"target = tl.where(fires, {target}, target)",
    ]


def _drawn(name: str, mix: Mix) -> list[str]:
    """Return the lines that pick a component by the number `u`, as `start.draw` does."""
    lines = [f"{name} = tl.full([], {mix.weights[-1].model}, tl.int32)"]
    running, below = 0.0, []
    for share in mix.weights:
        running += share.weight
        below.append((running, share.model))
    lines += [
        f"{name} = tl.where(u < {running!r}, {model}, {name})" for running, model in reversed(below)
    ]
    return lines


def until_lines(names: Names) -> list[str]:
    """Return the lines that set `untils`, a bit for each condition that ends a borrowed stay here."""
    lines = ["untils = tl.full([], 0, tl.int32)"]
    for at, node in enumerate(names.plan.programs[names.model].untils):
        lines.append(f"untils = tl.where(n{node}, untils | {1 << at}, untils)")
    return lines
