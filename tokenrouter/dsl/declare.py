"""Declarations: models, params, vars, heads, derived signals.

Needs: the scope's entries. Gives: `Entry.hir` of each, or `Entry.broken` where its own mistakes are told.
"""

from __future__ import annotations

import re
from typing import cast

from tokenrouter.diagnostics import Label
from tokenrouter.dsl import ast, hir
from tokenrouter.dsl.derive import Derive
from tokenrouter.dsl.express import Expressions
from tokenrouter.dsl.literals import value_of, within
from tokenrouter.dsl.nearest import did_you_mean
from tokenrouter.dsl.parse import Tree
from tokenrouter.dsl.scope import Entry, Scope, snake
from tokenrouter.dsl.units import DECLARABLE, meant
from tokenrouter.signals import SIGNALS, WINDOWS, Unit

MODEL_PROPERTIES = ("use", "cost", "dtype", "quantize", "tensor_parallel")
HEAD_PROPERTIES = ("file", "python", "kind", "reads")
PARTS: tuple[hir.Reads, ...] = ("hidden", "logits", "token")
CHOICES = {
    "dtype": ("float64", "float32", "bfloat16", "float16"),
    "quantize": ("none", "int8"),
    "kind": ("linear", "mlp", "r2r"),
}
TAKES: dict[str, tuple[hir.Reads, ...]] = {
    "linear": ("hidden",),
    "mlp": ("hidden",),
    "r2r": PARTS,
}
TAKEN = frozenset({*SIGNALS, *WINDOWS, "token", "class", "request", "any"})


def declare(scope: Scope, tree: Tree, items: tuple[ast.Item, ...], imported: bool) -> None:
    """Put the declarations of one file into the scope."""
    for item in items:
        if not isinstance(item, (ast.Model, ast.Head, ast.Param, ast.Var, ast.Signal)):
            continue
        kind = type(item).__name__.lower()
        entry = Entry(kind, tree, item, imported)
        name = snake(item.name.text)
        if name in TAKEN:
            scope.found.add(
                "TR1007",
                f"`{item.name.text}` means something already and cannot name a {kind}",
                entry.span(),
                help=f"another name will do, such as `my_{name}`",
            )
            continue
        first = scope.entries.get(name)
        if first is None:
            scope.entries[name] = entry
            continue
        if kind != "model" or first.kind != "model":
            scope.twice.add(name)
        also = "" if first.kind == kind else f", as a {first.kind} and as a {kind}"
        scope.found.add(
            "TR1006",
            f"`{item.name.text}` is declared twice{also}",
            entry.span(),
            labels=(Label(first.span(), "it is declared here first"),),
            help="names of models, params, vars, heads and signals are of one name space",
        )


def resolve(scope: Scope) -> None:
    """Resolve every declaration."""
    for entry in scope.entries.values():
        match entry.node:
            case ast.Model():
                entry.hir = _model(scope, entry.tree, entry.node)
            case ast.Param():
                entry.hir = _param(scope, entry.tree, entry.node)
            case ast.Var():
                entry.hir = _var(scope, entry.tree, entry.node)
            case ast.Head() | ast.Signal():
                continue
        entry.broken = entry.hir is None
    for entry in scope.of("head"):
        assert isinstance(entry.node, ast.Head)
        entry.hir = _head(scope, entry.tree, entry.node)
        entry.broken = entry.hir is None
    for entry in scope.of("signal"):
        if entry.hir is None and not entry.broken:
            Derive(scope)(entry)


