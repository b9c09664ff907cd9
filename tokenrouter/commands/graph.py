"""`trc graph`: the transition graph and the task graphs of a plan, or the transition graphs of a policy file, as Mermaid or SVG."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokenrouter.plan.graph import Graph

NAME = "graph"
HELP = "draw the transition graph of a policy or a plan, and a plan's task graphs (Mermaid, SVG)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="a plan, or a policy file (.route, .py), for which no model files are needed",
    )
    parser.add_argument("--policy", metavar="NAME", help="of a policy file: the policy to draw")
    parser.add_argument(
        "--format",
        choices=("mermaid", "svg", "json"),
        default="mermaid",
        help="json, of a policy file: every policy by name with its SVG, for editors",
    )
    parser.add_argument(
        "--tasks",
        metavar="MODEL",
        help="of a plan: draw the task graph of this model, not the transitions",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file, not to stdout")


def run(args: argparse.Namespace) -> int:
    """Draw one graph, or those of every policy."""
    from pathlib import Path

    policies = args.file.endswith((".route", ".py"))
    text = _of_policies(args) if policies else _of_plan(args)
    if args.output:
        Path(args.output).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


def _of_plan(args: argparse.Namespace) -> str:
    from tokenrouter.errors import UsageError
    from tokenrouter.plan.graph import tasks, transitions
    from tokenrouter.plan.io import named

    if args.policy is not None or args.format == "json":
        what = "--policy" if args.policy is not None else "--format json"
        raise UsageError(f"`{what}` goes with a policy file, and `{args.file}` is read as a plan")
    plan = named(args.file)
    if args.tasks is None:
        return _drawn(transitions(plan), args.format)
    names = [model.name for model in plan.models]
    if args.tasks not in names:
        known = ", ".join(f"`{name}`" for name in names)
        raise UsageError(f"{args.file}: no model `{args.tasks}`; there are {known}")
    return _drawn(tasks(plan, names.index(args.tasks)), args.format)


def _of_policies(args: argparse.Namespace) -> str:
    import json

    from tokenrouter.errors import UsageError

    if args.tasks is not None:
        raise UsageError(f"`--tasks` goes with a plan, and `{args.file}` is a policy file")
    if args.format != "json":
        (graph,) = _graphs(args.file, args.policy, one=True)
        return _drawn(graph, args.format)
    found = [
        {"policy": graph.title.removeprefix("policy "), "svg": _drawn(graph, "svg")}
        for graph in _graphs(args.file, args.policy)
    ]
    return json.dumps(found, ensure_ascii=False) + "\n"


def _graphs(file: str, policy: str | None, *, one: bool = False) -> Iterator[Graph]:
    from dataclasses import replace

    from tokenrouter.compiler.analyse import analysed
    from tokenrouter.compiler.draw import transitions
    from tokenrouter.dsl.load import load

    resolved = load(file, policy, one=one)
    for each in resolved.policies:
        auto, _ = analysed(replace(resolved, policies=(each,)))
        yield transitions(auto)


def _drawn(graph: Graph, how: str) -> str:
    from tokenrouter.plan.graph import mermaid
    from tokenrouter.plan.svg import svg

    return mermaid(graph) if how == "mermaid" else svg(graph)
