"""`test` blocks: syntax tree -> resolved cases.

Needs: resolved scope and policies. Gives: the tests of each policy; a case with a mistake in it is told and left out.
"""

from __future__ import annotations

from tokenrouter.diagnostics import Label
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.expected import ACTIONS
from tokenrouter.dsl.fitting import unify
from tokenrouter.dsl.nearest import did_you_mean, nearest
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.rules import IN_START, Rules, reads_a_step
from tokenrouter.dsl.scope import Scope, snake
from tokenrouter.signals import lexical_class


def read_test(scope: Scope, tree: Tree, node: ast.Test) -> tuple[str, hir.Test]:
    """Return the name of a test's policy, and the test."""
    reader = _Cases(scope, tree)
    cases = tuple(case for case in map(reader.case, node.cases) if case is not None)
    name = reader.rules.expressions.text(node.name)
    text = tree.source.text[node.start : node.end]
    span = tree.source.span(node.name.start, node.name.end)
    return snake(node.policy.text), hir.Test(name, cases, span, text)


class _Cases:
    """Reads the cases of one test."""

    def __init__(self, scope: Scope, tree: Tree) -> None:
        self.scope, self.tree = scope, tree
        self.rules = Rules(scope, tree)

    def case(self, node: ast.Case) -> hir.Case | None:
        """Return one line of a test."""
        model = None if node.model is None else self.scope.model(self.tree, node.model)
        givens = [self._given(item) for item in node.givens]
        if isinstance(node.expect, ast.Tok) or (
            node.model is None and isinstance(node.expect, ast.Mix)
        ):
            if node.model is not None and self._no_action(node.expect):
                return None
            go = self.rules.go_first(node.expect)
            expect = None if go is None else hir.Action(True, go, (), self.rules.span(node.expect))
        else:
            expect = self.rules.action(node.expect, node.sets)
        if expect is None or None in givens or (node.model is not None and model is None):
            return None
        found = tuple(item for item in givens if item is not None)
        if model is None and self._before_a_step(found):
            return None
        if model is not None and not all(self.rules.own_heads(item.of, model) for item in found):
            return None
        if self._contradicts(found):
            return None
        text = self.tree.one_line(node.start, node.end)
        return hir.Case(model, found, expect, self.rules.span(node), text)

    def _no_action(self, expect: ast.Tok | ast.Mix) -> bool:
        """Report a word behind `->` that is neither an action nor a model; return whether it is that."""
        if isinstance(expect, ast.Mix) or self.scope.get(expect.text) is not None:
            return False
        if nearest(expect.text, self.scope.names("model")) is not None:
            return False
        self.scope.found.add(
            "TR0212",
            f"`{expect.text}` is no action",
            self.rules.span(expect),
            help=did_you_mean(expect.text, ACTIONS),
        )
        return True

    def _before_a_step(self, givens: tuple[hir.Given, ...]) -> bool:
        """Tell of what a case of the start rules cannot suppose; return whether there is any."""
        for item in givens:
            if reads_a_step(item.of) is not None:
                text = self.tree.one_line(item.of.span.start, item.of.span.end)
                self.scope.found.add(
                    "TR2701",
                    f"the test supposes what cannot be: before any step there is no `{text}`",
                    item.span,
                    help=IN_START,
                )
                return True
        return False

    def _contradicts(self, givens: tuple[hir.Given, ...]) -> bool:
        """Tell of the first two suppositions that cannot hold together; return whether there are any."""
        for at, later in enumerate(givens):
            for earlier in givens[:at]:
                why = _conflict(earlier, later)
                if why:
                    self.scope.found.add(
                        "TR2701",
                        f"the test supposes what cannot be: {why}",
                        later.span,
                        labels=(Label(earlier.span, "supposed here"),),
                        help="leave one of the two out",
                    )
                    return True
        return False

    def _given(self, node: ast.Given) -> hir.Given | None:
        expressions, span = self.rules.expressions, self.rules.span(node)
        owner = node.of.name.text if isinstance(node.of, ast.Reference) else ""
        if owner in ("token", "class"):
            value = node.value
            if isinstance(value, ast.Text):
                value = value.token
            elif isinstance(value, ast.Reference):
                value = value.name
            if isinstance(value, (ast.Literal, ast.Tok)):
                of = expressions.read(ast.Is(node.start, node.end, node.of, False, value))
                return None if of.unit == "any" else hir.Given(of, True, span)
        of = expressions.read(node.of)
        if of.unit == "any":
            return None
        plain = (
            hir.SignalRef,
            hir.HeadRef,
            hir.Window,
            hir.ParamRef,
            hir.VarRef,
            hir.RequestField,
            hir.Derived,
        )
        if not isinstance(of, plain) or isinstance(node.value, (ast.Tok, ast.Literal)):
            self.scope.found.add(
                "TR1102",
                "a test supposes `SIGNAL = VALUE`",
                span,
                help='`entropy = 1.2`, `share(large) = 20%`, `token is "x"`',
            )
            return None
        of, value_ = unify(of, expressions.read(node.value))
        if value_.unit == "any":
            return None
        if of.unit != value_.unit or not isinstance(value_, hir.Const):
            if of.unit == value_.unit:
                self.scope.found.add(
                    "TR1102",
                    "a test supposes a literal value",
                    value_.span,
                    help="a number, a text, `true` or `false`, written out",
                )
            else:
                expressions.mismatch("=", of, value_, span)
            return None
        return hir.Given(of, value_.value, span)


def _conflict(a: hir.Given, b: hir.Given) -> str:
    """Return why two suppositions cannot hold of one step; '' where they can."""
    match a.of, b.of:
        case hir.TokenIn(texts=one), hir.TokenIn(texts=other):
            return "" if set(one) & set(other) else "the candidate has one text"
        case (hir.TokenIn(texts=texts), hir.ClassIs(name=name)) | (
            hir.ClassIs(name=name),
            hir.TokenIn(texts=texts),
        ):
            # A control token may have any text, which only its vocabulary knows.
            if name == "special" or name in map(lexical_class, texts):
                return ""
            return f"`{texts[0]}` is of class {lexical_class(texts[0]) or 'none'}"
        case hir.ClassIs(name=one), hir.ClassIs(name=other):
            return "" if one == other else "a token has one class"
        case _:
            same = a.of == b.of and a.value != b.value
            return "one thing has two values" if same else ""