class _Properties:
    """The properties of one model or head, each at most once and of a known name."""

    def __init__(
        self, scope: Scope, tree: Tree, node: ast.Model | ast.Head, known: tuple[str, ...]
    ) -> None:
        self.scope, self.tree, self.node = scope, tree, node
        self.expressions = Expressions(scope, tree, Derive(scope))
        self.by_name: dict[str, ast.Property] = {}
        self.sound = True
        self.misspelt = False
        for item in node.properties:
            name = item.name.text
            if name not in known:
                self.misspelt = True
                self.wrong(
                    "TR1004",
                    f"a {type(node).__name__.lower()} has no property `{name}`",
                    item.name,
                    did_you_mean(name, known),
                )
            elif name in self.by_name:
                self.wrong("TR2004", f"`{name}` is given twice", item.name, "remove one of them")
            else:
                self.by_name[name] = item

    def wrong(self, code: str, message: str, node: ast.Node, help_: str) -> None:
        """Report a mistake."""
        self.sound = False
        self.scope.found.add(code, message, self.tree.source.span(node.start, node.end), help=help_)

    def text(self, name: str, default: str = "") -> str:
        """Return a string."""
        item = self.by_name.get(name)
        if item is None:
            return default
        if isinstance(item.value, ast.Literal) and item.value.value.kind == "STRING":
            return self.expressions.text(item.value.value)
        self.wrong("TR1114", f"`{name}` takes a string", item.value, f'write `{name} "..."`')
        return default

    def number(self, name: str, default: float, *, whole: bool = False) -> float:
        """Return a positive number."""
        item = self.by_name.get(name)
        if item is None:
            return default
        value = item.value
        if (
            isinstance(value, ast.Literal)
            and value.value.kind == "NUMBER"
            and (
                not value.unit
                or meant(value.unit.text) in (("number",), ("count",) if whole else ())
            )
            and not value.sign
        ):
            got = self.expressions.number(value.value)
            if not whole or (got == int(got) and got >= 1):
                return got
            message = f"`{name}` takes a whole number of at least 1"
            self.wrong("TR1107", message, value, f"such as `{max(1, round(got))}`")
            return default
        wanted = (
            "a whole number of at least 1" if whole else "a number, not negative and without a unit"
        )
        example = "2" if whole else "1.5"
        self.wrong("TR1114", f"`{name}` takes {wanted}", value, f"such as `{example}`")
        return default

    def choice(self, name: str, default: str) -> str:
        """Return one of a few words."""
        item, choices = self.by_name.get(name), CHOICES[name]
        if item is None:
            return default
        if isinstance(item.value, ast.Tok) and item.value.text in choices:
            return item.value.text
        written = self.tree.one_line(item.value.start, item.value.end)
        self.wrong(
            "TR1114", f"`{written}` is no {name}", item.value, did_you_mean(written, choices)
        )
        return default


def _model(scope: Scope, tree: Tree, node: ast.Model) -> hir.Model | None:
    given = _Properties(scope, tree, node, MODEL_PROPERTIES)
    if "use" not in given.by_name and not given.misspelt and not tree.is_lost(node.start, node.end):
        given.wrong(
            "TR1113",
            f"model `{node.name.text}` does not say which weights it uses",
            node.name,
            'add `use "path or hub name"`',
        )
    quantize = cast("hir.Quantize", given.choice("quantize", "none"))
    ranks = int(given.number("tensor_parallel", 1, whole=True))
    if quantize != "none" and ranks > 1:
        given.wrong(
            "TR1114",
            f"`quantize {quantize}` and `tensor_parallel {ranks}` exclude each other: "
            "ranks would round parts of a weight",
            given.by_name["tensor_parallel"],
            "leave one of the two out",
        )
    return hir.Model(
        name=snake(node.name.text),
        use=given.text("use"),
        dtype=cast("hir.Dtype", given.choice("dtype", "float32")),
        quantize=quantize,
        tensor_parallel=ranks,
        cost=given.number("cost", 1.0),
        span=tree.source.span(node.name.start, node.name.end),
        text=tree.one_line(node.start, node.end),
    )


def _head(scope: Scope, tree: Tree, node: ast.Head) -> hir.Head | None:
    given = _Properties(scope, tree, node, HEAD_PROPERTIES)
    lost = tree.is_lost(node.start, node.end)
    python, file = given.text("python"), given.text("file")
    _python(given, python, file)
    if not given.by_name.keys() & {"file", "python"} and not given.misspelt and not lost:
        given.wrong(
            "TR1113",
            f"head `{node.name.text}` does not say where it is",
            node.name,
            'add `file "head.safetensors"`',
        )
    reads = given.by_name.get("reads")
    if reads is None and not given.misspelt and not lost:
        given.wrong(
            "TR1113",
            f"head `{node.name.text}` does not say what it reads",
            node.name,
            "add `reads MODEL.{hidden, logits, token}`",
        )
    if reads is None:
        return None
    if not isinstance(reads.value, ast.Part):
        given.wrong(
            "TR1114",
            "`reads` takes parts of a model's step",
            reads.value,
            "write `reads MODEL.{hidden, logits, token}`",
        )
        return None
    for part in reads.value.names:
        if part.text not in PARTS:
            given.wrong(
                "TR1010", f"a step has no part `{part.text}`", part, did_you_mean(part.text, PARTS)
            )
    model = scope.model(tree, reads.value.owner)
    parts = tuple(part for part in PARTS if part in {name.text for name in reads.value.names})
    default = "python" if python else "mlp" if parts == ("hidden",) else "r2r"
    kind = default if python else given.choice("kind", default)
    if not python and given.sound and parts != TAKES[kind]:
        given.wrong(
            "TR1115",
            f"a head of kind `{kind}` reads {_listed(TAKES[kind])}, and here it reads {_listed(parts)}",
            reads.value,
            "`linear` and `mlp` read the hidden state, `r2r` reads hidden, logits and token",
        )
    if model is None or not given.sound:
        return None
    span = tree.source.span(node.name.start, node.name.end)
    return hir.Head(
        snake(node.name.text), cast("hir.HeadKind", kind), python or file, model, parts, span
    )


