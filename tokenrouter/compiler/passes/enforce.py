"""Rewrite `enforce` claims into guards on handing a bounded model the next position.

Needs: folded guards, reachable states. Gives: every rule that hands a bounded model M the next position also asks
whether M may have it; a state whose last rule is guarded so ends with the policy's fallback.
Reports:
    TR3201  a bound on the fallback itself
    TR3202  a start at a model that its own bound forbids to begin
    TR3203  a fallback without rules

With C tokens of M among K kept ones, a rule that leads to n tokens of M after k other kept tokens is allowed while
C + n <= x (K + k + n), or C + n <= bound for a count. Staying at M counts as handing it the next position. A stay is charged
whole when it begins, at its greatest length. Where M retries a model that may have had its turn at the position, the candidate
is charged and the next position too, since M then keeps both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tokenrouter.compiler.expr import Arithmetic, Comparison, Every, Expr, Lit, SignalOf
from tokenrouter.compiler.fold import fold
from tokenrouter.compiler.graph import refusals
from tokenrouter.compiler.ir import (
    Automaton,
    Borrow,
    ClaimDecl,
    Mix,
    Rule,
    State,
    Stay,
    To,
    targets,
)
from tokenrouter.diagnostics import Diagnostic

ONE, TWO = Lit(1.0, "count"), Lit(2.0, "count")
NONE = Lit(0.0, "count")


def enforce(auto: Automaton) -> tuple[Automaton, list[Diagnostic]]:
    """Return `auto` with guards for its enforced bounds; the same object where there are none."""
    live = {decl.name for decl in auto.models}
    claims = [claim for claim in auto.claims if claim.kind == "enforce" and claim.model in live]
    if not claims:
        return auto, []
    fallback = auto.fallback if auto.fallback in live else auto.start_model()
    assert fallback is not None
    problems = list(_problems(auto, claims, fallback))
    if problems:
        return auto, problems
    refused = refusals(auto)
    states = tuple(_state(state, claims, fallback, refused) for state in auto.states)
    return replace(auto, states=states), []


def _problems(auto: Automaton, claims: list[ClaimDecl], fallback: str) -> Iterator[Diagnostic]:
    for claim in claims:
        if claim.model == fallback:
            yield _bounds_fallback(auto, claim)
        elif _forbids_first(claim) and any(claim.model in targets(r.go) for r in auto.start):
            yield _bounds_start(claim)
    if not auto.state(fallback).rules:
        yield _no_rules(claims[0], fallback)


def _forbids_first(claim: ClaimDecl) -> bool:
    """Return whether the very first token of the model would break its bound."""
    return claim.bound < 1.0


def _state(
    state: State, claims: list[ClaimDecl], fallback: str, refused: set[tuple[str, str]]
) -> State:
    if not state.rules:
        return state
    rules = []
    for rule in state.rules:
        again = (state.model, *targets(rule.go)) in refused
        guards = [ask for claim in claims for ask in asks(state.model, rule, claim, again)]
        if guards:
            parts = guards if rule.when is None else [rule.when, *guards]
            rule = replace(rule, when=fold(Every(tuple(parts))), source="enforced")
        rules.append(rule)
    last = rules[-1]
    if last.when is not None:
        go = Stay() if state.model == fallback else To(fallback)
        text = f"otherwise -> {'commit' if state.model == fallback else f'commit then {fallback}'}"
        rules.append(Rule(None, True, go, last.span, text, source="fallback"))
    return replace(state, rules=tuple(rules))


def asks(model: str, rule: Rule, claim: ClaimDecl, refused: bool = True) -> Iterator[Expr]:
    """Yield the guard that a rule needs for one claim; nothing where it hands the bounded model nothing.

    A `retry` that may be `refused` keeps the candidate and stays.
    """
    bounded = claim.model
    own = ONE if rule.keep and model == bounded else NONE  # the candidate, if M wrote it
    other = ONE if rule.keep and model != bounded else NONE
    match rule.go:
        case Stay() if model == bounded:
            yield _allowed(claim, _plus(own, ONE), other)
        case To(model=target) if target == bounded:
            yield _allowed(claim, _plus(own, ONE), other)
        case To() if refused and not rule.keep and model == bounded:
            yield _allowed(claim, TWO, NONE)
        case Mix() if bounded in targets(rule.go):
            yield _allowed(claim, _plus(own, ONE), other)
        case Borrow(model=lender) if lender == bounded:
            yield _allowed(claim, _plus(own, rule.go.most), other)
        case Borrow() if model == bounded:
            # After the stay M decides again. Only what the lender is sure to write counts in M's favour.
            sure = rule.go.most if _is_whole(rule.go) else ONE
            yield _allowed(claim, _plus(own, ONE), _plus(other, sure))
        case _:
            return


def _is_whole(go: Borrow) -> bool:
    """Return whether a stay always has the length that it names."""
    most = go.most
    return go.until is None and isinstance(most, Lit) and float(most.value).is_integer()


def _plus(a: Expr, b: Expr) -> Expr:
    return fold(Arithmetic("+", a, b)) if a != NONE else b


def _allowed(claim: ClaimDecl, more: Expr, others: Expr) -> Expr:
    """Return the guard: `more` further tokens of the model, after `others` of other models, keep the bound."""
    count = Arithmetic("+", SignalOf("count", (claim.model,)), more)
    if claim.measure == "count":
        return Comparison("<=", count, Lit(claim.bound, "count"))
    kept = Arithmetic("+", SignalOf("position"), _plus(others, more))
    return Comparison("<=", count, Arithmetic("*", Lit(claim.bound, "share"), kept))


def _bounds_fallback(auto: Automaton, claim: ClaimDecl) -> Diagnostic:
    """TR3201."""
    said = "the policy's fallback" if auto.fallback else "the start model, and so the fallback"
    return Diagnostic(
        "TR3201",
        "error",
        f"`{claim}` bounds `{claim.model}`, which is {said}",
        claim.span,
        help="name another model by `fallback`: requests must have somewhere to go when the bound is reached",
    )


def _bounds_start(claim: ClaimDecl) -> Diagnostic:
    """TR3202."""
    return Diagnostic(
        "TR3202",
        "error",
        f"`{claim}` forbids the first token of `{claim.model}`, and requests may start there",
        claim.span,
        help="start at another model",
    )


def _no_rules(claim: ClaimDecl, fallback: str) -> Diagnostic:
    """TR3203."""
    return Diagnostic(
        "TR3203",
        "error",
        f"the fallback `{fallback}` of `{claim}` has no rules",
        claim.span,
        help=f"give it an `at {fallback}` block, or name another model by `fallback`",
    )
