"""`trc lsp`: the language server, which an editor starts and talks to."""

from __future__ import annotations

import argparse

NAME = "lsp"
HELP = "serve an editor: diagnostics while typing, completion, fixes (docs/editors.md)"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "--stdio", action="store_true", help="talk over stdin and stdout, which is the only way"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until the editor says goodbye."""
    import gc

    from tokenrouter.errors import TokenRouterError

    try:
        import lsprotocol  # noqa: F401
        import pygls  # noqa: F401
    except ModuleNotFoundError as error:
        text = f"the language server needs `{error.name}`: pip install 'tokenrouter[lsp]'"
        raise TokenRouterError(text) from None
    from tokenrouter.lsp.answers import make

    gc.set_threshold(
        200_000, 50, 50
    )  # trees hold no cycles, and looking for some takes time with each key
    make().start_io()
    return 0
