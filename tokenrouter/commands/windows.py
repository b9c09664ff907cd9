"""`trc windows`: the throughput model on numbers that need no policy: how fast, and which windows."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.throughput.spec import Solution, Spec

NAME = "windows"
HELP = "solve the throughput model of a specification for its best batching windows"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--spec",
        required=True,
        metavar="FILE",
        help="JSON; docs/throughput-model.md has the fields",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Solve and print."""
    from tokenrouter.throughput.answer import answer
    from tokenrouter.throughput.spec import read

    spec = read(args.spec)
    solved, gap, met = answer(spec)
    print(_json(solved, gap, met) if args.json else _page(spec, solved, gap, met))
    return 0


def _json(solved: Solution, gap: float | None, met: bool) -> str:
    import msgspec

    record = {
        "tokens_per_s": solved.tokens_per_s,
        "stderr": solved.stderr,
        "solver": solved.solver,
        "states": solved.states,
        "windows": solved.windows,
        "optimality_gap": gap,
        "objective_met": met,
        "per_model": [
            {
                "utilisation": model.utilisation,
                "mean_batch": model.mean_batch,
                "admission_delay_ms": model.admission_delay_ms,
            }
            for model in solved.per_model
        ],
    }
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode()


def _page(spec: Spec, solved: Solution, gap: float | None, met: bool) -> str:
    how = (
        f"exact, {solved.states} states"
        if solved.states is not None
        else f"sampled, standard error {solved.stderr:.2f} tokens/s"
    )
    speed = solved.tokens_per_s
    lines = [
        f"{speed:.1f} tokens/s with {spec.n} active, {speed / spec.n:.1f} for each ({how})",
        "best launch policy unknown, since the chain of all policies is too large"
        if gap is None
        else f"{100 * (1 - gap):.1f} % of the best launch policy of any kind",
        "",
        "model  window   busy  mean batch  admission delay",
    ]
    lines += [
        f"{at:5}  {window:6}  {100 * m.utilisation:4.0f} %  {m.mean_batch:9.2f}  {m.admission_delay_ms:12.1f} ms"
        for at, (window, m) in enumerate(zip(solved.windows, solved.per_model, strict=True))
    ]
    if not met:
        lines += [
            "",
            "the speed that the objective asks for is not reached; fewer active requests would be faster",
        ]
    return "\n".join(lines)
