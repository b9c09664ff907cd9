"""`trc serve`: a plan behind an OpenAI-compatible HTTP server."""

from __future__ import annotations

import argparse
import logging
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from tokenrouter.errors import TokenRouterError, UsageError

if TYPE_CHECKING:
    from tokenrouter.plan.structs import Plan
    from tokenrouter.server.spans import Spans

NAME = "serve"
HELP = "serve a plan over HTTP, OpenAI-compatible"
KEY_VARIABLE = "TOKENROUTER_API_KEY"

_log = logging.getLogger("tokenrouter")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("plan", type=Path, help="plan.json, as `trc compile` writes it")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s)")
    parser.add_argument("--port", type=port, default=8000, help="0 takes a free one (%(default)s)")
    parser.add_argument("--name", help="model name that clients send (the policy's name)")
    parser.add_argument(
        "--api-key",
        type=api_key,
        metavar="KEY",
        help=f"refuse requests that do not name it; better told by ${KEY_VARIABLE}",
    )
    parser.add_argument(
        "--drain",
        type=seconds,
        default=30.0,
        metavar="S",
        help="seconds that running requests have after ^C or SIGTERM (%(default)g)",
    )
    parser.add_argument(
        "--max-waiting",
        type=count,
        default=1024,
        metavar="N",
        help="requests that may queue before others get a 429 (%(default)s)",
    )
    parser.add_argument(
        "--request-timeout",
        type=duration,
        metavar="S",
        help="seconds after which a request that has not finished ends with a 504 (no limit)",
    )
    parser.add_argument(
        "--ssl-certfile", type=Path, metavar="FILE", help="serve HTTPS with this certificate (PEM)"
    )
    parser.add_argument(
        "--ssl-keyfile", type=Path, metavar="FILE", help="its key (in the certificate's file)"
    )
    parser.add_argument(
        "--cors-origin",
        type=origin,
        action="append",
        default=[],
        metavar="ORIGIN",
        help="let pages of this origin ask from browsers, or `*` for all; repeatable (none)",
    )
    parser.add_argument(
        "--windows",
        choices=("fixed", "adaptive", "off"),
        default="fixed",
        help="batching windows: the plan's, re-solved while serving, or none (%(default)s)",
    )
    parser.add_argument(
        "--max-stall",
        type=milliseconds,
        default=250.0,
        metavar="MS",
        help="milliseconds that prompts may keep those that write waiting, a batch (%(default)g)",
    )
    parser.add_argument("--dtype", choices=("float64", "float32", "bfloat16", "float16"))
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where models run; auto: on GPUs where there are some (%(default)s)",
    )
    parser.add_argument(
        "--graphs",
        choices=("auto", "on", "off"),
        default="auto",
        help="capture short steps; auto: on GPUs (%(default)s)",
    )
    parser.add_argument(
        "--deterministic", action="store_true", help="same bits alone and in a crowd (float32)"
    )
    parser.add_argument(
        "--allow-python", action="store_true", help="let the plan's Python heads run their code"
    )
    parser.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="of the lines on stderr (%(default)s)",
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="the least that is logged; at info one line a request (%(default)s)",
    )
    parser.add_argument(
        "--otel",
        action="store_true",
        help="send a span of each request by OpenTelemetry; $OTEL_EXPORTER_OTLP_ENDPOINT says where",
    )
    parser.add_argument(
        "--threads",
        type=count,
        metavar="N",
        help="threads of each subserver (its share of the cores; where that is one, all cores in turn)",
    )


def port(text: str) -> int:
    """Return a port number."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"`{text}` is no port: 0 to 65535")
    return int(text)


def api_key(text: str) -> str:
    """Return a key; an empty one, as an unset variable leaves it, would let everybody in."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the key is empty")
    return text


def seconds(text: str) -> float:
    """Return a duration that is not negative."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"`{text}` is no number of seconds")
    return value


def duration(text: str) -> float:
    """Return a time that is not over at once."""
    if (value := seconds(text)) == 0:
        raise argparse.ArgumentTypeError("a request needs more than 0 seconds")
    return value


def milliseconds(text: str) -> float:
    """Return a time in milliseconds that is not over at once."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"`{text}` is no positive number of milliseconds")
    return value


def origin(text: str) -> str:
    """Return a web origin."""
    if text != "*" and not re.fullmatch(r"https?://[^/?#\s]+", text):
        raise argparse.ArgumentTypeError(f"`{text}` is no origin like https://example.com")
    return text


