"""`trc test`: the tests of a policy, run through the route programs that would be served."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.compiler.trial import Outcome
    from tokenrouter.dsl.hir import Policy, Resolved

NAME = "test"
HELP = "run the tests of a policy; no model files are needed"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("file", help="a .route file")
    parser.add_argument("-k", metavar="TEXT", dest="match", help="only tests whose name holds TEXT")
    parser.add_argument(
        "--coverage", action="store_true", help="name the rules that no passed case fires"
    )


def run(args: argparse.Namespace) -> int:
    """Run the tests of every policy in the file."""
    from tokenrouter.dsl.load import load

    resolved = load(args.file)
    outcomes: list[Outcome] = []
    for policy in resolved.policies:
        outcomes += _policy(resolved, policy, args)
    failed = sum(not outcome.passed for outcome in outcomes)
    if not outcomes:
        what = f"no test whose name holds `{args.match}`" if args.match else "no tests"
        print(f"{args.file}: {what}")
        return 1 if args.match else 0
    print(f"{len(outcomes) - failed} passed" + (f", {failed} failed" if failed else ""))
    return 1 if failed else 0


def _policy(resolved: Resolved, policy: Policy, args: argparse.Namespace) -> list[Outcome]:
    """Run one policy's tests and tell what became of them."""
    from dataclasses import replace

    from tokenrouter.compiler import trial
    from tokenrouter.compiler.analyse import analysed

    auto, _ = analysed(replace(resolved, policies=(policy,)))
    outcomes = [
        outcome
        for outcome in trial.run(auto, policy)
        if args.match is None or args.match in outcome.test
    ]
    _tell(policy.name, outcomes)
    if args.coverage:
        idle = trial.unfired(auto, outcomes)
        total = sum(rule.source != "fallback" for _, _, rule in auto.rules())
        print(f"{policy.name}: {total - len(idle)} of {total} rules fired in a passed case")
        for model, rule in idle:
            print(f"  line {rule.span.line}: at {model}: {rule.text}")
    return outcomes


def _tell(policy: str, outcomes: Iterable[Outcome]) -> None:
    for outcome in outcomes:
        mark = "ok  " if outcome.passed else "FAIL"
        print(f'{mark} {policy}: "{outcome.test}": {outcome.case.text}')
        if not outcome.passed:
            print(f"       expected {outcome.expected}")
            print(f"       got {outcome.got}")
            if outcome.span is not None:
                print(f"       by line {outcome.span.line}: {outcome.text}")
