"""`trc top`: what a running server does, live."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tokenrouter.commands.serve import KEY_VARIABLE, seconds

if TYPE_CHECKING:
    import httpx

    from tokenrouter.server.scrape import Look

NAME = "top"
HELP = "show what a running server does: requests, batches, tokens/s, hand-offs"

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # a screen of our own, no cursor
HOME, END_OF_LINE, END_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "url", nargs="?", default="http://127.0.0.1:8000", help="of the server (%(default)s)"
    )
    parser.add_argument(
        "--interval",
        type=interval,
        default=2.0,
        metavar="S",
        help="seconds between two looks, over which rates are taken (%(default)g)",
    )
    parser.add_argument("--once", action="store_true", help="show one interval as text, and end")
    parser.add_argument(
        "--api-key", metavar="KEY", help=f"of the server; better told by ${KEY_VARIABLE}"
    )


def interval(text: str) -> float:
    """Return a duration that is long enough to measure over."""
    value = seconds(text)
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"`{text}` is no interval: 0.1 to 3600 seconds")
    return value


def run(args: argparse.Namespace) -> int:
    """Show views until the user has seen enough."""
    import httpx

    from tokenrouter.server.scrape import look, root_of

    root = root_of(args.url)
    key = args.api_key or os.environ.get(KEY_VARIABLE)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    live = sys.stdout.isatty() and not args.once and os.environ.get("TERM") != "dumb"
    with httpx.Client(headers=headers) as client:
        first = look(client, root)  # what cannot be seen at all is said before a screen is taken
        with contextlib.suppress(KeyboardInterrupt):
            if live:
                _live(client, root, first, args.interval)
            else:
                _plain(client, root, first, args.interval, once=args.once)
    return 0


def _plain(client: httpx.Client, root: str, before: Look, wait_s: float, *, once: bool) -> None:
    """Print one view after another, with an empty line between two."""
    from tokenrouter.server.scrape import Span, look
    from tokenrouter.server.top import frame

    while True:
        time.sleep(wait_s)
        now = look(client, root)
        print(*frame(root, Span(before, now), colour=False), sep="\n", flush=True)
        if once:
            return
        print()
        before = now


def _live(client: httpx.Client, root: str, before: Look, wait_s: float) -> None:
    """Draw each view over the one before, until `q` or ^C; a server that goes away may come back."""
    from tokenrouter.server.ink import wants_colour
    from tokenrouter.server.scrape import NoMetrics, Span, look
    from tokenrouter.server.top import frame

    colour = wants_colour(sys.stdout)
    with _screen():
        _draw([f"{root}  first figures after {wait_s:g} s", "", _hint(wait_s)])
        while not _quits(wait_s):
            try:
                now = look(client, root)
            except NoMetrics as error:
                _draw([str(error), "", _hint(wait_s)])
                continue
            _draw([*frame(root, Span(before, now), colour=colour), "", _hint(wait_s)])
            before = now


def _hint(wait_s: float) -> str:
    return f"every {wait_s:g} s; q ends"


def _draw(lines: list[str]) -> None:
    size = shutil.get_terminal_size()
    # Colours take no room: a coloured line is one of the view's, which knows its width.
    cut = [line if line.startswith("\x1b") else line[: size.columns] for line in lines]
    text = f"{END_OF_LINE}\r\n".join(cut[: size.lines])
    sys.stdout.write(f"{HOME}{text}{END_OF_LINE}{END_OF_SCREEN}")
    sys.stdout.flush()


@contextlib.contextmanager
def _screen() -> Iterator[None]:
    """Take the terminal over, and give it back as it was, whatever ends us."""
    # SIGINT too: a shell that started us behind `&` in a script has it ignored, and ^C must end a view all the same.
    before = {end: signal.signal(end, _interrupt) for end in (signal.SIGINT, signal.SIGTERM)}
    with _keys():
        sys.stdout.write(ENTER)
        try:
            yield
        finally:
            sys.stdout.write(LEAVE)
            sys.stdout.flush()
            for end, handler in before.items():
                signal.signal(end, handler)


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Have each key at once and unseen, where there are keys."""
    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _quits(wait_s: float) -> bool:
    """Wait; return whether the user has asked to end meanwhile."""
    end = time.monotonic() + wait_s
    while (left := end - time.monotonic()) > 0:
        if not sys.stdin.isatty():
            time.sleep(left)
            return False
        if select.select([sys.stdin], [], [], left)[0]:
            keys = os.read(sys.stdin.fileno(), 64)
            if not keys or b"q" in keys.lower():  # nothing at all: the terminal is gone
                return True
    return False
