"""Where the names of a tree stand: declared, or used."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import singledispatch
from typing import NamedTuple

from tokenrouter.dsl import ast
from tokenrouter.dsl.parse import Tree


class Use(NamedTuple):
    """A name in the text. Kinds: `name` (of the one name space), `policy`, `property`, `field`, `class`, `part`, `unit`, `word`."""

    token: ast.Tok
    kind: str
    declares: bool = False


def nodes(node: object) -> Iterator[ast.Node]:
    """Yield a node and all below it, in source order but for a few."""
    if isinstance(node, ast.Node):
        yield node
        for name in node.__struct_fields__:
            yield from nodes(getattr(node, name))
    elif isinstance(node, tuple):
        for item in node:
            yield from nodes(item)


def uses(tree: Tree) -> list[Use]:
    """Return every name of a tree, in source order, each place once."""
    found = {use.token.start: use for node in nodes(tree.file) for use in _own(node)}
    return [found[start] for start in sorted(found)]


def at(found: list[Use], offset: int) -> Use | None:
    """Return the one of some uses, in source order, that stands at an offset or ends there."""
    place = bisect_right(found, offset, key=lambda use: use.token.start) - 1
    return found[place] if place >= 0 and offset <= found[place].token.end else None


@singledispatch
def _own(node: ast.Node) -> Iterator[Use]:
    """Yield the names that a node itself holds."""
    yield from ()


def _named(token: object, kind: str = "name", *, declares: bool = False) -> Iterator[Use]:
    if isinstance(token, ast.Tok) and token.kind == "NAME":
        yield Use(token, kind, declares)


@_own.register(ast.Model | ast.Head | ast.Param | ast.Var | ast.Signal)
def _(node: ast.Model | ast.Head | ast.Param | ast.Var | ast.Signal) -> Iterator[Use]:
    yield from _named(node.name, declares=True)
    if isinstance(node, (ast.Param, ast.Var)):
        yield from _named(node.unit, "unit")


@_own.register
def _(node: ast.Policy) -> Iterator[Use]:
    yield from _named(node.name, "policy", declares=True)


@_own.register
def _(node: ast.Test) -> Iterator[Use]:
    yield from _named(node.policy, "policy")


@_own.register
def _(node: ast.Property) -> Iterator[Use]:
    yield from _named(node.name, "property")
    yield from _named(node.value, "word")


@_own.register
def _(node: ast.Part) -> Iterator[Use]:
    yield from _named(node.owner)
    for name in node.names:
        yield from _named(name, "part")


@_own.register
def _(node: ast.Objective) -> Iterator[Use]:
    yield from _named(node.name, "word")


@_own.register(ast.Reference | ast.Call | ast.Set)
def _(node: ast.Reference | ast.Call | ast.Set) -> Iterator[Use]:
    yield from _named(node.name)


@_own.register
def _(node: ast.Field) -> Iterator[Use]:
    yield from _named(node.owner, "word")
    yield from _named(node.name, "field")


@_own.register
def _(node: ast.Is) -> Iterator[Use]:
    yield from _named(node.value, "class")


@_own.register
def _(node: ast.Given) -> Iterator[Use]:
    yield from _named(node.value, "class")


@_own.register(ast.Borrow | ast.Share | ast.Retry | ast.At | ast.Fallback | ast.Template | ast.Case)
def _(
    node: ast.Borrow | ast.Share | ast.Retry | ast.At | ast.Fallback | ast.Template | ast.Case,
) -> Iterator[Use]:
    yield from _named(node.model)
    if isinstance(node, ast.Case):
        yield from _named(node.expect)


@_own.register
def _(node: ast.Commit) -> Iterator[Use]:
    yield from _named(node.then)


@_own.register(ast.Start | ast.StartRule)
def _(node: ast.Start | ast.StartRule) -> Iterator[Use]:
    yield from _named(node.go)
