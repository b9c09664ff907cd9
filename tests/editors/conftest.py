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
OWN = ROOT / ".cache/node/bin"  # where tools/node.sh puts Node if the PATH has none
TRC = [sys.executable, "-m", "tokenrouter.cli"]


@pytest.fixture(scope="session")
def node():
    """Run Node, or npm, in the extension's folder; return what it writes."""
    path = f"{OWN}{os.pathsep}{os.environ['PATH']}"
    missing = (
        not shutil.which("node", path=path)
        or not (VSCODE / "node_modules/.package-lock.json").is_file()
    )
    assert not missing, "run `make editors` first: Node, npm and node_modules are not all there"

    def run(*command, ok=True):
        env = {
            **os.environ,
            "PATH": path,
            "TRC": json.dumps(TRC),
            "PYTHONPATH": str(ROOT),
            "NO_COLOR": "1",
        }
        program = shutil.which(command[0], path=path)
        done = subprocess.run(
            [program, *command[1:]],
            cwd=VSCODE,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        if ok:
            assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
        return done

    return run
