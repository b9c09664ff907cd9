"""`trc head`: make head files of published router checkpoints, and look at them."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenrouter.models.head import HeadFile

NAME = "head"
HELP = "convert a published router checkpoint into a head file, or show one"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="convert|show")
    convert = verbs.add_parser(
        "convert",
        help="make a head file of a checkpoint",
        description="Make a head file of a checkpoint. It is read weights-only: nothing in it is run.",
    )
    convert.add_argument("checkpoint", type=Path, help="R2R's .pt, or CITER's .pth")
    convert.add_argument("--kind", choices=("r2r", "citer"), required=True, help="who published it")
    convert.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.safetensors")
    convert.add_argument(
        "--threshold", type=_number, metavar="P", help="note this one in the file's header"
    )
    show = verbs.add_parser("show", help="say what a head file holds")
    show.add_argument("file", type=Path, help="a head file")


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"`{text}` is no finite number")
    return value


def run(args: argparse.Namespace) -> int:
    """Convert or show."""
    if args.verb == "show":
        print(describe(_named(args.file)))
        return 0
    from tokenrouter.runtime.model.head_convert import convert

    head, dropped = convert(args.checkpoint, args.kind, args.output, args.threshold)
    print(f"{args.output}: {describe(head)}")
    for name in dropped:
        print(f"left out: `{name}`")
    if args.kind == "r2r":
        print("declare it with `reads MODEL.{hidden, logits, token}`, and ask `head >= threshold`")
    else:
        print("declare it with `reads MODEL.{hidden}`, and ask `head < threshold`")
    return 0


def _named(file: Path) -> HeadFile:
    """Return the head that an argument names; raises UsageError."""
    from tokenrouter.errors import UsageError
    from tokenrouter.models.head import HeadFileError, read_head

    try:
        return read_head(file)
    except HeadFileError as error:
        raise UsageError(str(error)) from None


def describe(head: HeadFile) -> str:
    """Return one paragraph about a head."""
    reads = f"reads a hidden state of {head.hidden} numbers"
    if head.kind == "r2r":
        reads += f", the candidate's embedding and the {head.top} largest logits"
    lines = [f"{head.kind}, {head.parameters:,} weights; {reads}"]
    if head.activations:
        lines.append(f"activations: {', '.join(head.activations)}")
    told = "none in the file" if head.threshold is None else f"{head.threshold:g}"
    lines.append(f"published threshold: {told}")
    if head.source:
        lines.append(f"source: {head.source}")
    return "\n".join(lines)
