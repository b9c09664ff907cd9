"""`trc playground`: a page to write a policy in, see what the compiler sees, and ask which rule fires."""

from __future__ import annotations

import argparse
from pathlib import Path

NAME = "playground"
HELP = (
    "write policies in a web page: diagnostics, graph, plan, and which rule fires (docs/editors.md)"
)
PORT = 8100


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="a .route file to load, and to write when you say `Save`; made then where it is not there (an example)",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (%(default)s)")
    parser.add_argument("--port", type=_port, default=PORT, help="0 takes a free one (%(default)s)")
    parser.add_argument(
        "--open",
        action=argparse.BooleanOptionalAction,
        help="open the page in a browser (where there are a terminal and a desktop)",
    )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"`{text}` is no port: 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Serve until ^C."""
    import sys

    from tokenrouter.errors import TokenRouterError

    try:
        import lsprotocol  # noqa: F401
        import pygls  # noqa: F401
    except ModuleNotFoundError as error:
        text = f"the playground needs `{error.name}`: pip install 'tokenrouter[lsp]'"
        raise TokenRouterError(text) from None
    from tokenrouter.playground.desk import Desk
    from tokenrouter.playground.serve import has_browser, serve, show
    from tokenrouter.server.lifecycle import bind, is_loopback, url

    desk = Desk(args.file)
    with bind(args.host, args.port) as sock:
        where = url(sock).removesuffix("v1")
        if not is_loopback(sock):
            what = "read" if args.file is None else f"read and change `{args.file}`"
            print(f"trc playground: whoever reaches this address may {what}", file=sys.stderr)

        def on_ready() -> None:
            print(f"playground at {where}; ^C ends it", flush=True)
            if has_browser() if args.open is None else args.open:
                show(where)

        serve(desk, sock, args.host, on_ready)
    return 0
