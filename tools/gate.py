"""The tests of the gate in two processes side by side: those that start servers, editors and browsers wait half of their time.

    python tools/gate.py        the second half's words come once the first has ended

Ends with 1 where a test fails in either half.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = ROOT / "tests"
WAITING = ("server", "runtime", "load", "playground", "editors", "lsp")  # folders under tests/


def main() -> int:
    """Run both halves and return the status."""
    waiting = [TESTS / name for name in WAITING]
    others = [
        path
        for path in sorted(TESTS.iterdir())
        if path not in waiting and (path.name.startswith("test_") or any(path.glob("**/test_*.py")))
    ]
    with tempfile.TemporaryFile() as later, started(others, later) as beside:
        first = started(waiting, None).wait()
        second = beside.wait()
        later.seek(0)
        sys.stdout.buffer.write(later.read())
        sys.stdout.flush()
    return int(first != 0 or second != 0)


def started(paths: list[Path], output: object) -> subprocess.Popen[bytes]:
    """Start pytest on some paths."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "not gpu and not slow"]
    return subprocess.Popen(
        [*command, *(str(path.relative_to(ROOT)) for path in paths)],
        cwd=ROOT,
        stdout=output,  # type: ignore[arg-type]
        stderr=subprocess.STDOUT,
    )


if __name__ == "__main__":
    sys.exit(main())
