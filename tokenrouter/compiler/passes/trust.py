"""Point at rules that somebody else can steer: the load of the machine, or the text of a client.

Needs: nothing. Gives: nothing is changed.
Reports:
    TR2501  a load signal, which makes the policy's tokens depend on who else is served
    TR2502  a rule that reads a text of the client, so that whoever writes it chooses the model

Which is which is told by types and by the catalogue of signals, never by names. What a signal needs says whether it is
a load. All that a client sends reaches rules as `request.NAME`; only where a rule reads it as a text can it be what
somebody typed, for a field that is read as a number or as a condition takes no text (the server refuses one). A field
decides by itself or through a variable that is `set` from it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tokenrouter.compiler.expr import Expr, FieldOf, SignalOf, walk
from tokenrouter.compiler.ir import Automaton, Borrow
from tokenrouter.diagnostics import Diagnostic, Span
from tokenrouter.signals import SIGNALS


def trust(auto: Automaton) -> list[Diagnostic]:
    """Return a warning for each thing of the outside that decides a rule."""
    found: dict[str, Diagnostic] = {}
    for expr, span in _asked(auto):
        for part in walk(expr):
            if isinstance(part, SignalOf) and SIGNALS[part.name].needs == "load":
                found.setdefault(str(part), _load(part, span))
            elif isinstance(part, FieldOf) and part.unit == "text":
                found.setdefault(str(part), _steered(part, span))
    return list(found.values())


def _asked(auto: Automaton) -> Iterator[tuple[Expr, Span]]:
    """Yield what decides anything, with its place."""
    for start in auto.start:
        if start.when is not None:
            yield start.when, start.span
    for _, _, rule in auto.rules():
        if rule.when is not None:
            yield rule.when, rule.span
        if isinstance(rule.go, Borrow):
            yield rule.go.most, rule.span
            if rule.go.until is not None:
                yield rule.go.until, rule.span
        for assign in rule.sets:
            yield assign.value, rule.span


def _load(part: SignalOf, span: Span) -> Diagnostic:
    """TR2501."""
    return Diagnostic(
        "TR2501",
        "warning",
        f"`{part}` makes the tokens depend on who else is served: the policy is not reproducible",
        span,
        help="read signals of the request instead, if the same request must give the same answer",
    )


def _steered(part: FieldOf, span: Span) -> Diagnostic:
    """TR2502."""
    return Diagnostic(
        "TR2502",
        "warning",
        f"`{part}` is a text of the client: whoever writes it can steer this rule",
        span,
        help="read the field as a number or as a condition (`== true`), which no text of a user passes for; "
        "of what the models write, read `token` and `class`",
    )
