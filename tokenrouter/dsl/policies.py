"""Policies: members, `at any` written out, claims, and what a policy must have.

Needs: a resolved scope. Gives: a `hir.Policy`; None where something in it is wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from tokenrouter.diagnostics import Edit, Fix, Label, Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.claims import Claims
from tokenrouter.dsl.nearest import did_you_mean, nearest
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.rules import Rules, Written, names_in
from tokenrouter.dsl.scope import Scope, snake

OBJECTIVES = ("throughput", "latency")


class PolicyReader:
    """Reads one policy."""

    def __init__(self, scope: Scope, tree: Tree, node: ast.Policy) -> None:
        self.scope, self.tree, self.node = scope, tree, node
        self.found = scope.found
        self.rules = Rules(scope, tree)
        self.name = node.name.text
        self.once: dict[str, ast.Node] = {}
        self.blocks: dict[str, tuple[ast.At, list[Written]]] = {}
        self.astray: list[str] = []  # names of blocks that are no model's, or are there twice
        self.claims: list[hir.Claim] = []
        self.start: tuple[hir.StartRule, ...] | None = None
        self.objective = hir.Objective()
        self.fallback: str | None = None
        self.template: str | None = None

    def span(self, node: ast.Node) -> Span:
        """Return the place of a node."""
        return self.tree.source.span(node.start, node.end)

    def read(self) -> hir.Policy | None:
        """Return the policy, without its tests and comments."""
        for member in self.node.members:
            self._member(member)
        lost = self.tree.is_lost(self.node.start, self.node.end)
        if self.start is None and "start" not in self.once and not lost:
            self.found.add(
                "TR2003",
                f"policy `{self.name}` does not say where a request starts",
                self.span(self.node.name),
                help="add `start MODEL`",
            )
        blocks = self._placed(lost)
        if self.start is None or blocks is None or lost:
            return None
        return hir.Policy(
            name=snake(self.name),
            models=(),
            start=self.start,
            blocks=tuple(blocks.values()),
            claims=tuple(self.claims),
            objective=self.objective,
            fallback=self.fallback,
            template_from=self.template,
            span=self.span(self.node.name),
        )

    def _first(self, key: str, node: ast.Node, what: str) -> bool:
        """Return whether a part of the policy is there for the first time, and report where not."""
        before = self.once.setdefault(key, node)
        if before is not node:
            self.found.add(
                "TR2004",
                f"{what} is there twice",
                self.span(node),
                labels=(Label(self.span(before), "it is here first"),),
                help="remove one of them",
            )
        return before is node

    def _member(self, node: ast.Member) -> None:
        match node:
            case ast.Start():
                if self._first("start", node, "`start`"):
                    self.start = self._start(node)
            case ast.At():
                self._at(node)
            case ast.Claim():
                claim = Claims(self.rules).read(node)
                self.claims += [] if claim is None else [claim]
            case ast.Objective():
                if self._first("objective", node, "`objective`"):
                    self._objective(node)
            case ast.Fallback():
                if self._first("fallback", node, "`fallback`"):
                    self.fallback = self.scope.model(self.tree, node.model)
            case ast.Template():
                if self._first("template", node, "`template`"):
                    self.template = self.scope.model(self.tree, node.model)

    def _start(self, node: ast.Start) -> tuple[hir.StartRule, ...] | None:
        if not isinstance(node.go, ast.StartRules):
            go = self.rules.go_first(node.go)
            return None if go is None else (hir.StartRule(None, go, self.span(node)),)
        made, sound = [], True
        for rule in node.go.rules:
            when = None if rule.when is None else self.rules.expressions.condition(rule.when)
            if when is not None:
                self.rules.before_a_step(when)
            go = self.rules.go_first(rule.go)
            if go is None:
                sound = False
            else:
                made.append(hir.StartRule(when, go, self.span(rule)))
        self._otherwise("`start`", node, node.go.rules)
        return tuple(made) if sound and made else None

    def _otherwise(
        self, what: str, node: ast.Node, rules: tuple[ast.Rule | ast.StartRule, ...]
    ) -> None:
        """Report a block that does not end in its only `otherwise`."""
        ends = [at for at, rule in enumerate(rules) if rule.when is None]
        if not ends and not self.tree.is_lost(node.start, node.end):
            before = self.tree.source.span(node.end - 1, node.end - 1)
            go = f"-> {self._first_model()}" if what == "`start`" else "-> commit"
            self.found.add(
                "TR2001",
                f"{what} has no `otherwise`",
                self.span(node),
                help=f"end it with `otherwise {go}`",
                fix=Fix("add `otherwise`", (Edit(before, f"otherwise {go} "),), safe=False),
            )
        for rule in rules[ends[0] + 1 :] if ends else ():
            self.found.add(
                "TR2002",
                "no rule behind `otherwise` is ever asked",
                self.span(rule),
                labels=(Label(self.span(rules[ends[0]]), "this `otherwise` takes every step"),),
                help="put `otherwise` last",
            )

    def _first_model(self) -> str:
        return next(iter(self.scope.names("model")), "MODEL")

    def _at(self, node: ast.At) -> None:
        any_ = node.model.kind == "ANY"
        model = "any" if any_ else self.scope.model(self.tree, node.model)
        written = [self.rules.rule(rule) for rule in node.rules]
        where = f"`at {node.model.text}`"
        self._otherwise(where, node, node.rules)
        if model is not None and self._first(f"at {model}", node, where):
            self.blocks[model] = (node, written)
        else:
            self.astray.append(node.model.text)

    # Claims

    def _objective(self, node: ast.Objective) -> None:
        name, floor = node.name.text, None
        if name not in OBJECTIVES:
            self.found.add(
                "TR3002",
                f"there is no objective `{name}`",
                self.span(node.name),
                help=did_you_mean(name, OBJECTIVES),
            )
            return
        if node.where is not None:
            floor = _speed(node.where)
            if floor is None or name != "throughput":
                self.found.add(
                    "TR3001",
                    "an objective's floor has another form",
                    self.span(node.where),
                    help="write `objective throughput where speed >= 20 tokens/s`",
                )
                return
        self.objective = hir.Objective(cast("hir.Goal", name), floor, self.span(node))

    # Blocks by model

    def _placed(self, lost: bool) -> dict[str, hir.Block] | None:
        """Return the block of every model that the policy mentions, `at any` written out."""
        borrowed, handed = self._reached()
        rest = self.blocks.get("any")
        made: dict[str, hir.Block] = {}
        sound = True
        mentioned = {*handed, *borrowed, *(set(self.blocks) - {"any"})}
        excused = self._excused([model for model in handed if model not in self.blocks])
        for entry in self.scope.of("model"):
            model = snake(entry.node.name.text)
            if model not in mentioned:
                continue
            own = self.blocks.get(model)
            if own is None and rest is None and model in handed and not lost:
                if model not in excused:
                    self.found.add(
                        "TR2005",
                        f"`{model}` may decide, and has no rules",
                        handed[model],
                        help=f"add `at {model} {{ otherwise -> commit }}`, or `at any`",
                    )
                sound = False
                continue
            node, written = own or rest or (None, [])
            rules = [self._at_model(item, model, own is None) for item in written]
            sound = sound and all(item.sound for item in written)
            span = entry.span() if node is None else self.span(node)
            made[model] = hir.Block(
                model,
                tuple(r for r in rules if r is not None),
                span,
                own is None and rest is not None,
            )
        return made if sound else None

    def _excused(self, without: list[str]) -> set[str]:
        """Return the models whose missing blocks follow from blocks under wrong names, which are told already."""
        left = list(without)
        for name in self.astray:
            if left:
                left.remove(nearest(name, left) or left[0])
        return set(without) - set(left)

    def _reached(self) -> tuple[dict[str, Span], dict[str, Span]]:
        """Return the models that rules borrow from, and those that they hand the request to, each with a place."""
        borrowed: dict[str, Span] = {}
        handed: dict[str, Span] = {}
        for rule in self.start or ():
            for model in targets(rule.go):
                handed.setdefault(model, rule.span)
        for part, named in (("fallback", self.fallback), ("template", self.template)):
            if named is not None:  # `enforce` asks for the fallback's rules, where there is one
                borrowed.setdefault(named, self.span(self.once[part]))
        for _, written in self.blocks.values():
            for item in written:
                go = item.rule.action.go
                into = borrowed if isinstance(go, hir.Borrow) else handed
                for model in targets(go):
                    into.setdefault(model, item.rule.action.span)
        return borrowed, handed

    def _at_model(self, item: Written, model: str, from_any: bool) -> hir.Rule | None:
        """Return a rule as it stands at one model; None where it is passed over there."""
        rule = item.rule
        if not item.sound or not self.rules.fits(rule, model):
            return rule
        go = rule.action.go
        if not isinstance(go, (hir.To, hir.Borrow)) or go.model != model:
            return rule
        stay = replace(rule, action=replace(rule.action, keep=True, go=hir.Stay()))
        if from_any:
            return (
                stay if (rule.action.keep and isinstance(go, hir.To)) or rule.when is None else None
            )
        keep = rule.action.keep and isinstance(go, hir.To)
        fix = (
            Fix("write `commit`", (Edit(rule.action.span, "commit"),), safe=True) if keep else None
        )
        self.found.add(
            "TR2006",
            f"`{model}` hands the request to itself",
            rule.action.span,
            help="`commit` alone stays where it is",
            fix=fix,
        )
        return stay


def targets(go: hir.Go) -> tuple[str, ...]:
    """Return the models that an action may hand the next position to."""
    match go:
        case hir.To() | hir.Borrow():
            return (go.model,)
        case hir.Mix():
            return tuple(model for model, _ in go.weights)
        case _:
            return ()


def _speed(node: ast.Expr) -> float | None:
    """Return x of `speed >= x tokens/s`."""
    if not isinstance(node, ast.Comparison) or [sign.text for sign in node.signs] != [">="]:
        return None
    left, right = node.operands
    if (
        not isinstance(left, ast.Reference)
        or left.name.text != "speed"
        or not isinstance(right, ast.Quantity)
    ):
        return None
    if right.unit is not None and right.unit.text != "tokens/s":
        return None
    value = float(right.number.text.replace("_", ""))
    return value if value > 0 else None


def mentioned(policy: hir.Policy) -> set[str]:
    """Return every declared name that a policy mentions."""
    found = {block.model for block in policy.blocks} | {claim.model for claim in policy.claims}
    found |= {name for name in (policy.fallback, policy.template_from) if name is not None}
    found |= {name for start in policy.start for name in targets(start.go)}
    found |= {case.model for test in policy.tests for case in test.cases if case.model}
    for action in _actions(policy):
        found |= {item.var for item in action.sets} | set(targets(action.go))
    for expr in expressions(policy):
        found |= names_in(expr)
    return found


def expressions(policy: hir.Policy) -> list[hir.Expr]:
    """Return every expression of a policy and its tests."""
    found: list[hir.Expr | None] = [start.when for start in policy.start]
    found += [rule.when for block in policy.blocks for rule in block.rules]
    found += [item.of for test in policy.tests for case in test.cases for item in case.given]
    for action in _actions(policy):
        found += [item.value for item in action.sets]
        if isinstance(action.go, hir.Borrow):
            found += [action.go.most, action.go.until]
    return [expr for expr in found if expr is not None]


def _actions(policy: hir.Policy) -> list[hir.Action]:
    rules = [rule.action for block in policy.blocks for rule in block.rules]
    return rules + [case.expect for test in policy.tests for case in test.cases]
