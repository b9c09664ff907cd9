"""`make demo`'s script as a real process: the answer, the totals, and a clear word for each failure."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.serving import HANG_S

DEMO = Path(__file__).parents[2] / "tools/demo.py"

pytestmark = pytest.mark.demo


def demo(*args):
    command = [sys.executable, str(DEMO), *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * HANG_S, check=False)


def test_the_demo_answers_and_tells_who_wrote_what():
    done = demo("--max-tokens", "24")

    assert done.returncode == 0, done.stderr
    legend, answer, totals = done.stdout.strip().split("\n\n", 2)
    found = re.search(r"24 tokens: small (\d+) \(.*\), large (\d+) \(.*\); \d+ hand-off", totals)
    assert legend == "small  [large]"
    assert found and int(found[1]) + int(found[2]) == 24
    assert "[" in answer
    assert done.stderr.endswith("the server has ended and left no process behind\n")
    assert all(line.startswith("demo: ") for line in done.stderr.splitlines())


def test_a_policy_that_does_not_compile_ends_the_demo(tmp_path):
    done = demo("--policy", tmp_path / "none.route")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("demo: the policy does not compile")
    assert "Traceback" not in done.stderr


def test_a_server_that_does_not_start_ends_the_demo_and_its_log_is_shown(tmp_path, bench):
    for name in ("small", "large"):
        shutil.copytree(bench / name, tmp_path / name)
    weights = tmp_path / "large/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])  # the compiler reads the head alone
    policy = tmp_path / "absolute.route"
    text = (bench / "ping_pong.route").read_text()
    policy.write_text(text.replace('use "', f'use "{tmp_path}/'))

    done = demo("--policy", policy)

    assert done.returncode == 1
    assert "demo: the server did not start (status 1)" in done.stderr
    assert "large" in done.stderr.split("--- server log")[1]
    assert "Traceback" not in done.stderr
