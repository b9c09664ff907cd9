"""`trc graph`: the transition graph and the task graphs of a plan, as Mermaid or SVG."""

from __future__ import annotations

import argparse

NAME = "graph"
HELP = "draw the transition graph and the task graphs of a plan (Mermaid, SVG)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("plan", help="a plan file")
    parser.add_argument("--format", choices=("mermaid", "svg"), default="mermaid")
    parser.add_argument(
        "--tasks", metavar="MODEL", help="draw the task graph of this model, not the transitions"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file, not to stdout")


def run(args: argparse.Namespace) -> int:
    """Draw one graph."""
    from pathlib import Path

    from tokenrouter.plan.graph import mermaid, tasks, transitions
    from tokenrouter.plan.io import PlanError, read
    from tokenrouter.plan.svg import svg

    plan = read(args.plan)
    graph = transitions(plan)
    if args.tasks is not None:
        names = [model.name for model in plan.models]
        if args.tasks not in names:
            known = ", ".join(f"`{name}`" for name in names)
            raise PlanError(f"{args.plan}: no model `{args.tasks}`; there are {known}")
        graph = tasks(plan, names.index(args.tasks))
    text = mermaid(graph) if args.format == "mermaid" else svg(graph)
    if args.output:
        Path(args.output).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0
