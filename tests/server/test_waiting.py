"""How long waiting threads look on: said to every process that runs a model, unless the user says otherwise."""

import os
import subprocess
import sys

import pytest

from tests.server.serving import serving
from tokenrouter.runtime.waiting import LOOKS, OWN, environment


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    for name in OWN:
        monkeypatch.delenv(name, raising=False)


def test_a_process_is_told_beside_all_that_this_one_knows():
    assert environment() == {**os.environ, "GOMP_SPINCOUNT": LOOKS}


@pytest.mark.parametrize(
    ("name", "value"), [("GOMP_SPINCOUNT", "7"), ("OMP_WAIT_POLICY", "active")]
)
def test_what_the_user_says_holds(monkeypatch, name, value):
    monkeypatch.setenv(name, value)

    assert environment() == dict(os.environ)
    assert os.environ[name] == value


def environment_of(process):
    """What a process was started with."""
    with open(f"/proc/{process}/environ", "rb") as file:
        return dict(pair.split(b"=", 1) for pair in file.read().split(b"\0") if b"=" in pair)


def children(process):
    """The processes that one has started."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process)], capture_output=True, text=True, check=True
    )
    return found.stdout.split()


def test_every_subserver_is_started_so(plan_path):
    with serving(plan_path) as server:
        told = [
            environment_of(child).get(b"GOMP_SPINCOUNT") for child in children(server.process.pid)
        ]

    assert told.count(LOOKS.encode()) == 2


def test_torchs_threads_are_those_that_read_it():
    """The name is libgomp's; where torch came with another library, nothing would be gained by it."""
    code = "import torch; print(torch.__config__.parallel_info())"
    env = environment() | {"OMP_DISPLAY_ENV": "verbose"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )

    assert f"GOMP_SPINCOUNT = '{LOOKS}'" in done.stderr
