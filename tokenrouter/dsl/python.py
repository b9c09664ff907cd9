"""Restricted Python -> the same syntax tree as a `.route` file. The file is parsed with `ast`, never imported or executed.

Needs: a source whose name ends in `.py`. Gives: a tree; every construct outside the subset is told, and costs its own
statement. Reports: TR6001 ... TR6007.
"""

from __future__ import annotations

import ast as py
import inspect
import io
import tokenize
from collections.abc import Callable, Iterator

from tokenrouter.diagnostics import CODES, Diagnostic, Span
from tokenrouter.dsl import ast
from tokenrouter.dsl.expr import DEEPEST
from tokenrouter.dsl.lexer import Tokens
from tokenrouter.dsl.nearest import did_you_mean
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.python_expr import Outside
from tokenrouter.dsl.python_imports import MODULE, binds, by_name, called, missing, unknown
from tokenrouter.dsl.python_rules import PythonRules, is_docstring
from tokenrouter.dsl.python_tests import PythonTests
from tokenrouter.dsl.source import Source

DECLARATIONS = ("model", "param", "var", "head", "test")


def parse_python(source: Source) -> Tree:
    """Return the tree of a Python source."""
    tokens = _tokens(source)
    try:
        module = py.parse(source.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return _unreadable(source, tokens, error)
    deep = _too_deep(module)
    if deep is not None:
        place = source.span(*PythonRules(source).range(deep))
        message = f"this is nested more than {DEEPEST} deep"
        help = "name a part of it at the top of the file"
        return _nothing(source, tokens, Diagnostic("TR0215", "error", message, place, help=help))
    reader = _Module(source, called(module))
    reader.problems += by_name(module, reader.place)
    items = tuple(item for statement in module.body for item in reader.statement(statement))
    reader.problems += missing(module, reader.place, lambda at: source.span(at, at))
    header = ast.Header(0, 0, ast.Tok(0, 0, "NUMBER", "1"))
    file = ast.File(0, len(source.text), header, items)
    problems = tuple(sorted(reader.problems, key=lambda d: d.span.start))
    lost, names = tuple(reader.lost), frozenset(reader.lost_names)
    return Tree(source, tokens, file, problems, lost, names, tuple(_docstrings(reader, module)))


def _docstrings(reader: PythonRules, module: py.Module) -> Iterator[tuple[int, str]]:
    """Yield where each string that stands alone begins, and its text."""
    for node in py.walk(module):
        if isinstance(node, py.stmt) and is_docstring(node):
            assert isinstance(node, py.Expr) and isinstance(node.value, py.Constant)
            text = str(node.value.value).encode("utf-8", "backslashreplace").decode()
            yield reader.range(node)[0], inspect.cleandoc(text)


def _unreadable(source: Source, tokens: Tokens, error: Exception) -> Tree:
    """TR6001."""
    place = source.span(0, 0)
    message = "this is nested too deeply to be read"
    if isinstance(error, SyntaxError) and error.lineno is not None:
        line = min(error.lineno, len(source.starts))
        at = min(source.starts[line - 1] + max(0, (error.offset or 1) - 1), len(source.text))
        place = source.span(at, min(at + 1, len(source.text)))
        message = f"this is not Python: {(error.msg or 'a mistake').lower()}"
    elif isinstance(error, ValueError):
        message = "this is not Python: the text holds a null character"
    return _nothing(source, tokens, Diagnostic("TR6001", CODES["TR6001"].severity, message, place))


def _nothing(source: Source, tokens: Tokens, problem: Diagnostic) -> Tree:
    """Return a tree of nothing, in which everything is lost."""
    whole = ((0, len(source.text)),)
    return Tree(
        source, tokens, ast.File(0, len(source.text), None, ()), (problem,), whole, frozenset()
    )


def _too_deep(module: py.Module) -> py.expr | None:
    """Return the first expression that lies too deep in another, as readers go down by calling themselves."""
    ahead: list[tuple[py.AST, int]] = [(module, 0)]
    while ahead:
        node, depth = ahead.pop()
        if isinstance(node, py.expr):
            depth += 1
            if depth > DEEPEST:
                return node
        ahead += [(child, depth) for child in py.iter_child_nodes(node)]
    return None


def _tokens(source: Source) -> Tokens:
    """Return comments and everything else, without loss, for what is attached to declarations."""
    marks: list[tuple[int, int, str]] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source.text, newline="").readline):
            kind = (
                "COMMENT"
                if token.type == tokenize.COMMENT
                else "NAME"
                if token.string.strip()
                else ""
            )
            if kind:
                start = source.starts[token.start[0] - 1] + token.start[1]
                marks.append((start, start + len(token.string), kind))
    except (tokenize.TokenError, SyntaxError, IndexError):
        marks = []
    kinds, starts, at = [], [], 0
    for start, end, kind in marks:
        if start > at:
            kinds.append("SPACE")
            starts.append(at)
        kinds.append(kind)
        starts.append(start)
        at = end
    if at < len(source.text):
        kinds.append("SPACE")
        starts.append(at)
    kinds.append("$END")
    starts.append(len(source.text))
    return Tokens(
        source,
        kinds,
        starts,
        [i for i, kind in enumerate(kinds) if kind not in ("SPACE", "COMMENT")],
    )