def _python(given: _Properties, python: str, file: str) -> None:
    """Report a head of a Python class that is told to be something else as well, or is named by half."""
    if python and file:
        given.wrong(
            "TR1114",
            "a head is read from a file or from a Python class, not from both",
            given.by_name["python"],
            "leave one of the two out",
        )
    half = "python" in given.by_name and not re.fullmatch(r"[^:]+:\w+", python)
    if half and given.sound:
        given.wrong(
            "TR1114",
            "`python` names a module and a class in it",
            given.by_name["python"].value,
            'write `python "package.module:Class"`',
        )
    if python and "kind" in given.by_name:
        given.wrong(
            "TR1114",
            "`kind` tells what a file holds, and this head is a Python class",
            given.by_name["kind"],
            "leave `kind` out",
        )


def _listed(parts: tuple[str, ...]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _unit(scope: Scope, tree: Tree, node: ast.Param | ast.Var) -> Unit | None:
    kind = type(node).__name__.lower()
    if node.unit is None:
        example = f"{kind} {node.name.text}: {_likely(node.value)} = ..."
        scope.found.add(
            "TR1103",
            f"{kind} `{node.name.text}` needs a unit: more than one is possible",
            tree.source.span(node.name.start, node.name.end),
            help=f"write `{example}`; there are {', '.join(DECLARABLE)}",
        )
        return None
    if node.unit.text not in DECLARABLE:
        scope.found.add(
            "TR1005",
            f"a {kind} cannot be in `{node.unit.text}`",
            tree.source.span(node.unit.start, node.unit.end),
            help=did_you_mean(node.unit.text, DECLARABLE) or f"there are {', '.join(DECLARABLE)}",
        )
        return None
    return cast("Unit", node.unit.text)


def _likely(value: ast.Literal | None) -> str:
    """Return a unit that a declaration without one may mean."""
    if value is None:
        return "nats"
    if value.value.kind in ("TRUE", "FALSE"):
        return "bool"
    return (meant(value.unit.text) or ("nats",))[0] if value.unit else "nats"


def _param(scope: Scope, tree: Tree, node: ast.Param) -> hir.Param | None:
    unit = _unit(scope, tree, node)
    if unit is None or not _has_value(scope, tree, node) or node.value is None:
        return None
    value = value_of(scope, tree, node.value, unit)
    value = within(scope, tree, node.value, unit, value)
    low = high = None
    if node.bounds is not None:
        low = value_of(scope, tree, node.bounds.low, unit)
        low = within(scope, tree, node.bounds.low, unit, low)
        high = value_of(scope, tree, node.bounds.high, unit)
        high = within(scope, tree, node.bounds.high, unit, high)
        if low is None or high is None:
            return None
        if low > high:
            scope.found.add(
                "TR1105",
                "the lower bound is above the upper one",
                tree.source.span(node.bounds.start, node.bounds.end),
                help="write the smaller bound first",
            )
            return None
    if value is None:
        return None
    if (low is not None and value < low) or (high is not None and value > high):
        scope.found.add(
            "TR1105",
            f"`{node.name.text}` is outside its own bounds",
            tree.source.span(node.value.start, node.value.end),
            help=f"give a value from {low:g} to {high:g}, or move a bound",
        )
        return None
    span = tree.source.span(node.name.start, node.name.end)
    return hir.Param(snake(node.name.text), unit, value, low, high, span, value)


def _var(scope: Scope, tree: Tree, node: ast.Var) -> hir.Var | None:
    unit = _unit(scope, tree, node)
    if unit is None or not _has_value(scope, tree, node) or node.value is None:
        return None
    value = within(scope, tree, node.value, unit, value_of(scope, tree, node.value, unit))
    span = tree.source.span(node.name.start, node.name.end)
    return None if value is None else hir.Var(snake(node.name.text), unit, value, span)


def _has_value(scope: Scope, tree: Tree, node: ast.Param | ast.Var) -> bool:
    if node.value is None:
        kind = type(node).__name__.lower()
        scope.found.add(
            "TR1106",
            f"{kind} `{node.name.text}` needs a value",
            tree.source.span(node.name.start, node.name.end),
            help=f"write `{kind} {node.name.text}: UNIT = VALUE`",
        )
    return node.value is not None
