"""Node and what the extension for VS Code is built with, which `make editors` installs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VSCODE = ROOT / "editors/vscode"
TRC = [sys.executable, "-m", "tokenrouter.cli"]


@pytest.fixture(scope="session")
def node():
    """Run Node, or npm, in the extension's folder; return what it writes."""
    missing = not shutil.which("node") or not (VSCODE / "node_modules/.package-lock.json").is_file()
    assert not missing, "run `make editors` first: Node, npm and node_modules are not all there"

    def run(*command, ok=True):
        env = {**os.environ, "TRC": json.dumps(TRC), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
        done = subprocess.run(
            command, cwd=VSCODE, env=env, capture_output=True, text=True, timeout=240, check=False
        )
        if ok:
            assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
        return done

    return run
