"""The server's life: a bound socket, the page behind it, a browser where one is wanted, and the end at ^C."""

from __future__ import annotations

import os
import socket
import sys
import webbrowser
from collections.abc import Callable

import uvicorn

from tokenrouter.playground.app import create_app
from tokenrouter.playground.desk import Desk

LAST_ANSWERS_S = 2


def serve(desk: Desk, sock: socket.socket, host: str, on_ready: Callable[[], None]) -> None:
    """Answer until a signal ends it."""
    config = uvicorn.Config(
        create_app(desk, [host]),
        http="h11",
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=LAST_ANSWERS_S,
    )
    on_ready()  # the socket takes requests already; they wait for the first answer
    uvicorn.Server(config).run(sockets=[sock])


def has_browser() -> bool:
    """Return whether somebody sits at this terminal, with a desktop around it."""
    desktop = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    return desktop and sys.stdout.isatty() and "SSH_CONNECTION" not in os.environ


def show(url: str) -> None:
    """Open the page in a browser; without one the URL was printed, and does."""
    webbrowser.open(url)
