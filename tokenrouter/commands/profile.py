"""`trc profile`: step times and probabilities of a plan, measured on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "profile"
HELP = "measure a plan on this machine, for `trc compile --profile`"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("plan", type=Path, help="plan.json, as `trc compile` writes it")
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        type=Path,
        metavar="FILE",
        help="where to write the profile",
    )
    parser.add_argument(
        "--prompts",
        type=Path,
        metavar="FILE",
        help='JSON lines, each {"prompt": "..."}; a shipped set otherwise',
    )
    parser.add_argument(
        "--max-tokens",
        type=_positive,
        metavar="N",
        help="that each prompt may write (128; quick: 32)",
    )
    parser.add_argument(
        "--temperature",
        type=_temperature,
        default=0.0,
        metavar="T",
        help="0 is greedy (%(default)g)",
    )
    parser.add_argument("--raw", action="store_true", help="prompts are continued as they stand")
    parser.add_argument(
        "--quick", action="store_true", help="fewer sizes of batches, fewer prompts"
    )
    parser.add_argument("--dtype", choices=("float64", "float32", "bfloat16", "float16"))
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="where models run (%(default)s)"
    )
    parser.add_argument(
        "--threads",
        type=_positive,
        metavar="N",
        help="threads of each model (its share of the cores)",
    )


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no positive whole number")
    return int(text)


def _temperature(text: str) -> float:
    value = float(text)
    if not 0 <= value < 100:
        raise argparse.ArgumentTypeError(f"`{text}` is no temperature")
    return value


def run(args: argparse.Namespace) -> int:
    """Measure and write."""
    import sys

    from tokenrouter.plan.io import named
    from tokenrouter.profile.io import ProfileError, write
    from tokenrouter.profile.prompts import read_prompts, shipped

    plan = named(args.plan)
    if not args.output.resolve().parent.is_dir():  # better told now than after minutes
        raise ProfileError(f"{args.output}: cannot be written: its directory does not exist")
    prompts = shipped() if args.prompts is None else read_prompts(args.prompts)
    name = "shipped" if args.prompts is None else args.prompts.name

    from tokenrouter.server.profiling import Wanted, profile

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    wanted = Wanted(
        prompts=prompts[:4] if args.quick and args.prompts is None else prompts,
        name=name,
        chat=not args.raw,
        max_tokens=args.max_tokens or (32 if args.quick else 128),
        temperature=args.temperature,
        quick=args.quick,
        dtype=args.dtype,
        threads=args.threads,
        device=args.device,
    )
    found = profile(plan, args.plan.resolve().parent, wanted, say)
    write(found, args.output)
    ways = found.ways
    print(
        f"{args.output}: {len(found.models)} models, {ways.requests} prompts, {ways.tokens} tokens, "
        f"{found.seconds:.0f} s; use it with `trc compile --profile {args.output}`"
    )
    return 0
