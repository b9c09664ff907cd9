"""Policies: members, `at any` written out, claims, and what a policy must have.

Needs: a resolved scope. Gives: a `hir.Policy`; None where something in it is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tokenrouter.diagnostics import Edit, Fix, Label, Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.claims import Claims
from tokenrouter.dsl.nearest import did_you_mean, nearest
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.rules import Rules, Written, names_in
from tokenrouter.dsl.scope import Scope, snake

OBJECTIVES = ("throughput", "latency")


@dataclass(frozen=True, slots=True, eq=False)
class AtRead:
    """An `at` block as read; `model` is None where nothing is declared by that name."""

    rules: Rules
    model: str | None
    name: str  # as written
    span: Span
    written: list[Written]

    def at(self, rules: Rules, model: str, *, own: bool) -> hir.Block:
        """Return the block of a model; not its `own` where it is `at any`. What is wrong with that is told by `rules`."""
        made = [_at_model(rules, item, model, not own) for item in self.written]
        return hir.Block(model, tuple(r for r in made if r is not None), self.span, not own)


def read_at(scope: Scope, tree: Tree, node: ast.At) -> AtRead:
    """Read an `at` block."""
    rules = Rules(scope, tree)
    model = "any" if node.model.kind == "ANY" else scope.model(tree, node.model)
    written = [rules.rule(rule) for rule in node.rules]
    _otherwise(rules, f"`at {node.model.text}`", node, node.rules)
    return AtRead(rules, model, node.model.text, rules.span(node), written)


class PolicyReader:
    """Reads one policy, whose members may be in more than one tree; `known` may know `at` blocks from before."""

    def __init__(
        self,
        scope: Scope,
        tree: Tree,
        node: ast.Policy,
        more: Sequence[tuple[Tree, ast.Policy]] = (),
        known: Callable[[Tree, ast.At], tuple[AtRead, hir.Block | None]] | None = None,
    ) -> None:
        self.scope, self.tree, self.node, self.more = scope, tree, node, more
        self.known = known or (lambda tree, node: (read_at(scope, tree, node), None))
        self.found = scope.found
        self.rules = Rules(scope, tree)
        self.name = node.name.text
        self.once: dict[str, Span] = {}
        self.blocks: dict[str, tuple[AtRead, hir.Block | None]] = {}
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
        lost = self.tree.is_lost(self.node.start, self.node.end)
        first, rules = self.tree, self.rules
        for member in self.node.members:
            self._member(member)
        for tree, node in self.more:
            lost = lost or bool(tree.lost)
            self.tree, self.rules = tree, Rules(self.scope, tree)
            for member in node.members:
                self._member(member)
        self.tree, self.rules = first, rules
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
        return self._is_first(key, self.span(node), what)

    def _is_first(self, key: str, span: Span, what: str) -> bool:
        before = self.once.setdefault(key, span)
        if before is not span:
            self.found.add(
                "TR2004",
                f"{what} is there twice",
                span,
                labels=(Label(before, "it is here first"),),
                help="remove one of them",
            )
        return before is span

    def _member(self, node: ast.Member) -> None:
        match node:
            case ast.Start():
                if self._first("start", node, "`start`"):
                    self.start = self._start(node)
            case ast.At():
                self._at(*self.known(self.tree, node))
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
        _otherwise(self.rules, "`start`", node, node.go.rules)
        return tuple(made) if sound and made else None

    def _at(self, read: AtRead, block: hir.Block | None) -> None:
        model = read.model
        if model is not None and self._is_first(f"at {model}", read.span, f"`at {read.name}`"):
            self.blocks[model] = read, block
        else:
            self.astray.append(read.name)

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
            read, block = own or rest or (None, None)
            if read is None:
                made[model] = hir.Block(model, (), entry.span())
                continue
            sound = sound and all(item.sound for item in read.written)
            made[model] = block or read.at(self.rules, model, own=own is not None)
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
                borrowed.setdefault(named, self.once[part])
        for read, _ in self.blocks.values():
            for item in read.written:
                go = item.rule.action.go
                into = borrowed if isinstance(go, hir.Borrow) else handed
                for model in targets(go):
                    into.setdefault(model, item.rule.action.span)
        return borrowed, handed


def _otherwise(
    reader: Rules, what: str, node: ast.Node, rules: tuple[ast.Rule | ast.StartRule, ...]
) -> None:
    """Report a block that does not end in its only `otherwise`."""
    ends = [at for at, rule in enumerate(rules) if rule.when is None]
    if not ends and not reader.tree.is_lost(node.start, node.end):
        before = reader.tree.source.span(node.end - 1, node.end - 1)
        first = next(iter(reader.scope.names("model")), "MODEL")
        go = f"-> {first}" if what == "`start`" else "-> commit"
        reader.found.add(
            "TR2001",
            f"{what} has no `otherwise`",
            reader.span(node),
            help=f"end it with `otherwise {go}`",
            fix=Fix("add `otherwise`", (Edit(before, f"otherwise {go} "),), safe=False),
        )
    for rule in rules[ends[0] + 1 :] if ends else ():
        reader.found.add(
            "TR2002",
            "no rule behind `otherwise` is ever asked",
            reader.span(rule),
            labels=(Label(reader.span(rules[ends[0]]), "this `otherwise` takes every step"),),
            help="put `otherwise` last",
        )


def _at_model(rules: Rules, item: Written, model: str, from_any: bool) -> hir.Rule | None:
    """Return a rule as it stands at one model; None where it is passed over there."""
    rule = item.rule
    if not item.sound or not rules.fits(rule, model):
        return rule
    go = rule.action.go
    if not isinstance(go, (hir.To, hir.Borrow)) or go.model != model:
        return rule
    stay = replace(rule, action=replace(rule.action, keep=True, go=hir.Stay()))
    if from_any:
        return stay if (rule.action.keep and isinstance(go, hir.To)) or rule.when is None else None
    keep = rule.action.keep and isinstance(go, hir.To)
    fix = Fix("write `commit`", (Edit(rule.action.span, "commit"),), safe=True) if keep else None
    rules.found.add(
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


def mentioned(
    policy: hir.Policy, in_block: Callable[[hir.Block], frozenset[str]] | None = None
) -> set[str]:
    """Return every declared name that a policy mentions; `in_block` may know those of a block from before."""
    found = {claim.model for claim in policy.claims}
    found |= {name for name in (policy.fallback, policy.template_from) if name is not None}
    found |= {name for start in policy.start for name in targets(start.go)}
    cases = [case for test in policy.tests for case in test.cases]
    found |= {case.model for case in cases if case.model}
    found |= _in_actions(case.expect for case in cases)
    given = [item.of for case in cases for item in case.given]
    for expr in [*(start.when for start in policy.start if start.when is not None), *given]:
        found |= names_in(expr)
    return found.union(*map(in_block or mentioned_in, policy.blocks))


def mentioned_in(block: hir.Block) -> frozenset[str]:
    """Return every declared name that a block mentions."""
    found = {block.model} | _in_actions(rule.action for rule in block.rules)
    for rule in block.rules:
        found |= set() if rule.when is None else names_in(rule.when)
    return frozenset(found)


def _in_actions(actions: Iterable[hir.Action]) -> set[str]:
    found: set[str] = set()
    for action in actions:
        found |= {item.var for item in action.sets} | set(targets(action.go))
        for expr in parts_of(action):
            found |= names_in(expr)
    return found


def expressions(policy: hir.Policy) -> list[hir.Expr]:
    """Return every expression of a policy and its tests."""
    found: list[hir.Expr | None] = [start.when for start in policy.start]
    found += [rule.when for block in policy.blocks for rule in block.rules]
    found += [item.of for test in policy.tests for case in test.cases for item in case.given]
    rules = [rule.action for block in policy.blocks for rule in block.rules]
    for action in rules + [case.expect for test in policy.tests for case in test.cases]:
        found += parts_of(action)
    return [expr for expr in found if expr is not None]


def parts_of(action: hir.Action) -> list[hir.Expr]:
    """Return the expressions of an action."""
    found: list[hir.Expr | None] = [item.value for item in action.sets]
    if isinstance(action.go, hir.Borrow):
        found += [action.go.most, action.go.until]
    return [expr for expr in found if expr is not None]
