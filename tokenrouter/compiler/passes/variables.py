"""Find request variables that are set in vain, or read and never set.

Needs: reachable states. Gives: nothing is changed.
Reports:
    TR2601  a var that rules set and nothing reads
    TR2602  a var that rules read and nothing sets, so that it always keeps its first value
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenrouter.compiler.expr import Expr, VarOf, walk
from tokenrouter.compiler.ir import Automaton, Borrow, VarDecl
from tokenrouter.diagnostics import Diagnostic


def variables(auto: Automaton) -> list[Diagnostic]:
    """Return a warning for each var that changes nothing, or never changes."""
    written = {item.var for _, _, rule in auto.rules() for item in rule.sets}
    # A var that only its own assignments read decides nothing.
    read = {name for reader, expr in _readers(auto) for name in _names(expr) if name != reader}
    found = []
    for decl in auto.vars:
        if decl.name in written and decl.name not in read:
            found.append(_vain(decl))
        elif decl.name in read and decl.name not in written:
            found.append(_constant(decl))
    return found


def _readers(auto: Automaton) -> Iterator[tuple[str, Expr]]:
    """Yield every expression, with the var that it is assigned to; '' where it decides something."""
    for _, _, rule in auto.rules():
        if rule.when is not None:
            yield "", rule.when
        if isinstance(rule.go, Borrow):
            yield "", rule.go.most
            if rule.go.until is not None:
                yield "", rule.go.until
        for item in rule.sets:
            yield item.var, item.value


def _names(expr: Expr) -> set[str]:
    return {part.name for part in walk(expr) if isinstance(part, VarOf)}


def _vain(decl: VarDecl) -> Diagnostic:
    """TR2601."""
    return Diagnostic(
        "TR2601",
        "warning",
        f"`{decl.name}` is set, and no condition or length ever reads it",
        decl.span,
        help="read it in a rule, or remove it",
    )


def _constant(decl: VarDecl) -> Diagnostic:
    """TR2602."""
    return Diagnostic(
        "TR2602",
        "warning",
        f"`{decl.name}` is never set, so it always keeps its first value",
        decl.span,
        help=f"let a rule `set {decl.name} = ...`, or make it a `param`",
    )
