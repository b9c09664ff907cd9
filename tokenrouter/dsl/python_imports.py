"""The imports of a Python policy: only `tokenrouter.lang`, and from it every name that the file uses.

The file is never executed, so a missing name would change nothing here; but an editor would flag it, and nobody else could
read the file as the Python that it is.

Reports: TR6003 an import of something else, TR6007 names that are not imported.
"""

from __future__ import annotations

import ast as py
from collections.abc import Callable

from tokenrouter import lang
from tokenrouter.diagnostics import CODES, Diagnostic, Edit, Fix, Label, Span
from tokenrouter.dsl.expected import PLANNED
from tokenrouter.dsl.nearest import did_you_mean, nearest

MODULE = "tokenrouter.lang"
Place = Callable[[py.expr | py.stmt | py.alias], Span]  # where a node stands
At = Callable[[int], Span]  # the empty place before an offset


def unknown(node: py.ImportFrom, called: set[str], place: Place) -> list[Diagnostic]:
    """Return what is wrong with one import from `tokenrouter.lang`.

    A word of the next version is told where it is `called`, once; an import of one that nobody calls is told here.
    """
    return [
        _no_such(alias, place(alias))
        for alias in node.names
        if alias.name != "*"
        and alias.name not in lang.__all__
        and not (alias.name in PLANNED and alias.name in called)
    ]


def binds(node: py.stmt) -> tuple[str, ...]:
    """Return the dotted name by which an import brings in `tokenrouter.lang` as a whole; nothing where it does not."""
    match node:
        case py.Import(names=[py.alias(name=name, asname=other)]) if name == MODULE:
            return (other,) if other else tuple(MODULE.split("."))
        case py.ImportFrom(module="tokenrouter", names=[py.alias(name="lang", asname=other)]):
            return (other or "lang",)
        case _:
            return ()


def by_name(module: py.Module, place: Place) -> list[Diagnostic]:
    """Report an import of the module itself, and make `t.model` the name that it stands for, so that all else is read."""
    found = []
    for at, node in enumerate(module.body):
        way = binds(node)
        if not way:
            continue
        named = _Named(way)
        module.body[at + 1 :] = [named.visit(part) for part in module.body[at + 1 :]]
        names = ", ".join(sorted({name.id for name, _ in named.made})) or "..."
        text = f"from {MODULE} import {names}"
        edits = [Edit(place(node), text)]
        edits += [Edit(place(of), name.id) for name, of in named.made]
        found.append(
            Diagnostic(
                "TR6003",
                CODES["TR6003"].severity,
                f"names are imported from `{MODULE}` one by one, not the module",
                place(node),
                help=f"write `{text}`, and the names without `{'.'.join(way)}.`",
                fix=Fix("import what is used", tuple(edits), safe=False),
            )
        )
    return found


class _Named(py.NodeTransformer):
    """Puts names in the place of what is read of a module."""

    def __init__(self, way: tuple[str, ...]) -> None:
        self.way = way
        self.made: list[tuple[py.Name, py.Attribute]] = []

    def visit_Attribute(self, node: py.Attribute) -> py.AST:
        """Replace `t.model`."""
        if py.unparse(node.value) != ".".join(self.way):
            return self.generic_visit(node)
        name = py.copy_location(py.Name(node.attr, node.ctx), node)
        self.made.append((name, node))
        return name


def called(module: py.Module) -> set[str]:
    """Return the names that a file calls."""
    return {
        node.func.id
        for node in py.walk(module)
        if isinstance(node, py.Call) and isinstance(node.func, py.Name)
    }


def missing(module: py.Module, place: Place, at: At) -> list[Diagnostic]:
    """Return the one diagnostic for names of the language that are used and not imported."""
    imports = [
        node for node in module.body if isinstance(node, py.ImportFrom) and node.module == MODULE
    ]
    aliases = [alias for node in imports for alias in node.names]
    bound = {alias.asname or alias.name for alias in aliases} | _bound(module)
    if "*" in bound:
        return []
    used = [
        node
        for node in py.walk(module)
        if isinstance(node, py.Name) and node.id in lang.__all__ and node.id not in bound
    ]
    if not used or any(map(binds, module.body)):
        return []
    used.sort(key=lambda node: (node.lineno, node.col_offset))
    first: dict[str, py.Name] = {}
    for node in used:
        first.setdefault(node.id, node)
    return [
        _missing(
            list(first),
            [place(node) for node in first.values()],
            _edit(module, place, at, list(first)),
        )
    ]


def _bound(module: py.Module) -> set[str]:
    """Return the names that a file gives a meaning of its own."""
    own: set[str] = set()
    for node in py.walk(module):
        match node:
            case py.Name(ctx=py.Store()):
                own.add(node.id)
            case py.FunctionDef() | py.ClassDef():
                own.add(node.name)
            case py.arg():
                own.add(node.arg)
            case _:
                pass
    return own


def _edit(module: py.Module, place: Place, at: At, names: list[str]) -> Edit:
    """Return what brings names in: more of the last import, or one before the first statement that is no text."""
    for node in reversed(module.body):
        if isinstance(node, py.ImportFrom) and node.module == MODULE:
            return Edit(at(place(node.names[-1]).end), "".join(f", {name}" for name in names))
    code = [node for node in module.body if not isinstance(node, py.Expr)]
    first = code[0] if code else module.body[0]
    if isinstance(first, (py.ClassDef, py.FunctionDef)) and first.decorator_list:
        start = place(first.decorator_list[0]).start - 1  # its `@`
    else:
        start = place(first).start
    return Edit(at(start), f"from {MODULE} import {', '.join(names)}\n\n")


def _no_such(alias: py.alias, span: Span) -> Diagnostic:
    """TR6003."""
    near = nearest(alias.name, lang.__all__)
    text = near if near is None or alias.asname is None else f"{near} as {alias.asname}"
    fix = None if text is None else Fix(f"write `{near}`", (Edit(span, text),), safe=False)
    return Diagnostic(
        "TR6003",
        CODES["TR6003"].severity,
        f"there is no `{alias.name}` in `{MODULE}`",
        span,
        help=did_you_mean(alias.name, lang.__all__),
        fix=fix,
    )


def _missing(names: list[str], spans: list[Span], edit: Edit) -> Diagnostic:
    """TR6007."""
    quoted = [f"`{name}`" for name in names]
    told = " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)
    return Diagnostic(
        "TR6007",
        CODES["TR6007"].severity,
        f"{told} {'is' if len(names) == 1 else 'are'} not imported from `{MODULE}`",
        spans[0],
        tuple(
            Label(span, f"`{name}` is first used here")
            for name, span in zip(names[1:], spans[1:], strict=True)
        ),
        help=f"write `from {MODULE} import ...` with every name that the file uses",
        fix=Fix("import what is used", (edit,), safe=True),
    )
