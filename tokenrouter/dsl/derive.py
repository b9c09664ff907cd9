"""Derived signals: what `signal NAME = EXPR` stands for, found out when it is first used.

Written out, signals of signals can grow without end, and double at every step; what is too much to read is refused here.
"""

from __future__ import annotations

from typing import cast

from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.expr import DEEPEST, MOST_PARTS, measure
from tokenrouter.dsl.express import Expressions
from tokenrouter.dsl.scope import Entry, Scope, snake


class Derive:
    """Resolves derived signals when they are first used, and finds those that lead back to themselves."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.open: list[Entry] = []

    def __call__(self, entry: Entry) -> None:
        """Set what a derived signal stands for."""
        assert isinstance(entry.node, ast.Signal)
        if entry in self.open:
            way = [*self.open[self.open.index(entry) :], entry]
            names = " -> ".join(f"`{step.node.name.text}`" for step in way)
            message = f"a signal is defined by itself: {names}"
            help_ = "write out in one of them what it is made of"
            self.scope.found.add("TR1110", message, entry.span(), help=help_)
            for step in way:
                step.broken = True
            return
        if len(self.open) >= DEEPEST:
            self._deep(entry)
            return
        self.open.append(entry)
        used = entry.used
        expr = Expressions(self.scope, entry.tree, self).read(entry.node.value)
        entry.used = used
        self.open.pop()
        if entry.broken or expr.unit == "any":
            entry.broken = True
            return
        if cast("str", expr.unit) == "field":
            span = entry.tree.source.span(entry.node.value.start, entry.node.value.end)
            self.scope.found.add(
                "TR1111",
                "nothing here tells the type of this request field",
                span,
                help="compare it with a literal",
            )
            entry.broken = True
            return
        text = entry.tree.one_line(entry.node.value.start, entry.node.value.end)
        name = snake(entry.node.name.text)
        size = self.scope.sizes[name] = measure(expr, self.scope.sizes)
        if size.depth > DEEPEST or size.parts > MOST_PARTS:
            self._deep(entry)
            return
        entry.hir = hir.DerivedSignal(name, expr, expr.unit, entry.span(), text)

    def _deep(self, entry: Entry) -> None:
        """TR0215."""
        entry.broken = True
        if self.scope.deep:
            return
        self.scope.deep = True
        self.scope.found.add(
            "TR0215",
            f"written out, this signal is more than {DEEPEST} deep or {MOST_PARTS} parts long",
            entry.span(),
            help="name less by signals of signals",
        )
