"""Refuse guarantees that do not hold, or that the rules alone do not prove.

Needs: reachable states, enforced bounds rewritten. Gives: every `guarantee` left is proved.
Reports:
    TR3101  a bound that some way of the policy breaks, named rule by rule
    TR3102  a bound that the rules alone do not prove
"""

from __future__ import annotations

from tokenrouter.compiler.claims import Verdict, decide
from tokenrouter.compiler.ir import Automaton, ClaimDecl, targets
from tokenrouter.diagnostics import Diagnostic, Edit, Fix, Label, Span


def guarantees(auto: Automaton) -> list[Diagnostic]:
    """Return one error a guarantee that is not proved."""
    verdicts = [(claim, decide(auto, claim)) for claim in auto.claims]
    return [
        _unproved(auto, claim, verdict)
        for claim, verdict in verdicts
        if verdict.status in ("refuted", "not proved")
    ]


def _unproved(auto: Automaton, claim: ClaimDecl, verdict: Verdict) -> Diagnostic:
    """TR3101, TR3102."""
    first = {name for rule in auto.start for name in targets(rule.go)}
    homeless = claim.model == (auto.fallback or auto.start_model())
    if homeless or (claim.bound < 1.0 and claim.model in first):
        where = "requests start at it" if claim.model in first else "it is the fallback"
        help_ = f"loosen it or mend the rules; the bound cannot be enforced on `{claim.model}`, since {where}"
        fix = None
    else:
        help_ = "write `enforce` instead, and the compiler guards every hand-off by it"
        fix = Fix("enforce the bound", (Edit(_keyword(claim), "enforce"),), safe=False)
    labels = tuple(
        Label(way.rule.span, f"step {number} of the way that breaks it")
        for number, way in enumerate(verdict.cycle, start=1)
    )
    refuted = verdict.status == "refuted"
    said = "does not hold" if refuted else "is not proved from the rules alone"
    return Diagnostic(
        "TR3101" if refuted else "TR3102",
        "error",
        f"`{claim.text}` {said}: {verdict.evidence}",
        claim.span,
        labels,
        help=help_,
        fix=fix,
    )


def _keyword(claim: ClaimDecl) -> Span:
    """Return the place of the word `guarantee`, with which the claim begins."""
    at, n = claim.span, len("guarantee")
    return Span(at.start, at.start + n, at.line, at.column, at.line, at.column + n, at.file)