def count(text: str) -> int:
    """Return a positive whole number."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"`{text}` is no positive whole number")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Serve until ^C or SIGTERM; where lines are JSON, what stops it is one too."""
    from tokenrouter.runtime import logs

    logs.configure(args.log_format, args.log_level, "server")
    try:
        return _serve(args)
    except TokenRouterError as error:
        if args.log_format == "text":
            raise  # in the form of all commands
        _log.error("%s", error)
        return 1


def _serve(args: argparse.Namespace) -> int:
    from tokenrouter.plan.io import read

    plan = read(args.plan)  # before what takes long to import

    import asyncio

    from msgspec.structs import replace

    from tokenrouter.models.tokenizer import TextTokenizer
    from tokenrouter.plan.show import narrowed
    from tokenrouter.runtime import logs
    from tokenrouter.runtime.client import Client
    from tokenrouter.runtime.python_heads import refuse_python
    from tokenrouter.server.access import context
    from tokenrouter.server.lifecycle import Tls, bind, is_loopback, serve, url
    from tokenrouter.server.service import Service

    logs.configure(args.log_format, args.log_level, "server", context)
    refuse_python(plan, allowed=args.allow_python)
    device = chosen(args.device)
    if device == "cuda":
        plan = fitted(plan, args.dtype)
    if bound := narrowed(plan):
        _log.info(bound)
    spans = _spans(plan, args.name or plan.policy) if args.otel else None
    base = args.plan.resolve().parent
    # Out of the environment, so that no process that is started from here on can tell it.
    told = os.environ.pop(KEY_VARIABLE, None)
    key = args.api_key or told
    if key is not None and not key.strip():
        raise UsageError(f"${KEY_VARIABLE} is empty: set it to a key, or unset it to ask for none")
    tls = None
    if args.ssl_certfile is not None:
        tls = Tls(args.ssl_certfile, args.ssl_keyfile)
        tls.check()
    elif args.ssl_keyfile is not None:
        raise UsageError("--ssl-keyfile needs --ssl-certfile, the certificate that the key is of")
    with bind(args.host, args.port) as sock:
        where = url(sock, tls)
        if key is None and not is_loopback(sock):
            _log.warning("whoever reaches this address may use it; --api-key asks for a key")
        service = Service(
            name=args.name or plan.policy,
            plan=plan,
            tokenizer=TextTokenizer.of(plan, base),
            api_key=key,
            request_timeout_s=args.request_timeout,
            cors_origins=tuple(args.cors_origin),
            client=Client(
                plan,
                base=base,
                dtype=args.dtype,
                deterministic=args.deterministic,
                allow_python=args.allow_python,
                threads=args.threads,
                windows=args.windows,
                max_waiting=args.max_waiting,
            ),
        )

        settings = service.client.settings  # that nothing has been started with
        service.client.settings = replace(settings, device=device, graphs=args.graphs)
        service.client.bound_stall(args.max_stall)
        service.client.log_to(args.log_format, args.log_level, logs.relay)

        def on_ready() -> None:
            print(f"serving `{service.name}` at {where}; ^C drains and ends", flush=True)

        work = serve(
            service,
            sock,
            drain_s=args.drain,
            say=_log.info,
            on_ready=on_ready,
            tls=tls,
            observers=[] if spans is None else [spans],
        )
        try:
            return asyncio.run(work)
        finally:
            if spans is not None:
                spans.close()


def chosen(device: str) -> str:
    """Return `cpu` or `cuda` for what was asked for."""
    if device == "auto":
        # Looked for without torch, which takes seconds to say that there is none.
        return "cuda" if Path("/dev/nvidiactl").exists() else "cpu"
    return device


def fitted(plan: Plan, dtype: str | None) -> Plan:
    """Return the plan with KV pools as large as its GPUs have room for, and say so; raises NoRoom."""
    from tokenrouter.runtime.placing import free_memory, in_turns, places, with_budget

    free = free_memory()
    placed = places(plan, len(free))
    made = with_budget(plan, placed, free, dtype)
    where = ", ".join(
        f"{m.name} on GPU {'+'.join(map(str, own))}"
        for m, own in zip(plan.models, placed, strict=True)
    )
    _log.info(f"{where}; room for {made.memory.capacity_tokens} tokens of each")
    turns = in_turns(plan, placed)
    if turns:
        _log.warning(turns)
    return made


def _spans(plan: Plan, name: str) -> Spans:
    try:
        from tokenrouter.server.spans import Spans, otlp
    except ImportError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        what = "--otel needs OpenTelemetry, which is not installed: pip install 'tokenrouter[otel]'"
        raise UsageError(what) from None
    return Spans(otlp(name), [model.name for model in plan.models])
