"""Rules and actions of one policy: syntax tree -> resolved.

Needs: a resolved scope. Gives: rules whose names are known, whose guards are conditions, and which a request may meet at
the model where they stand.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenrouter.diagnostics import Edit, Fix, Label, Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.derive import Derive
from tokenrouter.dsl.expected import reserved
from tokenrouter.dsl.express import Expressions
from tokenrouter.dsl.literals import value_of
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.scope import Scope
from tokenrouter.signals import SIGNALS

ROUNDED = 0.005  # by which per cents may miss 100, as three times 33.3% do


@dataclass(frozen=True, slots=True)
class Written:
    """A rule as read, before it is known at which model it stands; `sound` is false where a mistake is in it."""

    rule: hir.Rule
    sound: bool


class Rules:
    """Reads the rules of one policy."""

    def __init__(self, scope: Scope, tree: Tree) -> None:
        self.scope = scope
        self.tree = tree
        self.found = scope.found
        self.expressions = Expressions(scope, tree, Derive(scope))

    def span(self, node: ast.Node) -> Span:
        """Return the place of a node."""
        return self.tree.source.span(node.start, node.end)

    def rule(self, node: ast.Rule) -> Written:
        """Return a rule."""
        when = None if node.when is None else self.expressions.condition(node.when)
        action = self.action(node.action, node.sets)
        text = self.tree.one_line(node.start, node.end)
        bad = action is None or (when is not None and broken(when))
        blank = hir.Action(True, hir.Stay())
        return Written(hir.Rule(when, action or blank, self.span(node), text), not bad)

    def action(self, node: ast.Action, sets: tuple[ast.Set, ...]) -> hir.Action | None:
        """Return an action; None where something in it is wrong."""
        assigns = self._sets(sets)
        keep, go = self._go(node)
        if go is None or assigns is None:
            return None
        return hir.Action(keep, go, assigns, self.span(node))

    def _go(self, node: ast.Action) -> tuple[bool, hir.Go | None]:
        match node:
            case ast.Commit(then=None):
                return True, hir.Stay()
            case ast.Commit(then=ast.Borrow() as then):
                return True, self._borrow(then)
            case ast.Commit(then=ast.Mix() as then):
                return True, self.mix(then)
            case ast.Commit(then=ast.Tok() as then):
                return True, self._to(then)
            case ast.Retry():
                return False, self._to(node.model)
            case ast.Borrow():
                return False, self._borrow(node)
            case ast.Stop():
                return True, hir.Stop()
            case ast.Mix():
                before = self.tree.source.span(node.start, node.start)
                self.found.add(
                    "TR0214",
                    "a mixture draws the model after a token that is kept",
                    self.span(node),
                    help="write `commit then mix { ... }`",
                    fix=Fix("write `commit then`", (Edit(before, "commit then "),), safe=False),
                )
                self.mix(node)
                return True, None
            case ast.Reserved():
                self.found.extend([reserved(node.word.text, self.span(node.word))])
                return True, None
            case _:
                raise AssertionError(node)

    def _to(self, token: ast.Tok) -> hir.To | None:
        model = self.scope.model(self.tree, token)
        return None if model is None else hir.To(model)

    def go_first(self, node: ast.Tok | ast.Mix) -> hir.To | hir.Mix | None:
        """Return what may stand behind `start`."""
        return self._to(node) if isinstance(node, ast.Tok) else self.mix(node)

    def mix(self, node: ast.Mix) -> hir.Mix | None:
        """Return a mixture with weights that sum to 1."""
        weights: dict[str, float] = {}
        sound = True
        for share in node.shares:
            model = self.scope.model(self.tree, share.model)
            value = value_of(self.scope, self.tree, share.weight, "share")
            if model is None or value is None:
                sound = False
            elif model in weights:
                sound = self._bad_mix("a mixture names each model once", share)
            elif value <= 0:
                sound = self._bad_mix("a weight must be above 0", share)
            else:
                weights[model] = float(value)
        if not node.shares:
            sound = self._bad_mix("a mixture needs a model", node)
        total = sum(weights.values())
        if not sound or not self._whole(node, total):
            return None
        shares = tuple((model, weight / total) for model, weight in weights.items())
        return hir.Mix(shares, tuple(weights.values()))

    def _whole(self, node: ast.Mix, total: float) -> bool:
        """Return whether weights that are all per cents are all of 100, but for what rounding leaves."""
        units = [share.weight.unit.text if share.weight.unit else "" for share in node.shares]
        if {*units} != {"%"} or abs(total - 1) < ROUNDED:
            return True
        self.found.add(
            "TR1109",
            f"these per cents sum to {100 * total:.6g}%, not to 100%",
            self.span(node),
            help="mend one of them, or leave the `%` out: plain weights count by what they are of their sum",
        )
        return False

    def _bad_mix(self, message: str, node: ast.Node) -> bool:
        if not self.tree.is_lost(node.start, node.end):
            self.found.add(
                "TR1109", message, self.span(node), help="as in `mix { small: 0.7  large: 0.3 }`"
            )
        return False

    def _borrow(self, node: ast.Borrow) -> hir.Borrow | None:
        model = self.scope.model(self.tree, node.model)
        until = None
        if isinstance(node.stay, ast.For):
            count = node.stay.count
        else:
            count = node.stay.most
            until = self.expressions.condition(node.stay.condition)
        most = self.expressions.typed(count, "count", "the length of a stay")
        if isinstance(most, hir.Const) and most.unit == "count" and float(most.value) % 1:
            message = "a stay lasts a whole number of tokens"
            help_ = f"such as `{max(1, round(float(most.value)))}`"
            self.found.add("TR1107", message, most.span, help=help_)
        if model is None or broken(most) or (until is not None and broken(until)):
            return None
        return hir.Borrow(model, most, until)

    def _sets(self, nodes: tuple[ast.Set, ...]) -> tuple[hir.Assign, ...] | None:
        assigns: dict[str, hir.Assign] = {}
        sound = True
        for node in nodes:
            entry = self.scope.get(node.name.text)
            if entry is None:
                self.found.unknown(
                    "TR1012",
                    "request variable",
                    node.name.text,
                    self.span(node.name),
                    self.scope.names("var"),
                )
                self.expressions.read(node.value)  # its names are names all the same
                sound = False
                continue
            entry.used = True
            if self.scope.doubled(node.name.text):
                sound = False
                continue
            if entry.kind != "var":
                self.found.add(
                    "TR1112",
                    f"`{node.name.text}` is a {entry.kind}, and only a var can be set",
                    self.span(node.name),
                    labels=(Label(entry.span(), "it is declared here"),),
                    help=f"declare `var NAME: UNIT = VALUE` beside the {entry.kind}",
                )
                sound = False
                continue
            if not isinstance(entry.hir, hir.Var):
                sound = False
                continue
            value = self.expressions.typed(node.value, entry.hir.unit, f"`{node.name.text}`")
            sound = sound and not broken(value)
            if entry.hir.name in assigns:
                self.found.add(
                    "TR2009",
                    f"`{node.name.text}` is set twice by one rule",
                    self.span(node),
                    labels=(Label(assigns[entry.hir.name].span, "it is set here first"),),
                    help="a rule sets a var once, to one value: leave one of the two out",
                )
                sound = False
            assigns[entry.hir.name] = hir.Assign(entry.hir.name, value, self.span(node))
        return tuple(assigns.values()) if sound else None

    # Where an expression may stand

    def fits(self, rule: hir.Rule, model: str) -> bool:
        """Return whether the heads that a rule reads are those of its model, and report where not."""
        sound = True
        parts = [rule.when, *(item.value for item in rule.action.sets)]
        go = rule.action.go
        if isinstance(go, hir.Borrow):
            parts.append(go.most)
            sound = self.own_heads(go.until, go.model)
        return sum(not self.own_heads(part, model) for part in parts) == 0 and sound

    def own_heads(self, expr: hir.Expr | None, model: str) -> bool:
        """Return whether the heads in an expression are those of a model, and report where not."""
        if expr is None:
            return True
        sound = True
        for part in hir.walk(expr):
            if isinstance(part, hir.HeadRef):
                entry = self.scope.get(part.name, "head")
                head = entry.hir if entry else None
                if isinstance(head, hir.Head) and head.model != model:
                    self.found.add(
                        "TR2007",
                        f"head `{part.name}` reads steps of `{head.model}`, and this is asked at `{model}`",
                        _inside(part.span, expr),
                        labels=(Label(head.span, "it is declared here"),),
                        help=f"ask it in the rules of `{head.model}`, whose steps it reads",
                    )
                    sound = False
        return sound

    def before_a_step(self, expr: hir.Expr) -> None:
        """Report what a start rule cannot know."""
        part = reads_a_step(expr)
        if part is not None:
            self.found.add(
                "TR2008",
                "a start rule is asked before any step, and this reads one",
                _inside(part.span, expr),
                help=IN_START,
            )


IN_START = "a start rule may read params, request fields, and " + ", ".join(
    f"`{name}`" for name, kind in SIGNALS.items() if kind.in_start
)


def reads_a_step(expr: hir.Expr) -> hir.Expr | None:
    """Return the first part of an expression that a start rule cannot know."""
    for part in hir.walk(expr):
        step = isinstance(part, (hir.HeadRef, hir.Window, hir.TokenIn, hir.ClassIs, hir.VarRef))
        if step or (isinstance(part, hir.SignalRef) and not SIGNALS[part.name].in_start):
            return part
    return None


def broken(expr: hir.Expr) -> bool:
    """Return whether a mistake is in an expression."""
    return any(part.unit == "any" for part in hir.walk(expr))


def _inside(span: Span, expr: hir.Expr) -> Span:
    """Return a place in the rule itself: that of the part, or of the derived signal that brought it."""
    return (
        span
        if span.file == expr.span.file and expr.span.start <= span.start < expr.span.end
        else expr.span
    )


def names_in(expr: hir.Expr) -> set[str]:
    """Return the declared names in an expression, those behind derived signals included."""
    found: set[str] = set()
    for part in hir.walk(expr):
        match part:
            case hir.ParamRef() | hir.VarRef() | hir.HeadRef() | hir.Derived():
                found.add(part.name)
            case hir.SignalRef():
                found |= {arg for arg in part.args if isinstance(arg, str)}
            case _:
                pass
    return found
