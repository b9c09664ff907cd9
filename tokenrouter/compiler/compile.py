"""The whole way from a policy file to a plan, in the order in which it is gone."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from tokenrouter.compiler import claims, heads, models, pipeline
from tokenrouter.compiler.analyse import analysed, refuse, together
from tokenrouter.compiler.emit import Tuning, emit
from tokenrouter.compiler.gather import gather, head_digests, placed
from tokenrouter.compiler.ir import Automaton, ClaimDecl
from tokenrouter.compiler.lower import lower
from tokenrouter.compiler.route_text import (
    block_text,
    declared,
    head_text,
    is_python,
    own,
    rule_text,
    signal_text,
    test_text,
)
from tokenrouter.compiler.written import written
from tokenrouter.diagnostics import Diagnostic
from tokenrouter.dsl import hir
from tokenrouter.dsl.load import load
from tokenrouter.plan import structs as s
from tokenrouter.plan.structs import Plan

DEFAULT = Tuning()


@dataclass(frozen=True, slots=True)
class Compiled:
    """A plan, and what was found on the way to it that is no error."""

    plan: Plan
    auto: Automaton
    diagnostics: list[Diagnostic]


def compile_policy(
    path: str | os.PathLike[str],
    *,
    policy: str | None = None,
    sets: Mapping[str, str | float | bool] | None = None,
    max_active: int = DEFAULT.max_active,
    max_wait_ms: float | None = DEFAULT.max_wait_ms,
    kv_budget: int = DEFAULT.kv_budget,
    profile: str | Path | None = None,
) -> Plan:
    """Return the plan of a `.route` file; raises PolicyError, or another TokenRouterError.

    `policy` picks one of several in the file, `sets` gives params other values. Paths of models are relative to the file,
    and absolute in the plan. `profile` is a file of `trc profile`.
    """
    tuning = Tuning(max_active, max_wait_ms, kv_budget)
    texts = {name: _text(value) for name, value in (sets or {}).items()}
    resolved = load(path, policy, texts, one=True)
    return compile_resolved(resolved, tuning, profile=profile).plan


def _text(value: str | float | bool) -> str:
    """Return a value of `sets` as it is written after `--set NAME=`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else repr(value)


def compile_resolved(
    resolved: hir.Resolved,
    tuning: Tuning = DEFAULT,
    home: Path | None = None,
    *,
    profile: str | Path | None = None,
    machine: str = "cpu",
) -> Compiled:
    """Return the plan of a resolved file that holds one policy; raises PolicyError.

    `home` is the directory where the plan will lie: relative paths are written as seen from it, absolute without it.
    `profile` is what `trc profile` wrote; without one, windows are solved for the stated `machine`, `cpu` or `gpu`.
    """
    policy = resolved.only()
    auto, _ = analysed(resolved)
    base = Path(resolved.file).resolve().parent
    facts = gather(auto, base)
    # With the vocabulary at hand the bounds of signals are tighter, so the passes look again.
    auto, found = pipeline.run(replace(lower(policy), vocabulary=facts[0].vocabulary.size))
    found += models.compare(auto, facts)
    found += heads.compare(auto, facts, base)
    refuse(resolved, found)
    digests = head_digests(auto, base)
    auto = placed(auto, base, home)
    plan = emit(
        auto,
        facts,
        tuning,
        provenance(resolved, auto),
        surface(resolved, auto),
        [claim_of(auto, claim) for claim in auto.claims],
        digests,
    )
    from tokenrouter.profile import io as profiles  # noqa: PLC0415
    from tokenrouter.profile.windows import with_windows  # noqa: PLC0415 - scipy takes long to import

    measured = None if profile is None else profiles.read(profile)
    if measured is not None:
        profiles.check_fits(measured, plan, str(profile))
    plan = with_windows(plan, measured, machine, patient=tuning.max_wait_ms is None)
    return Compiled(plan, auto, together(resolved, found))


def provenance(resolved: hir.Resolved, auto: Automaton) -> s.Provenance:
    """Return where a plan comes from."""
    text = "".join(resolved.texts[name] for name in sorted(resolved.texts))
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    policy = resolved.only()
    told = {
        (block.model, rule.span): rule_text(rule)
        for block in (policy.blocks if is_python(policy) else ())
        for rule in block.rules
    }
    rules = [
        s.RuleSource(
            model=place[state.model],
            rule=index,
            line=rule.span.line,
            column=rule.span.column,
            text=told.get((state.model, rule.span), rule.text),
        )
        for state, index, rule in auto.rules()
        if rule.source != "fallback"
    ]
    return s.Provenance(
        source=Path(resolved.file).name,
        digest=hashlib.sha256(text.encode()).hexdigest(),
        created=_now(),
        rules=rules,
    )


def _now() -> str:
    """Return the time in UTC; SOURCE_DATE_EPOCH fixes it, so that a build can be repeated to the byte."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    at = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdigit() else datetime.now(UTC)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def surface(resolved: hir.Resolved, auto: Automaton) -> s.Surface:
    """Return what only people need."""
    policy = resolved.only()
    dropped = {decl.name for decl in auto.unreached}
    heads = {decl.name for decl in auto.heads}
    idle = (*(head for head in policy.heads if head.name not in heads), *policy.idle_heads)
    return s.Surface(
        source=written(resolved, policy),
        signals=[s.SurfaceSignal(name=d.name, text=signal_text(policy, d)) for d in policy.signals],
        tests=[
            s.SurfaceTest(name=test.name, text=test_text(policy, test)) for test in policy.tests
        ],
        unreached=[
            *(declared(policy, model) for model in policy.models if model.name in dropped),
            *(head_text(head, head.model) for head in idle),
            *(block_text(policy, b) for b in policy.blocks if b.model in dropped and own(b)),
        ],
        comments=[s.Comment(anchor=c.anchor, place=c.place, text=c.text) for c in policy.comments],
    )


def claim_of(auto: Automaton, claim: ClaimDecl) -> s.Claim:
    """Return a claim as it is decided."""
    verdict = claims.decide(auto, claim)
    assert verdict.status != "refuted", "the pass `guarantees` lets no refuted claim through"
    return s.Claim(text=claim.text, status=verdict.status, evidence=verdict.evidence)
