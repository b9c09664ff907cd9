"""Drop the models that no request ever reaches.

Needs: all rules. Gives: every state is reachable from the start; a dropped model stays in `unreached`, and what rules
ask about it is known: it has written nothing. Reports: TR2101.
"""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.compiler.expr import Expr, Lit, SignalOf
from tokenrouter.compiler.fold import fold_one
from tokenrouter.compiler.graph import moves
from tokenrouter.compiler.ir import Automaton, ModelDecl, map_exprs, targets
from tokenrouter.diagnostics import Diagnostic
from tokenrouter.signals import SIGNALS


def drop_unreached(auto: Automaton) -> tuple[Automaton, list[Diagnostic]]:
    """Return `auto` without models that are never reached; the same object where there are none."""
    ways: dict[str, set[str]] = {}
    for move in moves(auto):
        ways.setdefault(move.source, set()).add(move.target)
    live: set[str] = set()
    ahead = {name for rule in auto.start for name in targets(rule.go)}
    while ahead:
        live |= ahead
        ahead = {target for name in ahead for target in ways.get(name, ())} - live
    dead = [decl for decl in auto.models if decl.name not in live]
    if not dead:
        return auto, []
    smaller = replace(
        auto,
        models=tuple(decl for decl in auto.models if decl.name in live),
        states=tuple(state for state in auto.states if state.model in live),
        heads=tuple(head for head in auto.heads if head.model in live),
        template_from=auto.template_from if auto.template_from in live else None,
        fallback=auto.fallback if auto.fallback in live else None,
        unreached=(*auto.unreached, *dead),
    )

    def known(expr: Expr) -> Expr:
        """Return 0 for what a model wrote or holds that is gone."""
        if isinstance(expr, SignalOf) and any(
            isinstance(arg, str) and arg not in live for arg in expr.args
        ):
            return Lit(0.0, SIGNALS[expr.name].unit)
        return expr

    told = [decl for decl in dead if _is_meant(auto, decl)]
    return map_exprs(map_exprs(smaller, known), fold_one), [_unreached(decl) for decl in told]


def _is_meant(auto: Automaton, decl: ModelDecl) -> bool:
    """Return whether the policy says anything of a model; where it does not, the front end tells that it is unused."""
    mentioned = {name for _, _, rule in auto.rules() for name in targets(rule.go)}
    return auto.state(decl.name).own or decl.name in mentioned


def _unreached(decl: ModelDecl) -> Diagnostic:
    """TR2101."""
    return Diagnostic(
        "TR2101",
        "warning",
        f"model `{decl.name}` is never reached from the start",
        decl.span,
        help="remove it, or hand requests to it; a plan leaves it out",
    )
