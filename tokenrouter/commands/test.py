"""`trc test`: the tests of a policy, run through the route programs that would be served."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenrouter.compiler.ir import Automaton
    from tokenrouter.compiler.trial import Outcome
    from tokenrouter.dsl.hir import Policy, Resolved

NAME = "test"
HELP = "run the tests of a policy; no model files are needed"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", help="a .route file")
    parser.add_argument("-k", metavar="TEXT", dest="match", help="only tests whose name holds TEXT")
    parser.add_argument(
        "--coverage",
        action="store_true",
        help="count, for every rule, the passed cases that fire it",
    )
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="json: one object, for CI"
    )


def run(args: argparse.Namespace) -> int:
    """Run the tests of every policy in the file; 1 where a case fails, or -k picks none."""
    from tokenrouter.dsl.load import load

    resolved = load(args.file)
    told: list[Outcome] = []
    policies = []
    for policy in resolved.policies:
        auto, outcomes = _outcomes(resolved, policy, args.match)
        told += outcomes
        if args.format == "json":
            policies.append(_json(policy.name, auto, outcomes))
            continue
        _tell(policy.name, outcomes)
        for test in policy.tests:
            if not test.cases and (args.match is None or args.match in test.name):
                print(f'none {policy.name}, "{test.name}": it has no cases, so nothing was tested')
        if args.coverage:
            _tell_coverage(policy.name, auto, outcomes)
    failed = sum(not outcome.passed for outcome in told)
    if args.format == "json":
        _print(args.file, len(told), failed, policies)
    elif not told:
        what = f"no test whose name holds `{args.match}`" if args.match else "no tests"
        print(f"{args.file}: {what}")
    else:
        print(f"{len(told) - failed} passed" + (f", {failed} failed" if failed else ""))
    return 1 if failed or (args.match and not told) else 0


def _outcomes(
    resolved: Resolved, policy: Policy, match: str | None
) -> tuple[Automaton, list[Outcome]]:
    """Return a policy's automaton and what became of its cases."""
    from dataclasses import replace

    from tokenrouter.compiler import trial
    from tokenrouter.compiler.analyse import analysed

    auto, _ = analysed(replace(resolved, policies=(policy,)))
    outcomes = [o for o in trial.run(auto, policy) if match is None or match in o.test]
    return auto, outcomes


def _tell(policy: str, outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        mark = "ok  " if outcome.passed else "FAIL"
        line = "" if outcome.passed else f", line {outcome.case.span.line}"
        print(f'{mark} {policy}, "{outcome.test}"{line}: {outcome.case.text}')
        if not outcome.passed:
            print(f"       expected  {outcome.expected}")
            print(f"       got       {outcome.got}")
            if outcome.span is not None:
                print(
                    f"       by        line {outcome.span.line}{WHO[outcome.source]}: {outcome.text}"
                )


WHO = {
    "policy": "",
    "enforced": ", which `enforce` guards",
    "fallback": ", where `enforce` leaves no other rule",
}


def _tell_coverage(policy: str, auto: Automaton, outcomes: Sequence[Outcome]) -> None:
    from tokenrouter.compiler import trial

    counts = trial.coverage(auto, outcomes)
    fired = sum(n > 0 for _, _, n in counts)
    print(f"{policy}: {fired} of {len(counts)} rules fired in a passed case")
    for model, rule, n in counts:
        mark = f"{n:4}" if n else "none"
        print(f"  {mark}  line {rule.span.line}: at {model}: {rule.text}")


def _json(policy: str, auto: Automaton, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return a policy's cases and coverage as plain data."""
    from tokenrouter.compiler import trial

    cases = [
        {
            "test": o.test,
            "line": o.case.span.line,
            "case": o.case.text,
            "passed": o.passed,
            "expected": o.expected,
            "got": o.got,
            "rule": None
            if o.span is None
            else {"index": o.rule, "line": o.span.line, "text": o.text},
        }
        for o in outcomes
    ]
    rules = [
        {"model": model, "line": rule.span.line, "text": rule.text, "passed_cases": n}
        for model, rule, n in trial.coverage(auto, outcomes)
    ]
    return {"policy": policy, "cases": cases, "rules": rules}


def _print(file: str, total: int, failed: int, policies: list[dict[str, Any]]) -> None:
    import json

    found = {"file": file, "passed": total - failed, "failed": failed, "policies": policies}
    print(json.dumps(found, indent=2, ensure_ascii=False))