class _Module(PythonTests):
    """Reads the statements of a module."""

    def __init__(self, source: Source, called: set[str]) -> None:
        super().__init__(source)
        self.called = called

    def place(self, node: py.expr | py.stmt | py.alias) -> Span:
        """Return the place of a node."""
        return self.source.span(*self.range(node))

    def statement(self, node: py.stmt) -> list[ast.Item]:
        """Return the declarations that a statement makes; a mistake in it is told and costs no other."""
        try:
            return self._statement(node)
        except Outside:
            self.lose(node)
            if isinstance(node, (py.ClassDef, py.FunctionDef)):
                self.lost_names.add(node.name)
            return []

    def _statement(self, node: py.stmt) -> list[ast.Item]:
        match node:
            case py.ImportFrom(module=module) if module == MODULE:
                self.problems += unknown(node, self.called, self.place)
                return []
            case py.Import() | py.ImportFrom() if binds(node):
                return []  # told already, and read as it is meant
            case py.Import() | py.ImportFrom():
                raise self.wrong(
                    "TR6003",
                    f"only `{MODULE}` is imported",
                    node,
                    "the file is read, never executed",
                )
            case py.Expr(value=py.Constant(value=str())):
                return []
            case py.Assign(targets=[py.Name() as target], value=py.Call() as call):
                return [self._declaration(node, target, call)]
            case py.Expr(value=py.Call(func=py.Name(id="test")) as call):
                return [self.test(node, call)]
            case py.FunctionDef(decorator_list=[py.Name(id="signal")]):
                return [self._signal(node)]
            case py.ClassDef():
                return [self._policy(node)]
            case _:
                raise self.wrong(
                    "TR6002",
                    "this statement is outside the subset of Python that policies are written in",
                    node,
                    "there are declarations `name = model(...)`, `@signal` functions, `@policy` classes and `test(...)`",
                )

    def _declaration(self, node: py.stmt, target: py.Name, call: py.Call) -> ast.Item:
        function = call.func.id if isinstance(call.func, py.Name) else ""
        make: dict[str, Callable[[py.stmt, py.Name, py.Call], ast.Item]] = {
            "model": self._model,
            "param": self._param,
            "var": self._var,
            "head": self._head,
        }
        if function not in make:
            raise self.wrong(
                "TR6002",
                f"`{function or 'this'}` declares nothing",
                call,
                did_you_mean(function, DECLARATIONS),
            )
        return make[function](node, target, call)

    def _model(self, node: py.stmt, target: py.Name, call: py.Call) -> ast.Model:
        given = self.arguments(call, ("use",), ("cost", "dtype", "quantize", "tensor_parallel"))
        return ast.Model(
            *self.range(node),
            self.name(target),
            tuple(self.every(given.items(), lambda item: self._property(*item))),
        )

    def _property(self, name: str, value: py.expr) -> ast.Property:
        start, end = self.range(value)
        key = ast.Tok(start, end, "NAME", name)
        if name in ("dtype", "quantize", "kind"):
            word = self.string(value)
            return ast.Property(start, end, key, ast.Tok(start, end, "NAME", word.text[1:-1]))
        return ast.Property(start, end, key, self.literal(value))

    def _param(self, node: py.stmt, target: py.Name, call: py.Call) -> ast.Param:
        given = self.arguments(call, ("value",), ("unit", "within"))
        bounds = None
        if "within" in given:
            within = given["within"]
            if not isinstance(within, py.Tuple) or len(within.elts) != 2:
                raise self.wrong("TR6006", "`within` takes a pair (low, high)", within)
            bounds = ast.Bounds(
                *self.range(within), self.literal(within.elts[0]), self.literal(within.elts[1])
            )
        value = self.literal(given["value"]) if "value" in given else None
        return ast.Param(*self.range(node), self.name(target), self._unit(given), value, bounds)

    def _var(self, node: py.stmt, target: py.Name, call: py.Call) -> ast.Var:
        given = self.arguments(call, ("value",), ("unit",))
        value = self.literal(given["value"]) if "value" in given else None
        return ast.Var(*self.range(node), self.name(target), self._unit(given), value)

    def _unit(self, given: dict[str, py.expr]) -> ast.Tok | None:
        if "unit" not in given:
            return None
        text = self.string(given["unit"])
        return ast.Tok(text.start, text.end, "NAME", text.text[1:-1])

    def _head(self, node: py.stmt, target: py.Name, call: py.Call) -> ast.Head:
        given = self.arguments(call, ("file",), ("of", "reads", "kind", "python"))
        plain = [name for name in ("file", "python", "kind") if name in given]
        made = self.every(plain, lambda name: self._property(name, given[name]))
        if "of" in given and "reads" in given:
            reads = given["reads"]
            if not isinstance(reads, (py.Tuple, py.List, py.Set)):
                raise self.wrong("TR6006", "`reads` takes a tuple of parts", reads)
            names = self.every(reads.elts, self.string)
            parts = tuple(ast.Tok(n.start, n.end, "NAME", n.text[1:-1]) for n in names)
            place = self.range(reads)
            key = ast.Tok(*place, "NAME", "reads")
            made.append(ast.Property(*place, key, ast.Part(*place, self.name(given["of"]), parts)))
        return ast.Head(*self.range(node), self.name(target), tuple(made))

    def _signal(self, node: py.FunctionDef) -> ast.Signal:
        step = self.argument(node)
        body = [s for s in node.body if not is_docstring(s)]
        if len(body) != 1 or not isinstance(body[0], py.Return) or body[0].value is None:
            raise self.wrong("TR6005", "a signal is one `return` of an expression", node)
        return ast.Signal(*self.range(node), self.named(node), self.read(body[0].value, step))

    def _policy(self, node: py.ClassDef) -> ast.Policy:
        if len(node.decorator_list) != 1 or not _calls(node.decorator_list[0], "policy"):
            raise self.wrong("TR6002", "a class is a policy: decorate it with `@policy(...)`", node)
        decorator = node.decorator_list[0]
        assert isinstance(decorator, py.Call)
        members: list[ast.Member] = []
        lost: Outside | None = None
        try:
            members += self.members(decorator)
        except Outside as outside:  # the steps are looked at all the same
            lost = outside
        for part in node.body:
            if is_docstring(part) or isinstance(part, py.Pass):
                continue
            try:
                members.append(self.method(part))
            except Outside:
                self.lost.append(self.range(part))
        if lost is not None:
            raise lost
        start, end = self.range(node)
        return ast.Policy(start, end, self.named(node), tuple(members))


def _calls(node: py.expr, name: str) -> bool:
    return isinstance(node, py.Call) and isinstance(node.func, py.Name) and node.func.id == name
