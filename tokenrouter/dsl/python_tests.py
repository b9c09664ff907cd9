"""Tests of restricted Python -> test blocks of the syntax tree."""

from __future__ import annotations

import ast as py
from typing import cast

from tokenrouter.dsl import ast
from tokenrouter.dsl.python_rules import PythonRules


class PythonTests(PythonRules):
    """Reads `test(...)` and what it holds."""

    def test(self, node: py.stmt, call: py.Call) -> ast.Test:
        """Return a test block."""
        given = self.arguments(call, ("name",), ("of", "cases"))
        cases = given.get("cases")
        if "name" not in given or "of" not in given or not isinstance(cases, (py.List, py.Tuple)):
            raise self.wrong("TR6006", '`test("NAME", of=POLICY, cases=[case(...), ...])`', call)
        read = tuple(self.every(cases.elts, self._case))
        return ast.Test(*self.range(node), self.string(given["name"]), self.name(given["of"]), read)

    def _case(self, node: py.expr) -> ast.Case:
        if (
            not isinstance(node, py.Call)
            or not isinstance(node.func, py.Name)
            or node.func.id != "case"
        ):
            raise self.wrong("TR6006", "a test holds `case(...)`", node)
        given = self.arguments(node, (), ("at", "given", "expect"))
        if "expect" not in given:
            raise self.wrong("TR6006", "a case says what it expects", node)
        model = None if "at" not in given else self._where(given["at"])
        supposed = given.get("given")
        if supposed is not None and (not isinstance(supposed, py.Dict) or None in supposed.keys):
            raise self.wrong("TR6006", '`given` takes `{"signal": value}`', supposed)
        givens = (
            []
            if supposed is None
            else [
                self._given(cast("py.expr", key), value)
                for key, value in zip(supposed.keys, supposed.values, strict=True)
            ]
        )
        expect, sets = (
            (self._first(given["expect"]), ())
            if model is None
            else self.action(given["expect"], "")
        )
        return ast.Case(*self.range(node), model, tuple(givens), expect, sets)

    def _where(self, node: py.expr) -> ast.Tok:
        """Return the model whose rules are asked."""
        word = node.id if isinstance(node, py.Name) else ""
        if word == "start" or (isinstance(node, py.Constant) and node.value == "start"):
            raise self.wrong(
                "TR6006",
                "a case of the start rules has no `at`",
                node,
                "leave `at` out: `case(given={...}, expect=MODEL)`",
            )
        return self.name(node)

    def _given(self, key: py.expr, value: py.expr) -> ast.Given:
        start, end = self.range(key)[0], self.range(value)[1]
        if not isinstance(key, py.Constant) or not isinstance(key.value, str):
            return ast.Given(start, end, self.read(key, "Step"), self.read(value, ""))
        name = {"token_class": "class"}.get(key.value, key.value)
        tok = self.tok(key, "NAME", name)
        if name == "class":
            word = self.string(value)
            return ast.Given(
                start,
                end,
                ast.Reference(*self.range(key), tok),
                ast.Tok(word.start, word.end, "NAME", word.text[1:-1]),
            )
        of: ast.Expr = ast.Reference(*self.range(key), tok)
        signal, _, count = name.partition("(")
        if count.removesuffix(")").isdecimal() and name.endswith(")"):
            number = ast.Quantity(
                *self.range(key), self.tok(key, "NUMBER", count.removesuffix(")")), None
            )
            of = ast.Call(*self.range(key), self.tok(key, "NAME", signal), (number,))
        if name.startswith("request."):
            of = ast.Field(
                *self.range(key),
                self.tok(key, "NAME", "request"),
                self.tok(key, "NAME", name.partition(".")[2]),
            )
        return ast.Given(start, end, of, self.read(value, ""))
