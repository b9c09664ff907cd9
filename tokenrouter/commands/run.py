"""`trc run`: one prompt through a plan in this process, each token in the ink of the model that wrote it."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tokenrouter.errors import TokenRouterError

if TYPE_CHECKING:
    from tokenrouter.plan.structs import Plan
    from tokenrouter.server.alone import Alone
    from tokenrouter.server.protocol import ChatRequest, CompletionRequest
    from tokenrouter.server.report import Reporter
    from tokenrouter.server.transcript import Written

NAME = "run"
HELP = "answer one prompt with a plan, in this process"

Note = Callable[[Sequence["Written"], float], None]


class WrongInput(TokenRouterError):  # noqa: N818 - reads as what it says
    """The prompt or an option cannot be used."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("plan", type=Path, help="plan.json, as `trc compile` writes it")
    parser.add_argument("--prompt", required=True, help="the prompt; `-` reads it from stdin")
    form = parser.add_mutually_exclusive_group()
    form.add_argument(
        "--chat", action="store_true", help="the prompt is a user's message (the default)"
    )
    form.add_argument("--raw", action="store_true", help="the prompt is continued as it stands")
    parser.add_argument("--max-tokens", type=int, default=64, metavar="N", help="(%(default)s)")
    parser.add_argument(
        "--temperature", type=number, default=0.0, metavar="T", help="0 is greedy (%(default)g)"
    )
    _configure_choice(parser)
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a dial of the policy"
    )
    parser.add_argument(
        "--metadata",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="what the policy reads as `request.NAME`; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write each token as JSON lines")
    parser.add_argument(
        "--windows",
        choices=("fixed", "adaptive", "off"),
        default="fixed",
        help="as of `trc serve`; one request alone never waits (%(default)s)",
    )
    parser.add_argument("--dtype", choices=("float64", "float32", "bfloat16", "float16"))
    parser.add_argument(
        "--deterministic", action="store_true", help="same bits alone and in a crowd (float32)"
    )
    parser.add_argument(
        "--allow-python", action="store_true", help="let the plan's Python heads run their code"
    )
    parser.add_argument("--threads", type=threads, metavar="N", help="a share of the cores")


def _configure_choice(parser: argparse.ArgumentParser) -> None:
    """Declare what else a request may say of the choice, under the names that it has over HTTP."""
    choice = parser.add_argument_group(
        "the choice of tokens", "as the request fields of these names"
    )
    choice.add_argument("--top-p", type=number, metavar="P", help="above 0, to 1; 1 is off")
    choice.add_argument("--top-k", type=int, metavar="K", help="-1 and 0 are off")
    choice.add_argument("--min-p", type=number, metavar="P", help="0 to 1; 0 is off")
    choice.add_argument("--seed", type=int, metavar="N", help="64 bits; drawn unless given")
    choice.add_argument(
        "--stop", action="append", metavar="TEXT", help="ends the answer; repeatable"
    )
    choice.add_argument("--presence-penalty", type=number, metavar="X", help="-2 to 2; 0 is off")
    choice.add_argument("--frequency-penalty", type=number, metavar="X", help="-2 to 2; 0 is off")
    choice.add_argument(
        "--repetition-penalty", type=number, metavar="X", help="above 0, to 10; 1 is off"
    )
    choice.add_argument(
        "--ignore-eos", action="store_true", help="go on after an end of sequence, to --max-tokens"
    )
    choice.add_argument(
        "--logit-bias",
        type=bias,
        action="append",
        metavar="ID=X",
        help="added to the logit of a token, -100 to 100; repeatable",
    )
    choice.add_argument(
        "--stop-token-id",
        type=int,
        action="append",
        metavar="ID",
        help="ends the answer as an end of sequence does; repeatable",
    )
    form = choice.add_mutually_exclusive_group()
    form.add_argument("--json-object", action="store_true", help="the answer is a JSON object")
    form.add_argument(
        "--json-schema", type=Path, metavar="FILE", help="the answer is JSON that the schema allows"
    )
    form.add_argument("--regex", metavar="TEXT", help="the whole answer matches it")
    form.add_argument(
        "--grammar", type=Path, metavar="FILE", help="in llguidance's dialect of Lark"
    )


def number(text: str) -> float:
    """Return a finite number; JSON, which the request goes through, knows no other."""
    value = float(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"`{text}` is no finite number")
    return value


