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
    """Return a warning for each rule that is the first to be decided by some thing of the outside."""
    loads: dict[str, Span] = {}
    texts: dict[str, Span] = {}
    for expr, span in _asked(auto):
        for part in walk(expr):
            if isinstance(part, SignalOf) and SIGNALS[part.name].needs == "load":
                loads.setdefault(str(part), span)
            elif isinstance(part, FieldOf) and part.unit == "text":
                texts.setdefault(str(part), span)
    return [
        *(_load(names, span) for span, names in _by_place(loads)),
        *(_steered(names, span) for span, names in _by_place(texts)),
    ]


def _by_place(places: dict[str, Span]) -> list[tuple[Span, list[str]]]:
    """Return what is first read at each place: one rule is told once, with all that it reads."""
    found: dict[Span, list[str]] = {}
    for name, span in places.items():
        found.setdefault(span, []).append(f"`{name}`")
    return list(found.items())


def _listed(names: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


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


def _load(names: list[str], span: Span) -> Diagnostic:
    """TR2501."""
    return Diagnostic(
        "TR2501",
        "warning",
        f"{_listed(names)} {'makes' if len(names) == 1 else 'make'} the tokens depend on who else is served: the policy is not reproducible",
        span,
        help="read signals of the request instead, if the same request must give the same answer",
    )


def _steered(names: list[str], span: Span) -> Diagnostic:
    """TR2502."""
    return Diagnostic(
        "TR2502",
        "warning",
        f"{_listed(names)} {'is a text' if len(names) == 1 else 'are texts'} of the client: "
        f"whoever writes {'it' if len(names) == 1 else 'them'} can steer this rule",
        span,
        help="read the field as a number or as a condition (`== true`), which no text of a user passes for; "
        "of what the models write, read `token` and `class`",
    )
