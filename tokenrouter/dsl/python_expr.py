"""Expressions of restricted Python -> expressions of the syntax tree. Nothing is executed."""

from __future__ import annotations

import ast as py
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import TypeVar

from tokenrouter.diagnostics import CODES, Diagnostic
from tokenrouter.dsl import ast
from tokenrouter.dsl.expected import PLANNED, reserved, word_as_name
from tokenrouter.dsl.source import Source
from tokenrouter.dsl.table import table
from tokenrouter.plan.literal import quote
from tokenrouter.signals import SIGNALS

COMPARE: dict[type[py.cmpop], str] = {
    py.Lt: "<",
    py.LtE: "<=",
    py.Gt: ">",
    py.GtE: ">=",
    py.Eq: "==",
    py.NotEq: "!=",
}
ARITH: dict[type[py.operator], str] = {py.Add: "+", py.Sub: "-", py.Mult: "*", py.Div: "/"}
CALLS = {"mean": "mean", "ewma": "ewma", "max_over": "max", "share": "share", "count": "count"}

A = TypeVar("A")
B = TypeVar("B")


class Outside(Exception):  # noqa: N818 control flow inside this front end
    """A construct outside the subset; it is reported already."""


class PythonExpressions:
    """Reads the expressions of one Python source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.problems: list[Diagnostic] = []
        self.lost: list[tuple[int, int]] = []  # ranges of what could not be read
        self.lost_names: set[str] = set()  # names that were given a value there
        self._bytes: dict[int, list[int]] = {}

    # Places: Python counts columns in UTF-8 bytes

    def offset(self, line: int, column: int) -> int:
        """Return the offset in code points of a place as Python tells it."""
        start = self.source.starts[line - 1]
        if line not in self._bytes:
            at, ends = 0, []
            for character in self.source.line(line):
                ends.append(at)
                at += len(character.encode())
            self._bytes[line] = ends
        return start + bisect_right(self._bytes[line], column - 1) if column else start

    def range(self, node: py.expr | py.stmt | py.keyword | py.alias) -> tuple[int, int]:
        """Return the range of a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.offset(node.lineno, node.col_offset), self.offset(
            node.end_lineno, node.end_col_offset
        )

    def wrong(
        self, code: str, message: str, node: py.expr | py.stmt | py.keyword, help_: str = ""
    ) -> Outside:
        """Report a construct, and return what to raise."""
        span = self.source.span(*self.range(node))
        self.problems.append(Diagnostic(code, CODES[code].severity, message, span, help=help_))
        return Outside()

    def lose(self, node: py.stmt) -> None:
        """Pass over a statement that could not be read."""
        self.lost.append(self.range(node))
        names = [part for part in py.walk(node) if isinstance(part, py.Name)]
        self.lost_names |= {name.id for name in names if isinstance(name.ctx, py.Store)}

    def tok(self, node: py.expr | py.stmt | py.keyword, kind: str, text: str) -> ast.Tok:
        """Return a token of our own with the place of a node."""
        return ast.Tok(*self.range(node), kind, text)

    def name(self, node: py.expr) -> ast.Tok:
        """Return a plain name."""
        if not isinstance(node, py.Name):
            self.planned(node)
            text = isinstance(node, py.Constant) and isinstance(node.value, str)
            help_ = "write it without quotes, as it was declared" if text else ""
            raise self.wrong("TR6004", "the name of a declaration must stand here", node, help_)
        self.spoken(node.id, *self.range(node))
        return self.tok(node, "NAME", node.id)

    def spoken(self, word: str, start: int, end: int) -> None:
        """Refuse a word of the language as a name: both spellings have the same names."""
        if word in table().words:
            told = reserved if word in PLANNED else word_as_name
            self.problems.append(told(word, self.source.span(start, end)))
            raise Outside

    def planned(self, node: py.expr) -> None:
        """Refuse an action of the next version, with what is planned."""
        if isinstance(node, py.Call) and isinstance(node.func, py.Name) and node.func.id in PLANNED:
            start, end = self.range(node.func)
            self.problems.append(reserved(node.func.id, self.source.span(start, end)))
            raise Outside

    def string(self, node: py.expr) -> ast.Tok:
        """Return a string literal."""
        if not isinstance(node, py.Constant) or not isinstance(node.value, str):
            help_ = "write it out in quotes: the file is read, never executed"
            raise self.wrong("TR6004", "a string, written out, must stand here", node, help_)
        return self.tok(node, "STRING", quote(node.value))

    def literal(self, node: py.expr) -> ast.Literal:
        """Return a literal of a declaration."""
        start, end = self.range(node)
        sign = None
        if isinstance(node, py.UnaryOp) and isinstance(node.op, py.USub):
            sign, node = self.tok(node, "SIGN", "-"), node.operand
        if not isinstance(node, py.Constant) or not isinstance(node.value, (bool, int, float, str)):
            help_ = "a number, a string, `True` or `False`: the file is read, never executed"
            raise self.wrong("TR6004", "a literal must stand here", node, help_)
        return ast.Literal(start, end, sign, self._constant(node), None)

    def _constant(self, node: py.Constant) -> ast.Tok:
        value = node.value
        if isinstance(value, bool):
            return self.tok(node, "TRUE" if value else "FALSE", str(value).lower())
        if isinstance(value, str):
            return self.string(node)
        return self.tok(node, "NUMBER", repr(value))

    # Several at once

    def every(self, items: Iterable[A], read: Callable[[A], B]) -> list[B]:
        """Return what is read from each; where some are outside the subset all of them are told, then one is raised."""
        made: list[B] = []
        lost: Outside | None = None
        for item in items:
            try:
                made.append(read(item))
            except Outside as outside:
                lost = lost or outside
        if lost is not None:
            raise lost
        return made

    def both(self, one: Callable[[], A], other: Callable[[], B]) -> tuple[A, B]:
        """Return two results; where both are outside the subset, both are told."""
        try:
            first = one()
        except Outside:
            other()
            raise
        return first, other()

    # Expressions

    def read(self, node: py.expr, step: str) -> ast.Expr:
        """Return an expression; `step` is the name of the function's argument."""
        start, end = self.range(node)
        match node:
            case py.BoolOp():
                parts = tuple(self.every(node.values, lambda value: self.read(value, step)))
                return (ast.And if isinstance(node.op, py.And) else ast.Or)(start, end, parts)
            case py.UnaryOp(op=py.Not()):
                return ast.Negation(start, end, self.read(node.operand, step))
            case py.UnaryOp(op=py.USub()):
                return ast.Minus(
                    start, end, self.tok(node, "SIGN", "-"), self.read(node.operand, step)
                )
            case py.BinOp() if type(node.op) in ARITH:
                return self._binary(node, step)
            case py.Compare():
                return self._compare(node, step)
            case py.Constant(value=bool() | int() | float() | str()):
                return self._leaf(node)
            case py.Name() if node.id in SIGNALS and step:
                help_ = f"write `{step}.{node.id}`"
                raise self.wrong("TR6004", f"`{node.id}` is a signal of a step", node, help_)
            case py.Name() if node.id != step:
                return ast.Reference(start, end, self.name(node))
            case py.Attribute():
                return self._attribute(node, step)
            case py.Call():
                return self._call(node, step)
            case _:
                raise self.wrong(
                    "TR6004",
                    f"`{_shown(node)}` is outside the subset of Python that policies are written in",
                    node,
                    "there are `and`, `or`, `not`, comparisons, `+ - * /`, signals of the step, params, vars and literals",
                )

    def _leaf(self, node: py.Constant) -> ast.Expr:
        start, end = self.range(node)
        token = self._constant(node)
        if token.kind == "NUMBER":
            return ast.Quantity(start, end, token, None)
        return (
            ast.Text(start, end, token)
            if token.kind == "STRING"
            else ast.Flag(start, end, token.kind == "TRUE")
        )

    def _binary(self, node: py.BinOp, step: str) -> ast.Expr:
        sign = ARITH[type(node.op)]
        operands = tuple(
            self.every((node.left, node.right), lambda operand: self.read(operand, step))
        )
        signs = (self.tok(node, "SIGN", sign),)
        return (ast.Sum if sign in "+-" else ast.Product)(*self.range(node), operands, signs)

    def _compare(self, node: py.Compare, step: str) -> ast.Expr:
        operands = [node.left, *node.comparators]
        links = zip(operands, node.ops, operands[1:], strict=False)
        pairs = self.every(links, lambda link: self._pair(node, *link, step))
        return pairs[0] if len(pairs) == 1 else ast.And(*self.range(node), tuple(pairs))

    def _pair(
        self, node: py.Compare, left: py.expr, op: py.cmpop, right: py.expr, step: str
    ) -> ast.Expr:
        start, end = self.range(node)
        asked = _asked(left, step)
        if asked is not None and isinstance(op, (py.Eq, py.NotEq, py.In, py.NotIn)):
            of = ast.Reference(*self.range(left), self.tok(left, "NAME", asked))
            kind = "STRING" if asked == "token" else "NAME"
            many = isinstance(op, (py.In, py.NotIn))
            if many and not isinstance(right, (py.Set, py.Tuple, py.List)):
                raise self.wrong("TR6004", "a set of strings, written out, must stand here", right)
            items = (
                right.elts if many and isinstance(right, (py.Set, py.Tuple, py.List)) else [right]
            )
            values = self.every(items, self.string)
            if kind == "NAME":
                values = [ast.Tok(v.start, v.end, "NAME", v.text[1:-1]) for v in values]
            negated = isinstance(op, (py.NotEq, py.NotIn))
            if many:
                return ast.In(start, end, of, negated, tuple(values))
            value = values[0]
            single = (
                value if kind == "NAME" else ast.Literal(value.start, value.end, None, value, None)
            )
            return ast.Is(start, end, of, negated, single)
        if type(op) not in COMPARE:
            raise self.wrong(
                "TR6004",
                "only `step.token` and `step.token_class` are asked with `in`; `is` compares nothing here",
                node,
            )
        sign = self.tok(node, "COMPARE", COMPARE[type(op)])
        sides = tuple(self.every((left, right), lambda side: self.read(side, step)))
        return ast.Comparison(start, end, sides, (sign,))

    def _attribute(self, node: py.Attribute, step: str) -> ast.Expr:
        start, end = self.range(node)
        owner = node.value
        attr = ast.Tok(end - len(node.attr), end, "NAME", node.attr)
        if isinstance(owner, py.Name) and owner.id == step:
            if step == "request" and node.attr not in SIGNALS:  # a start function's metadata
                return ast.Field(start, end, ast.Tok(*self.range(owner), "NAME", step), attr)
            return ast.Reference(start, end, attr)
        if (
            isinstance(owner, py.Attribute)
            and owner.attr == "request"
            and isinstance(owner.value, py.Name)
            and owner.value.id == step
        ):
            return ast.Field(start, end, ast.Tok(*self.range(owner), "NAME", "request"), attr)
        raise self.wrong(
            "TR6004",
            f"`{_shown(node)}` has no value",
            node,
            f"signals are read from the step: `{step}.{node.attr}`",
        )

    def _call(self, node: py.Call, step: str) -> ast.Expr:
        start, end = self.range(node)
        function = node.func
        own = (
            isinstance(function, py.Attribute)
            and isinstance(function.value, py.Name)
            and function.value.id == step
        )
        if node.keywords:
            raise self.wrong("TR6006", "arguments are given by place here", node.keywords[0])
        if (
            isinstance(function, py.Name)
            and [a.id for a in node.args if isinstance(a, py.Name)] == [step]
            and len(node.args) == 1
        ):
            return ast.Reference(start, end, self.name(function))  # a derived signal or a head
        if own and isinstance(function, py.Attribute):
            called = ast.Tok(
                self.range(function)[1] - len(function.attr),
                self.range(function)[1],
                "NAME",
                function.attr,
            )
        elif isinstance(function, py.Name) and function.id in CALLS:
            called = self.tok(function, "NAME", CALLS[function.id])
        else:
            raise self.wrong(
                "TR6004",
                f"`{_shown(function)}` cannot be called here",
                node,
                "there are the signals of the step, `mean`, `ewma`, `max_over`, and declared signals and heads",
            )
        arguments = tuple(self.every(node.args, lambda argument: self.read(argument, step)))
        return ast.Call(start, end, called, arguments)


def _asked(node: py.expr, step: str) -> str | None:
    """Return `token` or `class` where the candidate is asked for."""
    if isinstance(node, py.Attribute) and isinstance(node.value, py.Name) and node.value.id == step:
        return {"token": "token", "token_class": "class"}.get(node.attr)
    return None


def _shown(node: py.AST) -> str:
    text = " ".join(py.unparse(node).split())
    return text if len(text) <= 40 else text[:39] + "…"
