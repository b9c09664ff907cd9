"""Names in expressions: what they stand for, and how those with arguments are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tokenrouter.diagnostics import Edit, Fix, Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.fitting import unescape
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.scope import Entry, Scope, snake
from tokenrouter.dsl.units import meant
from tokenrouter.signals import SIGNALS, WINDOWS, Unit


class Names:
    """Resolves the names of one tree; whatever is wrong becomes a part with the unit `any`."""

    def __init__(self, scope: Scope, tree: Tree, derive: Callable[[Entry], None]) -> None:
        self.scope = scope
        self.tree = tree
        self.found = scope.found
        self.derive = derive  # makes `Entry.hir` of a derived signal, when it is first used

    def span(self, node: ast.Node) -> Span:
        """Return the place of a node."""
        return self.tree.source.span(node.start, node.end)

    def poison(self, node: ast.Node) -> hir.Const:
        """Return what stands for a part that is wrong."""
        return hir.Const(False, "any", self.span(node))

    def text(self, token: ast.Tok) -> str:
        """Return the text that a string stands for."""

        def wrong(start: int, end: int) -> None:
            self.found.add(
                "TR0103",
                f"strings have no escape `{token.text[start:end]}`",
                self.tree.source.span(token.start + start, token.start + end),
                help='there are \\n, \\t, \\r, \\", \\\\ and \\u{1F600}',
            )

        return unescape(token.text, wrong)

    def number(self, token: ast.Tok) -> float:
        """Return the value of a number."""
        return float(token.text.replace("_", ""))

    def reference(self, node: ast.Reference) -> hir.Expr:
        """Return what a name stands for."""
        name, span = node.name.text, self.span(node)
        entry = self.scope.get(name)
        if entry is not None:
            return self._declared(entry, node)
        if name in SIGNALS and not SIGNALS[name].args:
            return hir.SignalRef(name, (), SIGNALS[name].unit, span)
        if name in SIGNALS or name in WINDOWS:
            message = f"`{name}` needs its arguments: `{usage(name)}`"
            self.found.add("TR1104", message, span, help=example(name))
        elif name in ("token", "class"):
            self.found.add(
                "TR1102",
                f"`{name}` is asked with `is` or `in`",
                span,
                help='`token is "x"`, `token in {"x", "y"}`, `class is number`',
            )
        else:
            place = self.span(node.name)  # in Python without its `step.`
            self.found.unknown("TR1002", "signal, param or var", name, place, self.values())
        return self.poison(node)

    def values(self) -> list[str]:
        """Return every name that has a value."""
        return [
            *self.scope.names("param", "var", "head", "signal"),
            *SIGNALS,
            *WINDOWS,
            "token",
            "class",
        ]

    def _declared(self, entry: Entry, node: ast.Reference) -> hir.Expr:
        name, span = snake(node.name.text), self.span(node)
        entry.used = True
        if entry.kind == "signal" and entry.hir is None and not entry.broken:
            self.derive(entry)
        if self.scope.doubled(name):
            return self.poison(node)
        if entry.kind == "model":
            self.found.add(
                "TR1102",
                f"`{node.name.text}` is a model and has no value",
                span,
                help=f"`count({node.name.text})` and `share({node.name.text})` have one",
            )
            return self.poison(node)
        if entry.broken or entry.hir is None:
            return self.poison(node)
        match entry.hir:
            case hir.Param():
                return hir.ParamRef(name, entry.hir.unit, span)
            case hir.Var():
                return hir.VarRef(name, entry.hir.unit, span)
            case hir.Head():
                return hir.HeadRef(name, span=span)
            case hir.DerivedSignal():
                return hir.Derived(name, entry.hir.of, entry.hir.of.unit, span)
            case hir.Model():
                raise AssertionError(name)

    def call(self, node: ast.Call) -> hir.Expr:
        """Return a signal with arguments."""
        name, span = node.name.text, self.span(node)
        if name not in SIGNALS:
            entry = self.scope.get(name)
            if entry is None:
                known = [*WINDOWS, *(k for k, v in SIGNALS.items() if v.args)]
                self.found.unknown(
                    "TR1002", "signal with arguments", name, self.span(node.name), known
                )
            else:
                entry.used = True
                if self.scope.doubled(name):
                    return self.poison(node)
                message = f"`{name}` is a {entry.kind} and takes no arguments"
                self.found.add("TR1104", message, span, help=f"write `{name}` alone")
            return self.poison(node)
        kind = SIGNALS[name]
        if not kind.args:
            fix = Fix(f"write `{name}`", (Edit(span, name),), safe=False)
            self.found.add("TR1104", f"`{name}` takes no arguments", span, fix=fix)
            return self.poison(node)
        if len(node.arguments) != len(kind.args):
            message = f"`{name}` is written `{usage(name)}`"
            self.found.add("TR1104", message, span, help=example(name))
            return self.poison(node)
        args: list[int | str] = []
        for wanted, argument in zip(kind.args, node.arguments, strict=True):
            least = 0 if name == "column" else 1
            got = (
                self._model(argument)
                if wanted == "model"
                else self.whole(argument, least, f"`{usage(name)}`")
            )
            if got is None:
                return self.poison(node)
            args.append(got)
        return hir.SignalRef(name, tuple(args), kind.unit, span)

    def _model(self, node: ast.Expr) -> str | None:
        if isinstance(node, ast.Reference):
            return self.scope.model(self.tree, node.name)
        known = ", ".join(f"`{name}`" for name in self.scope.names("model"))
        help_ = f"there are {known}" if known else ""
        self.found.add("TR1104", "the name of a model must stand here", self.span(node), help=help_)
        return None

    def whole(self, node: ast.Expr, least: int, where: str) -> int | None:
        """Return a whole literal of at least `least`."""
        if isinstance(node, ast.Quantity) and (
            node.unit is None or meant(node.unit.text) == ("count",)
        ):
            value = self.number(node.number)
            if value == int(value) and value >= least:
                return int(value)
            self.found.add(
                "TR1107",
                f"a whole number of at least {least} must stand in {where}",
                self.span(node),
                help=f"such as `{max(least, round(value))}`",
            )
        else:
            self.found.add(
                "TR1104",
                f"a whole number, written out, must stand in {where}",
                self.span(node),
                help="a literal such as `8`: how far back is looked is fixed when the policy is compiled",
            )
        return None

    def field(self, node: ast.Field) -> hir.Expr:
        """Return a request field."""
        if node.owner.text == "request":
            return hir.RequestField(node.name.text, "", cast("Unit", "field"), self.span(node))
        self.found.add(
            "TR1002",
            f"`{node.owner.text}.{node.name.text}` has no value",
            self.span(node),
            help="only `request.NAME` is read so, the metadata that the client sent",
        )
        return self.poison(node)


def example(name: str) -> str:
    """Return a use of a signal with arguments."""
    if name in WINDOWS:
        return f"as in `{name}(entropy, 8)`"
    values = {"int": "4", "model": "large"}
    return f"as in `{name}({', '.join(values[kind] for kind in SIGNALS[name].args)})`"


def usage(name: str) -> str:
    """Return how a signal with arguments is written."""
    if name in WINDOWS:
        return f"{name}(signal, n)"
    words = {"int": "ID" if name == "column" else "k", "model": "M"}
    return f"{name}({', '.join(words[kind] for kind in SIGNALS[name].args)})"