def bias(text: str) -> tuple[str, float]:
    """Return a token's id and what is added to its logit."""
    id_, _, value = text.partition("=")
    try:
        return str(int(id_)), number(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not ID=X with two numbers") from None


def threads(text: str) -> int:
    """Return a number of threads."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no positive whole number")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Print the answer, or one JSON object."""
    from tokenrouter.plan.io import read

    plan = read(args.plan)  # before what takes long to import
    request = _request(args, _prompt(args.prompt))

    from tokenrouter.runtime.waiting import environment

    os.environ.update(environment())  # before torch is imported, which reads it then

    from tokenrouter.server.alone import begin
    from tokenrouter.server.report import Reporter

    reporter = Reporter(plan)
    with _trace(args.trace, reporter) as note:
        if sys.stderr.isatty():
            names = ", ".join(model.name for model in plan.models)
            print(f"loading {names}", file=sys.stderr, flush=True)
        base = args.plan.resolve().parent
        alone = begin(
            plan,
            base,
            request,
            dtype=args.dtype,
            deterministic=args.deterministic,
            allow_python=args.allow_python,
            threads=args.threads,
            windows=args.windows,
        )
        if args.json:
            _print_json(plan, alone, reporter, note)
        elif sys.stdout.isatty():
            _print_inked(plan, alone, note)
        else:
            _print_plain(plan, alone, note)
    return 0


def _prompt(text: str) -> str:
    try:
        if text == "-":
            return sys.stdin.buffer.read().decode()
        text.encode()  # what is no UTF-8 comes as lone surrogates
    except UnicodeError:
        raise WrongInput("the prompt is not valid UTF-8") from None
    return text


def _request(args: argparse.Namespace, prompt: str) -> ChatRequest | CompletionRequest:
    """Return what a client would send, so that it is checked in the same way."""
    import msgspec

    from tokenrouter.server.protocol import ChatRequest, CompletionRequest, read

    fields = {
        "max_tokens": args.max_tokens,
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k,
        "min_p": args.min_p,
        "seed": args.seed,
        "stop": args.stop,
        "presence_penalty": args.presence_penalty,
        "frequency_penalty": args.frequency_penalty,
        "repetition_penalty": args.repetition_penalty,
        "ignore_eos": args.ignore_eos,
        "logit_bias": None if args.logit_bias is None else dict(args.logit_bias),
        "stop_token_ids": args.stop_token_id,
        "response_format": _format(args),
        "regex": args.regex,
        "grammar": None if args.grammar is None else _text(args.grammar),
        "route": {
            "params": dict(_setting(text) for text in args.set),
            "metadata": dict(_metadata(text) for text in args.metadata),
            "trace": args.trace is not None,
        },
    }
    if args.raw:
        return read(msgspec.json.encode({**fields, "prompt": prompt}), CompletionRequest)
    turn = {"role": "user", "content": prompt}
    return read(msgspec.json.encode({**fields, "messages": [turn]}), ChatRequest)


def _format(args: argparse.Namespace) -> dict[str, object] | None:
    """Return the `response_format` that the options ask for."""
    if args.json_object:
        return {"type": "json_object"}
    if args.json_schema is None:
        return None
    import json

    try:
        schema = json.loads(_text(args.json_schema))
    except (ValueError, RecursionError) as error:
        raise WrongInput(f"`{args.json_schema}` is no JSON: {error}") from None
    return {"type": "json_schema", "json_schema": {"name": args.json_schema.stem, "schema": schema}}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeError:
        raise WrongInput(f"`{path}` is not valid UTF-8") from None


def _setting(text: str) -> tuple[str, float | bool]:
    """Return the name and the value of `NAME=VALUE`."""
    name, _, value = text.partition("=")
    if value in ("true", "false"):
        return name, value == "true"
    with contextlib.suppress(ValueError):
        return name, float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    raise WrongInput(f"`--set {text}` is not NAME=VALUE with a number, `true` or `false`")


def _metadata(text: str) -> tuple[str, str | float | bool]:
    """Return the name and the value of `NAME=VALUE`: a number, `true`, `false`, or else a text."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise WrongInput(f"`--metadata {text}` is not NAME=VALUE")
    if value in ("true", "false"):
        return name, value == "true"
    with contextlib.suppress(ValueError):
        return name, number(value)
    return name, value


@contextlib.contextmanager
def _trace(path: Path | None, reporter: Reporter) -> Iterator[Note]:
    """Give what writes tokens down with the time at which they were shown."""
    if path is None:
        yield lambda tokens, seconds: None
        return
    from tokenrouter.server.replies import TraceLine, encode

    with path.open("wb") as file:

        def note(tokens: Sequence[Written], seconds: float) -> None:
            for written, traced in zip(tokens, reporter.trace(tokens), strict=True):
                position = written.token.state.position - 1
                line = TraceLine(position=position, ms=1000 * seconds, token=traced)
                file.write(encode(line) + b"\n")

        yield note


def _print_json(plan: Plan, alone: Alone, reporter: Reporter, note: Note) -> None:
    from tokenrouter.server.replies import RunResult, encode

    text = ""
    for shown in alone:
        note(shown.tokens, alone.seconds)
        text += shown.text
    transcript, work = alone.transcript, alone.work
    assert transcript.finish is not None
    result = RunResult(
        policy=plan.policy,
        text=text,
        finish_reason=transcript.finish,
        seconds=alone.seconds,
        usage=reporter.usage(work.n_prompt_tokens, [transcript]),
        route=reporter.route(work.seed, transcript, None),
    )
    print(encode(result).decode())


def _print_inked(plan: Plan, alone: Alone, note: Note) -> None:
    """The answer on a terminal: legend, marked text, totals."""
    from tokenrouter.server.ink import Ink, wants_colour

    names = [model.name for model in plan.models]
    ink = Ink(names, wants_colour(sys.stdout))
    print(ink.legend(), end="\n\n", flush=True)
    try:
        for shown in alone:
            note(shown.tokens, alone.seconds)
            for token, text in shown.tokens:
                print(ink.write(text, names[token.model]), end="", flush=True)
    finally:
        print(ink.close(), flush=True)
    print("\n" + _totals(plan, alone))


def _print_plain(plan: Plan, alone: Alone, note: Note) -> None:
    """The answer in a pipe: the text as it is, the totals on stderr."""
    for shown in alone:
        note(shown.tokens, alone.seconds)
        print(shown.text, end="", flush=True)
    print(flush=True)
    print(_totals(plan, alone), file=sys.stderr)


def _totals(plan: Plan, alone: Alone) -> str:
    from tokenrouter.server.ink import totals

    by_model = {model.name: alone.transcript.by_model[i] for i, model in enumerate(plan.models)}
    return totals(by_model, alone.transcript.handoffs, alone.seconds)
