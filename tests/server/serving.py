"""A real `trc serve` as a real process, whose group tells whether it left anything behind."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import httpx

from tokenrouter.server.scrape import parse

HANG_S = 120
EMPTY = {
    (name, model): 0
    for name in ("kv_cache_usage_ratio", "model_running", "model_pending")
    for model in ("small", "large")
}
TRC = [sys.executable, "-m", "tokenrouter.cli"]


@dataclass
class Server:
    """A running server; `lines` is what it said on stderr."""

    process: subprocess.Popen
    url: str
    lines: list

    def get(self, path):
        return httpx.get(self.url.removesuffix("/v1") + path, timeout=HANG_S)

    def post(self, path, **kwargs):
        return httpx.post(self.url.removesuffix("/v1") + path, timeout=HANG_S, **kwargs)

    @contextlib.contextmanager
    def stream(self, body):
        """Give the lines of a streamed text completion."""
        with httpx.stream("POST", self.url + "/completions", json=body, timeout=HANG_S) as answer:
            yield answer.iter_lines()

    def idle(self):
        """Wait until the models hold no request."""
        wait_until(lambda: self.get("/ready").json()["running"] == 0)

    def empties(self):
        """Wait until nothing is left of any request: every page is free or only cached, and nothing is pending.

        A page that is lost, or a request that is forgotten, hangs here and fails.
        """
        self.idle()
        wait_until(lambda: self.held() == EMPTY)

    def held(self):
        """Return what each model holds of requests, as `/metrics` tells; without those that do not tell now."""
        told = parse(self.get("/metrics").text)
        return {
            (name, sample.labels["model"]): sample.value
            for name in ("kv_cache_usage_ratio", "model_running", "model_pending")
            for sample in told.get(name, ())
        }

    def signal(self, number):
        self.process.send_signal(number)

    def end(self):
        """Return the exit status of a server that is about to end, having checked that nothing is left of it."""
        status = self.process.wait(HANG_S)
        wait_until(lambda: not group_lives(self.process.pid))
        return status


def wait_until(holds):
    """Return when the condition holds; a server that hangs fails the test."""
    deadline = time.monotonic() + HANG_S
    while not holds():
        assert time.monotonic() < deadline, "hangs"
        time.sleep(0.02)


def group_lives(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@contextlib.contextmanager
def serving(plan, *args, wait=True):
    """Start a server in a process group of its own; what the test leaves running is killed, whatever happens."""
    process = subprocess.Popen(
        [*TRC, "serve", str(plan), "--port", "0", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines = []
    reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
    reader.start()
    try:
        with process:
            line = process.stdout.readline() if wait else ""
            found = re.search(r"https?://\S+/v1", line)
            assert found or not wait, "".join(lines)
            try:
                yield Server(process, found[0] if found else "", lines)
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                reader.join(HANG_S)  # before the pipe that it reads is closed
    finally:
        reader.join(HANG_S)
