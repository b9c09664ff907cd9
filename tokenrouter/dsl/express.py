"""Expressions: syntax tree -> typed tree.

Needs: a scope. Gives: every part with its unit, numbers in base units, texts unescaped. Where something is wrong the part
gets the unit `any`, which goes with everything, so nothing is told twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from tokenrouter.diagnostics import Edit, Fix, Label, Span
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.expr import DEEPEST
from tokenrouter.dsl.fitting import fit, unify
from tokenrouter.dsl.lexer import FOREIGN
from tokenrouter.dsl.names import Names, example, usage
from tokenrouter.dsl.nearest import did_you_mean
from tokenrouter.dsl.units import LOOSE, NUMERIC, article, meant, noun, product, quotient
from tokenrouter.signals import CLASSES, SIGNALS, WINDOWS, Unit


class Expressions(Names):
    """Reads the expressions of one tree."""

    # What a place asks for

    def condition(self, node: ast.Expr) -> hir.Expr:
        """Return an expression that must be true or false."""
        return self.typed(node, "bool")

    def typed(self, node: ast.Expr, unit: Unit, why: str = "") -> hir.Expr:
        """Return an expression that must have a unit."""
        expr = fit(self.read(node), unit)
        if expr.unit not in (unit, "any"):
            wanted = article(unit)
            code = "TR1101" if unit in NUMERIC and expr.unit in NUMERIC else "TR1102"
            place = f"{why} must be {wanted}" if why else f"{wanted} must stand here"
            text = self.tree.one_line(node.start, node.end)
            self.found.add(
                code,
                f"{place}, and `{text}` is {article(expr.unit)}",
                self.span(node),
                labels=self.origin(expr),
                help=f"compare it with something, as in `{text} > {_some(expr.unit)}`"
                if unit == "bool" and expr.unit in NUMERIC
                else _instead(unit),
            )
            return self.poison(node)
        return expr

    def origin(self, expr: hir.Expr) -> tuple[Label, ...]:
        """Return where the unit of a name is declared."""
        if isinstance(expr, (hir.ParamRef, hir.VarRef, hir.Derived)):
            entry = self.scope.get(expr.name)
            if entry is not None:
                return (
                    Label(
                        entry.span(),
                        f"`{entry.node.name.text}` is declared here, {article(expr.unit)}",
                    ),
                )
        return ()

    # Reading

    def read(self, node: ast.Expr) -> hir.Expr:
        """Return an expression; its unit may be a loose one."""
        while isinstance(node, ast.Group):
            node = node.of
        match node:
            case ast.Reference():
                return self.reference(node)
            case ast.Quantity():
                return self._quantity(node)
            case ast.Text():
                return hir.Const(self.text(node.token), "text", self.span(node))
            case ast.Flag():
                return hir.Const(node.value, "bool", self.span(node))
            case ast.Call():
                return self._window(node) if node.name.text in WINDOWS else self.call(node)
            case ast.Field():
                return self.field(node)
            case _:
                return self._compound(node)

    def _compound(self, node: ast.Compound) -> hir.Expr:
        match node:
            case ast.Comparison():
                return self._comparison(node)
            case ast.Negation():
                return self._negation(node)
            case ast.And():
                return hir.AllOf(tuple(map(self.condition, node.of)), span=self.span(node))
            case ast.Or():
                return hir.AnyOf(tuple(map(self.condition, node.of)), span=self.span(node))
            case ast.Minus():
                return self._minus(node)
            case ast.Sum() | ast.Product():
                return self._chain(node)
            case ast.Is() | ast.In():
                return self._membership(node)
            case ast.Group():
                return self.read(node)

    def _negation(self, node: ast.Negation) -> hir.Expr:
        """Return what is left of a nest of negations: one or none."""
        of, negated = node.of, True
        while isinstance(of, (ast.Group, ast.Negation)):
            negated ^= isinstance(of, ast.Negation)
            of = of.of
        inner = self.condition(of)
        return hir.Not(inner, span=self.span(node)) if negated else inner

    def _quantity(self, node: ast.Quantity) -> hir.Expr:
        value, unit = self.number(node.number), node.unit.text if node.unit else ""
        if not unit:
            return hir.Const(value, cast("Unit", "bare"), self.span(node))
        if unit == "%":
            return hir.Const(value / 100, cast("Unit", "percent"), self.span(node))
        if not meant(unit):
            message = f"`{unit}` is the unit of `objective` alone"
            help_ = "as in `objective throughput where speed >= 20 tokens/s`"
            self.found.add("TR1101", message, self.span(node), help=help_)
            return self.poison(node)
        return hir.Const(value, meant(unit)[0], self.span(node))

    def _window(self, node: ast.Call) -> hir.Expr:
        name = node.name.text
        if len(node.arguments) != 2:
            message, help_ = f"`{name}` is written `{usage(name)}`", example(name)
            self.found.add("TR1104", message, self.span(node), help=help_)
            return self.poison(node)
        of = fit(self.read(node.arguments[0]), "number")
        n = self.whole(node.arguments[1], 1, f"`{usage(name)}`")
        if of.unit in ("bool", "text"):
            self.found.add(
                "TR1102",
                f"`{name}` takes numbers, and this is {article(of.unit)}",
                self.span(node.arguments[0]),
                help=example(name),
            )
            return self.poison(node)
        if n is None or of.unit == "any":
            return self.poison(node)
        return hir.Window(cast("hir.WindowKind", name), of, n, of.unit, self.span(node))

    def _minus(self, node: ast.Minus) -> hir.Expr:
        of = self.numeric(node.of)
        if node.sign.text == "+" or of.unit == "any":
            return of
        if isinstance(of, hir.Const):
            return replace(of, value=-float(of.value), span=self.span(node))
        return hir.Arith(
            "-", hir.Const(0.0, of.unit, self.span(node.sign)), of, of.unit, self.span(node)
        )

    def numeric(self, node: ast.Expr) -> hir.Expr:
        """Return an operand of arithmetic."""
        expr = self.read(node)
        if cast("str", expr.unit) == "field":
            expr = fit(expr, "number")
        if expr.unit in ("bool", "text"):
            message = f"{article(expr.unit)} cannot be reckoned with"
            help_ = "only numbers are added, multiplied and given a sign"
            self.found.add("TR1102", message, self.span(node), help=help_)
            return self.poison(node)
        return expr

    def _chain(self, node: ast.Chain) -> hir.Expr:
        if len(node.operands) > DEEPEST:
            self.found.add(
                "TR0215",
                f"this has more than {DEEPEST} operands in one row",
                self.span(node),
                help="name a part of it with `signal`",
            )
            return self.poison(node)
        left = self.numeric(node.operands[0])
        for sign, operand in zip(node.signs, node.operands[1:], strict=True):
            span = self.tree.source.span(node.start, operand.end)
            left = self._arith(sign, left, self.numeric(operand), span, node)
        return left

    def _arith(
        self, sign: ast.Tok, left: hir.Expr, right: hir.Expr, span: Span, node: ast.Node
    ) -> hir.Expr:
        if "any" in (left.unit, right.unit):
            return self.poison(node)
        if sign.text in "+-" and {left.unit, right.unit} == {"bare", "percent"}:
            unit = cast("Unit | None", "percent")  # both take the unit of their place
        elif sign.text in "+-":
            left, right = unify(left, right)
            unit = left.unit if left.unit == right.unit else None
        else:
            unit = cast(
                "Unit | None", (product if sign.text == "*" else quotient)(left.unit, right.unit)
            )
            if unit is not None and cast("str", unit) not in LOOSE:
                left, right = fit(left, "number"), fit(right, "number")
        if unit is None:
            self.mismatch(sign.text, left, right, span)
            return self.poison(node)
        return hir.Arith(cast("hir.ArithSign", sign.text), left, right, unit, span)

    def mismatch(self, sign: str, left: hir.Expr, right: hir.Expr, span: Span) -> None:
        """Report two sides that do not go together."""
        code = "TR1101" if {left.unit, right.unit}.isdisjoint({"bool", "text"}) else "TR1102"
        labels = (Label(left.span, article(left.unit)), Label(right.span, article(right.unit)))
        self.found.add(
            code,
            f"`{sign}` between {noun(left.unit)} and {noun(right.unit)}",
            span,
            labels=labels + self.origin(left) + self.origin(right),
            help=_comparable(left, right)
            if code == "TR1101"
            else "numbers are compared with numbers, conditions with conditions, texts with texts",
        )

    def _comparison(self, node: ast.Comparison) -> hir.Expr:
        span = self.span(node)
        if len(node.signs) == 1 and self._asks(node):
            return self.poison(node)
        for sign in node.signs:
            if sign.kind == "ASSIGN":
                place = self.span(sign)
                self.found.add(
                    "TR0206",
                    "values are compared with `==`; `=` gives a value to a name",
                    place,
                    fix=Fix("write `==`", (Edit(place, "=="),), safe=True),
                )
        if len(node.signs) > 1:
            a, b = (self.tree.one_line(o.start, o.end) for o in node.operands[:2])
            c = self.tree.one_line(node.operands[2].start, node.operands[2].end)
            one, two = (sign.text for sign in node.signs[:2])
            whole = f"{a} {one} {b} and {b} {two} {c}"
            fix = (
                Fix("join two comparisons", (Edit(span, whole),), safe=False)
                if len(node.signs) == 2
                else None
            )
            self.found.add(
                "TR0207", "comparisons do not chain", span, help=f"write `{whole}`", fix=fix
            )
            return self.poison(node)
        left, right = unify(self.read(node.operands[0]), self.read(node.operands[1]))
        sign_text = FOREIGN.get(node.signs[0].text, node.signs[0].text).strip()
        sign_text = {"=": "==", "->": ">="}.get(sign_text, sign_text)  # as it is told to be written
        if "any" in (left.unit, right.unit):
            return self.poison(node)
        if cast("str", left.unit) == "field" == cast("str", right.unit):
            self.found.add(
                "TR1111",
                "nothing here tells the type of these request fields",
                span,
                help="compare each with a literal",
            )
            return self.poison(node)
        if cast("str", left.unit) in ("bare", "percent") and cast("str", right.unit) in (
            "bare",
            "percent",
        ):
            left, right = fit(left, "number"), fit(right, "number")
        if left.unit != right.unit:
            self.mismatch(sign_text, left, right, span)
            return self.poison(node)
        if left.unit in ("bool", "text") and sign_text not in ("==", "!="):
            self.found.add(
                "TR1108",
                f"`{sign_text}` orders numbers, and this is {article(left.unit)}",
                span,
                help="`==` and `!=` compare it",
            )
            return self.poison(node)
        return hir.Compare(cast("hir.Sign", sign_text), left, right, span=span)

    def _asks(self, node: ast.Comparison) -> bool:
        """Report `token == "x"` and the like, whose other side is then no expression; return whether it is that."""
        owner, other = node.operands
        if not isinstance(owner, ast.Reference) or owner.name.text not in ("token", "class"):
            return False
        if self.scope.get(owner.name.text) is not None:
            return False
        name, value = owner.name.text, self.tree.one_line(other.start, other.end)
        word = {"==": "is", "=": "is", "!=": "is not"}.get(node.signs[0].text)
        fix = None
        if word and isinstance(other, ast.Text if name == "token" else ast.Reference):
            fix = Fix(f"write `{word}`", (Edit(self.span(node.signs[0]), word),), safe=True)
        self.found.add(
            "TR1102",
            f"`{name}` is asked with `is` or `in`",
            self.span(owner if fix is None else node),
            help=f"write `{name} {word} {value}`"
            if fix
            else '`token is "x"`, `token in {"x", "y"}`, `class is number`',
            fix=fix,
        )
        return True

    def _membership(self, node: ast.Is | ast.In) -> hir.Expr:
        owner = node.of.name.text if isinstance(node.of, ast.Reference) else ""
        span = self.span(node)
        values = (
            node.values
            if isinstance(node, ast.In)
            else (node.value.value if isinstance(node.value, ast.Literal) else node.value,)
        )
        if owner not in ("token", "class"):
            word = "in" if isinstance(node, ast.In) else "is"
            self.found.add(
                "TR1102",
                f"only `token` and `class` are asked with `{word}`",
                self.span(node.of),
                help="compare other values with `==`",
            )
            return self.poison(node)
        kind = "STRING" if owner == "token" else "NAME"
        wrong = next((value for value in values if value.kind != kind), None)
        if wrong is not None or not values:
            self._not_asked(owner, wrong or node, wrong)
            return self.poison(node)
        if owner == "token":
            expr: hir.Expr = hir.TokenIn(tuple(map(self.text, values)), span=span)
        else:
            unknown = [value for value in values if value.text not in CLASSES]
            for value in unknown:
                self.found.add(
                    "TR1009",
                    f"there is no class `{value.text}`",
                    self.span(value),
                    help=did_you_mean(value.text, CLASSES),
                )
            if unknown:
                return self.poison(node)
            parts = tuple(hir.ClassIs(cast("hir.Class", value.text), span=span) for value in values)
            expr = parts[0] if len(parts) == 1 else hir.AnyOf(parts, span=span)
        return hir.Not(expr, span=span) if node.negated else expr

    def _not_asked(self, owner: str, place: ast.Node, value: ast.Tok | None) -> None:
        """Report that the candidate is compared with what it cannot be."""
        wanted, form = "a string", '`token is "x"`, `token in {"x", "y"}`'
        if owner == "class":
            wanted, form = "a class", "there are " + ", ".join(f"`{name}`" for name in CLASSES)
        text = "" if value is None else value.text
        fix = None
        if value is not None and owner == "class" and text.strip('"') in CLASSES:
            word = text.strip('"')
            fix = Fix("remove the quotes", (Edit(self.span(value), word),), safe=True)
        elif value is not None and owner == "token" and value.kind == "NAME":
            quoted = f'"{text}"'
            fix = Fix("put it in quotes", (Edit(self.span(value), quoted),), safe=False)
        message = f"`{owner}` is compared with {wanted}"
        self.found.add("TR1102", message, self.span(place), help=form, fix=fix)


def _some(unit: str) -> str:
    """Return a number in a unit."""
    return {"nats": "0.5", "count": "8", "ms": "250 ms", "number": "1"}.get(unit, "20%")


def _instead(unit: Unit) -> str:
    """Return what may stand where something of another unit does."""
    if unit == "bool":
        return "a condition compares, as in `entropy > 0.5`, or joins conditions with `and`, `or`, `not`"
    like = [f"`{n}`" for n, kind in SIGNALS.items() if kind.unit == unit and not kind.args]
    return f"a literal, or what is {article(unit)}: {', '.join(like)}" if like else "a literal"


def _comparable(left: hir.Expr, right: hir.Expr) -> str:
    """Return what could stand for one of two sides of different units."""
    for given, wanted in ((right, left.unit), (left, right.unit)):
        if isinstance(given, hir.SignalRef):
            like = [
                f"`{n}`" for n, kind in SIGNALS.items() if kind.unit == wanted and not kind.args
            ]
            if like:
                return f"signals {article(wanted)}: {', '.join(like)}".replace(
                    "signals a ", "signals that are a "
                )
    return "both sides need one unit"
