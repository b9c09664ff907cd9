"""Policies of restricted Python -> members, rules and actions of the syntax tree."""

from __future__ import annotations

import ast as py
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple, TypeGuard, TypeVar, cast

from tokenrouter.dsl import ast
from tokenrouter.dsl.nearest import did_you_mean
from tokenrouter.dsl.python_expr import Outside, PythonExpressions

CALLED = {
    "commit": "commit()", "retry": "retry(MODEL)", "borrow": "borrow(MODEL, 4)", "stop": "stop()",
}  # fmt: skip
ACTIONS = tuple(CALLED)
Made = TypeVar("Made")


class _Rule(NamedTuple):
    """`if WHEN: return THEN`, or a last `return THEN`."""

    start: int
    end: int
    when: py.expr | None
    then: py.expr | None  # None: what is done is told to be of another form


def is_docstring(node: py.stmt) -> bool:
    """Return whether a statement is a string that stands alone."""
    return (
        isinstance(node, py.Expr)
        and isinstance(node.value, py.Constant)
        and isinstance(node.value.value, str)
    )


def _not_returned(node: py.stmt) -> TypeGuard[py.Expr]:
    """Return whether a statement calls an action and does nothing with it."""
    return (
        isinstance(node, py.Expr)
        and isinstance(node.value, py.Call)
        and isinstance(node.value.func, py.Name)
        and node.value.func.id in ACTIONS
    )


