"""Servers that a benchmark starts end with it."""

import os
import signal
import subprocess
import sys
import time

import pytest

from tokenrouter.bench.servers import ended_by_signal

BENCH = """
import contextlib, signal, subprocess, time
from tokenrouter.bench.servers import ended_by_signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored below a shell's background
with ended_by_signal(), contextlib.ExitStack() as stack:
    server = subprocess.Popen(["sleep", "600"], start_new_session=True)
    stack.callback(server.wait)
    stack.callback(server.kill)
    print(server.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_ended_ends_its_servers(number):
    with subprocess.Popen(
        [sys.executable, "-c", BENCH], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as bench:
        server = int(bench.stdout.readline())
        bench.send_signal(number)

        assert bench.wait(60) in (128 + number, -number)
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{server}"):
        assert time.monotonic() < deadline, "its server runs on"
        time.sleep(0.02)


def test_the_signal_does_again_what_it_did_before():
    with ended_by_signal():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
