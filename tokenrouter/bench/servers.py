"""Servers that a benchmark starts for itself: `trc serve` as a user would run it, one process group each."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tokenrouter.bench.http import BenchError

PATIENCE_S = 20.0  # for an orderly end


class Server:
    """One `trc serve` and its last words."""

    def __init__(self, plan: Path, options: list[str], what: str) -> None:
        self.what = what
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
        command = [sys.executable, "-P", "-m", "tokenrouter.cli", "serve", str(plan)]
        self._process = subprocess.Popen(
            [*command, "--port", "0", "--drain", "0", "--log-level", "warning", *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
            start_new_session=True,  # ^C is for the benchmark, which ends its servers itself
        )
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """The process id of the front end."""
        return self._process.pid

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def url(self, timeout_s: float) -> str:
        """Return the URL when the models are ready; raises BenchError where they will not be."""
        end = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise BenchError(f"{self.what} was not ready after {timeout_s:.0f} s") from None
            if not line:
                raise BenchError(f"{self.what} did not start: {self.last_words()}")
            if found := re.search(r"https?://\S+/v1", line):
                return found[0]

    def last_words(self) -> str:
        """Return the last line of its log."""
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else "it said nothing"

    def close(self) -> None:
        """End the server, by force where it does not end by itself."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
        self._reader.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._log.close()


@contextlib.contextmanager
def ended_by_signal() -> Iterator[None]:
    """Let SIGTERM unwind this process, as ^C does: what it has started would outlive it."""
    own = threading.current_thread() is threading.main_thread()
    if not own or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _unwind(number: int, frame: object) -> NoReturn:
    del frame
    raise SystemExit(128 + number)


@contextlib.contextmanager
def started(
    plans: list[tuple[str, Path]],
    options: list[str],  # of all
    own: list[list[str]] | None = None,  # of each
    timeout_s: float = 600.0,
) -> Iterator[list[tuple[Server, str]]]:
    """Start servers side by side, give each with its URL when all are ready, and end them in any case, SIGTERM to this process too."""
    with ended_by_signal(), contextlib.ExitStack() as stack:
        servers = []
        for (what, plan), more in zip(plans, own or [[]] * len(plans), strict=True):
            server = Server(plan, [*options, *more], what)
            stack.callback(server.close)
            servers.append(server)
        yield [(server, server.url(timeout_s)) for server in servers]
