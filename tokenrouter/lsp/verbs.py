"""What the lenses do: run a test, and tell what the compiler makes of a policy. Neither needs a model file."""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.compiler import claims, trial
from tokenrouter.compiler.analyse import analysed
from tokenrouter.diagnostics import PolicyError
from tokenrouter.dsl import hir
from tokenrouter.dsl.scope import snake
from tokenrouter.lsp.book import Document


def run_test(document: Document, name: str) -> tuple[bool, str]:
    """Return whether the test of a name passes, and its cases, one a line."""
    lines, failed = [], 0
    for policy in document.study.resolved.policies:
        mine = tuple(test for test in policy.tests if test.name == name)
        if not mine:
            continue
        try:
            auto, _ = analysed(_alone(document, policy))
        except PolicyError as error:
            return False, _errors(error)
        for outcome in trial.run(auto, replace(policy, tests=mine)):
            lines.append(f"{'ok' if outcome.passed else 'FAIL'}: {outcome.case.text}")
            if not outcome.passed:
                failed += 1
                lines.append(f"  expected {outcome.expected}, got {outcome.got}")
    if not lines:
        return False, f'the test "{name}" cannot be run before the mistakes in the file are mended'
    head = f'test "{name}": ' + (f"{failed} failed" if failed else "passed")
    return not failed, "\n".join([head, *lines])


def explain(document: Document, name: str) -> tuple[bool, str]:
    """Return a policy as the passes leave it: states, rules, and how its claims stand."""
    for policy in document.study.resolved.policies:
        if policy.name != snake(name):
            continue
        try:
            auto, _ = analysed(_alone(document, policy))
        except PolicyError as error:
            return False, _errors(error)
        lines = [str(auto).rstrip()]
        for claim in auto.claims:
            verdict = claims.decide(auto, claim)
            lines.append(f"{claim.text}: {verdict.status}")
        return True, "\n".join(lines)
    return False, f"`{name}` cannot be explained before the mistakes in it are mended"


def _alone(document: Document, policy: hir.Policy) -> hir.Resolved:
    return replace(document.study.resolved, policies=(policy,))


def _errors(error: PolicyError) -> str:
    worst = [d for d in error.diagnostics if d.severity == "error"]
    return "\n".join(f"{d.code} line {d.span.line}: {d.message}" for d in worst)