class PythonRules(PythonExpressions):
    """Reads classes and step functions."""

    # Calls and functions

    def arguments(
        self, call: py.Call, places: tuple[str, ...], words: tuple[str, ...]
    ) -> dict[str, py.expr]:
        """Return the arguments of a declaring call by name."""
        found: dict[str, py.expr] = {}
        for at, value in enumerate(call.args):
            if at >= len(places) or isinstance(value, py.Starred):
                raise self.wrong("TR6006", "there are too many arguments", value)
            found[places[at]] = value

        def take(keyword: py.keyword) -> None:
            name = keyword.arg or "**"
            if name not in (*places, *words):
                help_ = did_you_mean(name, [*places, *words])
                raise self.wrong("TR6006", f"there is no argument `{name}`", keyword, help_)
            if name in found:
                raise self.wrong("TR6006", f"`{name}` is given twice", keyword)
            found[name] = keyword.value

        self.every(call.keywords, take)
        return found

    def argument(self, node: py.FunctionDef | py.Lambda) -> str:
        """Return the name of the one argument of a function (behind `self`, where that is there)."""
        names = [arg.arg for arg in node.args.args if arg.arg != "self"]
        more = node.args.vararg or node.args.kwarg or node.args.kwonlyargs or node.args.defaults
        if len(names) != 1 or more:
            raise self.wrong("TR6005", "this function takes one argument, the step", node)
        return names[0]

    def named(self, node: py.FunctionDef | py.ClassDef) -> ast.Tok:
        """Return the name of a function or class, in its place."""
        word = "class " if isinstance(node, py.ClassDef) else "def "
        start = self.offset(node.lineno, node.col_offset)
        at = self.source.text.index(node.name, start + len(word) - 1)
        self.spoken(node.name, at, at + len(node.name))
        return ast.Tok(at, at + len(node.name), "NAME", node.name)

    # A policy's members

    def members(self, call: py.Call) -> list[ast.Member]:
        """Return what `@policy(...)` says."""
        given = self.arguments(
            call, (), ("start", "claims", "objective", "speed", "fallback", "template_from")
        )
        made: list[ast.Member] = []
        if "start" in given:
            made.append(ast.Start(*self.range(given["start"]), self._first(given["start"])))
        if "fallback" in given:
            made.append(ast.Fallback(*self.range(given["fallback"]), self.name(given["fallback"])))
        if "template_from" in given:
            made.append(
                ast.Template(*self.range(given["template_from"]), self.name(given["template_from"]))
            )
        if "objective" in given or "speed" in given:
            made.append(self._objective(given))
        claims = given.get("claims")
        if claims is not None:
            if not isinstance(claims, (py.List, py.Tuple)):
                raise self.wrong("TR6006", "`claims` takes a list", claims)
            made += self.every(claims.elts, self._claim)
        return made

    def _objective(self, given: dict[str, py.expr]) -> ast.Objective:
        place = given.get("objective") or given["speed"]
        start, end = self.range(place)
        text = self.string(given["objective"]).text[1:-1] if "objective" in given else "throughput"
        where = None
        if "speed" in given:
            speed = self.read(given["speed"], "")
            left = ast.Reference(start, end, ast.Tok(start, end, "NAME", "speed"))
            where = ast.Comparison(
                *self.range(given["speed"]), (left, speed), (ast.Tok(start, end, "COMPARE", ">="),)
            )
        return ast.Objective(start, end, ast.Tok(start, end, "NAME", text), where)

    def _claim(self, node: py.expr) -> ast.Claim:
        word = node.func.id if isinstance(node, py.Call) and isinstance(node.func, py.Name) else ""
        if not isinstance(node, py.Call) or word not in ("enforce", "guarantee"):
            raise self.wrong("TR6006", "a claim is `enforce(...)` or `guarantee(...)`", node)
        given = self.arguments(node, ("bound",), ())
        if "bound" not in given:
            raise self.wrong("TR6006", f"`{word}` takes a bound", node)
        keyword = self.tok(node.func, word.upper(), word)
        return ast.Claim(*self.range(node), keyword, self.read(given["bound"], ""))

    def method(self, node: py.stmt) -> ast.Member:
        """Return the block of rules that a method is."""
        if not isinstance(node, py.FunctionDef) or len(node.decorator_list) != 1:
            raise self.wrong(
                "TR6002", "a policy holds functions decorated with `@at(MODEL)` or `@start`", node
            )
        decorator = node.decorator_list[0]
        step = self.argument(node)
        start, end = self.range(node)
        if isinstance(decorator, py.Name) and decorator.id == "start":
            made = self._rules(node, lambda rule: self._start_rule(rule, step))
            return ast.Start(start, end, ast.StartRules(start, end, tuple(made)))
        if not (
            isinstance(decorator, py.Call)
            and isinstance(decorator.func, py.Name)
            and decorator.func.id == "at"
        ):
            raise self.wrong(
                "TR6002",
                "a policy holds functions decorated with `@at(MODEL)` or `@start`",
                decorator,
            )
        model, rules = self.both(
            lambda: self._place(decorator),
            lambda: self._rules(node, lambda rule: self._rule(rule, step)),
        )
        return ast.At(start, end, model, tuple(rules))

    def _place(self, decorator: py.Call) -> ast.Tok:
        given = self.arguments(decorator, ("of",), ())
        if "of" not in given:
            raise self.wrong("TR6006", "`at` takes a model, or `ANY`", decorator)
        model = self.name(given["of"])
        return ast.Tok(model.start, model.end, "ANY", "any") if model.text == "ANY" else model

    def _start_rule(self, rule: _Rule, step: str) -> ast.StartRule:
        when, go = self.both(
            lambda: None if rule.when is None else self.read(rule.when, step),
            lambda: self._first(rule.then) if rule.then is not None else self._no_model(rule),
        )
        return ast.StartRule(rule.start, rule.end, when, go)

    def _rule(self, rule: _Rule, step: str) -> ast.Rule:
        when, (action, sets) = self.both(
            lambda: None if rule.when is None else self.read(rule.when, step),
            lambda: (
                (ast.Commit(rule.start, rule.end, None), ())
                if rule.then is None
                else self.action(rule.then, step)
            ),
        )
        return ast.Rule(rule.start, rule.end, when, action, sets)

    def _rules(self, node: py.FunctionDef, read: Callable[[_Rule], Made]) -> list[Made]:
        """Return the rules of a body: `if CONDITION: return ACTION` one after the other, then `return ACTION`."""
        made: list[Made] = []
        lost = False
        body = [part for part in node.body if not is_docstring(part)]
        ended = False
        while body and not ended:
            part = body.pop(0)
            try:
                rule, more = self._statement_of(part)
            except Outside:  # the other statements are read all the same
                self.lose(part)
                lost, ended = True, isinstance(part, py.Return)
                body = self._inside(part, read, made) + body
                continue
            body = [*more, *body]
            ended = rule.when is None
            try:
                made.append(read(rule))
            except Outside:
                self.lost.append((rule.start, rule.end))
        if ended and body and not lost:
            raise self.wrong("TR6005", "nothing behind this `return` is ever reached", body[0])
        if not ended and not lost:
            help_ = "add `return commit()`"
            raise self.wrong("TR6005", "a step function ends with `return ACTION`", node, help_)
        return made

    def _inside(
        self, part: py.stmt, read: Callable[[_Rule], Made], made: list[Made]
    ) -> list[py.stmt]:
        """Read what is sound in an `if` that is of another form, and return what its `else` holds."""
        if not isinstance(part, py.If):
            return []
        ends = [node.value for node in part.body if isinstance(node, py.Return) and node.value]
        ends += [node.value for node in part.body if _not_returned(node)]
        with suppress(Outside):
            made.append(read(_Rule(*self.range(part), part.test, next(iter(ends), None))))
        return part.orelse

    def _no_model(self, rule: _Rule) -> ast.Tok:
        """Return what stands for the model that a start rule does not name; nothing more is said of it."""
        self.lost_names.add("")
        return ast.Tok(rule.start, rule.start, "NAME", "")

    def _statement_of(self, part: py.stmt) -> tuple[_Rule, list[py.stmt]]:
        """Return the rule that a statement of a step function is, and what its `else` holds."""
        if isinstance(part, py.Return) and part.value is not None:
            return _Rule(*self.range(part), None, part.value), []
        help_ = "join conditions with `and`; keep what must be remembered in a `var`"
        message = "a step function holds `if CONDITION: return ACTION`, and a last `return ACTION`"
        if not isinstance(part, py.If):
            raise self._told_of(part) or self.wrong("TR6005", message, part, help_)
        then = part.body[0]
        unreturned = self._told_of(then)
        if unreturned is not None:
            raise unreturned
        if isinstance(then, py.If):
            help_ = "join the two conditions with `and`"
        if not isinstance(then, py.Return) or then.value is None:
            raise self.wrong("TR6005", message, then, help_)
        if len(part.body) > 1:
            raise self.wrong("TR6005", "nothing behind this `return` is ever reached", part.body[1])
        (first, _), (_, last) = self.range(part), self.range(then)
        return _Rule(first, last, part.test, then.value), part.orelse

    def _told_of(self, part: py.stmt) -> Outside | None:
        """Report an action that is called and not returned."""
        if not _not_returned(part):
            return None
        text = " ".join(py.unparse(part).split())
        message = (
            f"`{text}` is called and not returned, so that the step function goes on behind it"
        )
        return self.wrong("TR6005", message, part, f"write `return {text}`")

    # Actions

    def _first(self, node: py.expr) -> ast.Tok | ast.Mix:
        return self.mix(node) if isinstance(node, py.Call) else self.name(node)

    def action(self, node: py.expr, step: str) -> tuple[ast.Action, tuple[ast.Set, ...]]:
        """Return an action and what it sets."""
        self.planned(node)
        word = node.func.id if isinstance(node, py.Call) and isinstance(node.func, py.Name) else ""
        if not isinstance(node, py.Call) or word not in ACTIONS:
            called = CALLED.get(node.id, "") if isinstance(node, py.Name) else ""
            help_ = f"call it: `{called}`" if called else did_you_mean(word, ACTIONS)
            raise self.wrong("TR6004", "an action must stand here", node, help_)
        start, end = self.range(node)
        if word == "borrow":
            given = self.arguments(node, ("of", "n"), ("until", "most", "set"))
            return self._borrow(node, given, step), self._sets(given, step)
        if word == "commit":
            given = self.arguments(node, ("then",), ("set",))
            then = self._then(given["then"], step) if "then" in given else None
            return ast.Commit(start, end, then), self._sets(given, step)
        if word == "stop":
            return ast.Stop(start, end), self._sets(self.arguments(node, (), ("set",)), step)
        given = self.arguments(node, ("of",), ("set",))
        if "of" not in given:
            raise self.wrong("TR6006", "`retry` takes a model", node)
        return ast.Retry(start, end, self.name(given["of"])), self._sets(given, step)

    def _then(self, node: py.expr, step: str) -> ast.Tok | ast.Mix | ast.Borrow:
        if (
            isinstance(node, py.Call)
            and isinstance(node.func, py.Name)
            and node.func.id == "borrow"
        ):
            return self._borrow(node, self.arguments(node, ("of", "n"), ("until", "most")), step)
        return self._first(node)

    def _borrow(self, node: py.Call, given: dict[str, py.expr], step: str) -> ast.Borrow:
        start, end = self.range(node)
        if (
            "of" not in given
            or ("n" in given) == ("until" in given)
            or ("until" in given) != ("most" in given)
        ):
            raise self.wrong(
                "TR6006",
                "a stay is `borrow(M, n)` or `borrow(M, until=lambda step: ..., most=n)`",
                node,
            )
        stay: ast.For | ast.Until
        if "n" in given:
            stay = ast.For(*self.range(given["n"]), self.read(given["n"], step))
        else:
            until = given["until"]
            if not isinstance(until, py.Lambda):
                raise self.wrong("TR6006", "`until` takes `lambda step: CONDITION`", until)
            condition = self.read(until.body, self.argument(until))
            stay = ast.Until(*self.range(until), condition, self.read(given["most"], step))
        return ast.Borrow(start, end, self.name(given["of"]), stay)

    def mix(self, node: py.expr) -> ast.Mix:
        """Return a mixture."""
        self.planned(node)
        named = (
            isinstance(node, py.Call) and isinstance(node.func, py.Name) and node.func.id == "mix"
        )
        if (
            not named
            or not isinstance(node, py.Call)
            or len(node.args) != 1
            or not isinstance(node.args[0], py.Dict)
        ):
            raise self.wrong("TR6006", "a mixture is `mix({MODEL: weight, ...})`", node)
        pairs = zip(node.args[0].keys, node.args[0].values, strict=True)
        shares = self.every(pairs, lambda pair: self._share(*pair))
        return ast.Mix(*self.range(node), tuple(shares))

    def _share(self, key: py.expr | None, value: py.expr) -> ast.Share:
        if key is None:
            raise self.wrong("TR6006", "a mixture names its models", value)
        name, weight = self.both(lambda: self.name(key), lambda: self.literal(value))
        return ast.Share(self.range(key)[0], self.range(value)[1], name, weight)

    def _sets(self, given: dict[str, py.expr], step: str) -> tuple[ast.Set, ...]:
        if "set" not in given:
            return ()
        node = given["set"]
        if not isinstance(node, py.Dict) or None in node.keys:
            raise self.wrong("TR6006", "`set` takes `{VAR: value}`", node)
        keys = cast("list[py.expr]", node.keys)
        pairs = zip(keys, node.values, strict=True)
        return tuple(self.every(pairs, lambda pair: self._set(*pair, step)))

    def _set(self, key: py.expr, value: py.expr, step: str) -> ast.Set:
        start, end = self.range(key)[0], self.range(value)[1]
        name, made = self.both(lambda: self.name(key), lambda: self.read(value, step))
        return ast.Set(start, end, name, made)
