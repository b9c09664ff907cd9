"""Drop the models that no request ever reaches, and find rules that nobody asks because requests only borrow from their model.

Needs: all rules. Gives: every state is reachable from the start; a dropped model stays in `unreached`, and what rules
ask about it is known: it has written nothing. Reports: TR2101.
"""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.compiler.expr import Expr, Lit, SignalOf
from tokenrouter.compiler.fold import fold_one
from tokenrouter.compiler.graph import moves
from tokenrouter.compiler.ir import Automaton, Borrow, ModelDecl, State, map_exprs, targets
from tokenrouter.diagnostics import Diagnostic
from tokenrouter.signals import SIGNALS


def drop_unreached(auto: Automaton) -> tuple[Automaton, list[Diagnostic]]:
    """Return `auto` without models that are never reached; the same object where there are none."""
    ways: dict[str, set[str]] = {}
    for move in moves(auto):
        ways.setdefault(move.source, set()).add(move.target)
    first = {name for rule in auto.start for name in targets(rule.go)}
    live = _closure(first, ways)
    asked = first | _handed(auto, live)
    idle = [state for state in auto.states if state.model in live - asked and state.own]
    notes = [_only_lends(state) for state in idle if state.rules]
    dead = [decl for decl in auto.models if decl.name not in live]
    if not dead:
        return auto, notes
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
    notes += [_unreached(decl) for decl in told]
    return map_exprs(map_exprs(smaller, known), fold_one), notes


def _closure(first: set[str], ways: dict[str, set[str]]) -> set[str]:
    """Return the models that ways lead to from the first, which are among them."""
    reached: set[str] = set()
    ahead = first
    while ahead:
        reached |= ahead
        ahead = {target for name in ahead for target in ways.get(name, ())} - reached
    return reached


def _handed(auto: Automaton, live: set[str]) -> set[str]:
    """Return the models whose rules are asked after a hand-off; a lender's are not."""
    out = {
        name
        for state in auto.states
        if state.model in live
        for rule in state.rules
        if not isinstance(rule.go, Borrow)
        for name in targets(rule.go)
    }
    if auto.fallback is not None and any(claim.kind == "enforce" for claim in auto.claims):
        out.add(auto.fallback)
    return out


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


def _only_lends(state: State) -> Diagnostic:
    """TR2101."""
    return Diagnostic(
        "TR2101",
        "warning",
        f"no rule of `{state.model}` is ever asked: requests only borrow from it",
        state.span,
        help="remove its rules, or hand requests to it by `retry` or `commit then`",
    )
