"""What all tests share: golden text files, one a test, that a reviewer can read.

`golden(text)` compares with golden/<test file>/<test name>.txt beside the test file; `--update-golden` writes the files
anew and is refused in CI, where nobody would review them.

Property tests draw the same examples in every run of the gate, so that it fails for what a change did and for nothing
else; `--draw-anew` draws new ones, as `make soak` does, and looks for what nobody met yet.
"""

import logging
import os
import re

import pytest
from hypothesis import settings

settings.register_profile("gate", derandomize=True)
settings.register_profile("anew", print_blob=True)

# Kernels run in Triton's interpreter, which is chosen when triton is first imported, whoever does that.
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_addoption(parser):
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files anew, for review"
    )
    parser.addoption(
        "--draw-anew", action="store_true", help="let property tests draw examples of their own"
    )


def pytest_configure(config):
    settings.load_profile("anew" if config.getoption("--draw-anew") else "gate")
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is refused where CI is set")


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """Undo what a command that was called in this process did to logging; its handler holds a stream that is gone."""
    root, own = logging.getLogger(), logging.getLogger("tokenrouter")
    handlers, levels = list(root.handlers), (root.level, own.level)
    yield
    root.handlers = handlers
    root.setLevel(levels[0])
    own.setLevel(levels[1])
    logging.captureWarnings(False)


@pytest.fixture
def golden(request):
    """Return a function that compares a text with this test's golden file."""
    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    path = request.path.parent / "golden" / request.path.stem / f"{name}.txt"

    def compare(text: str) -> None:
        text = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} is missing; run with --update-golden and review it"
        assert text == path.read_text(encoding="utf-8")

    return compare
