"""Takes the masks out of the kernels, one at a time, and tells which of the broken kernels the tests catch.

    python tests/kernels/triton/mutants.py [MODULE ...]

A mutant is a load or store without its mask, or without one of the conditions that its mask joins, or another condition that
keeps a lane out. Each is run in a process of its own against the tests of its module; one that passes is printed as missed.
"""

from __future__ import annotations

import ast
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

os.environ |= {"TRITON_INTERPRET": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}

# Once, before the forks.
import hypothesis  # noqa: F401
import pytest
import scipy.special  # noqa: F401
import tokenrouter_kernels
import torch
import triton  # noqa: F401

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "kernels/tokenrouter_kernels"
TESTS = {
    "rms_norm": "elementwise",
    "silu_mul": "elementwise",
    "write_qkv": "elementwise",
    "attention": "attention",
    "decode_attention": "attention",
    "prefill_attention": "attention",
    "online": "signals",
    "signals": "signals",
    "philox": "sampling",
    "sampling": "sampling",
    "affine": "heads",
    "heads": "heads",
}
SECONDS = 240
# Tests of a file that are about one of its modules.
ONLY = {"rms_norm": "norm or sum", "silu_mul": "silu or gate", "write_qkv": "queries or slots"}


class Mutant(NamedTuple):
    """A module's text with one condition gone."""

    module: str
    line: int
    what: str
    text: str


def mutants(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    text = (PACKAGE / "triton" / f"{module}.py").read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg == "mask":
                    yield from _without(module, text, keyword.value, f"{_name(node)} mask")
            if _name(node) == "where" and len(node.args) == 3:
                yield from _without(module, text, node.args[0], "where")
        elif isinstance(node, ast.Assign) and _is_condition(node.value):
            yield from _without(module, text, node.value, "condition")


def _without(module: str, text: str, mask: ast.expr, what: str) -> Iterator[Mutant]:
    """Yield the text with each part of a mask that keeps lanes out made true."""
    for part in _parts(mask):
        source = ast.get_source_segment(text, part)
        assert source is not None
        if not _keeps_out(source):
            continue
        # Of the same shape, and always true: what it compares is kept, the comparison is not.
        true = f"(({source}) | ~({source}))"
        yield Mutant(module, part.lineno, f"{what}: {source}", _replaced(text, part, true))


def _parts(mask: ast.expr) -> list[ast.expr]:
    if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitAnd):
        return [*_parts(mask.left), *_parts(mask.right)]
    return [mask]


def _is_condition(node: ast.expr | None) -> bool:
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.BitAnd)
    return isinstance(node, ast.Compare)


def _keeps_out(source: str) -> bool:
    """Return whether a condition is about bounds: the comparison of an index with how many there are."""
    return any(f"< {name}" in source for name in SIZES) or any(
        name in source for name in ("inside", "real", "seen", "written", "cached", "slot >= 0")
    )


SIZES = ("H", "F", "D", "E", "V", "B", "K", "N", "n", "TURNED", "last", "parts", "tokens", "= posi")


def _replaced(text: str, part: ast.expr, by: str) -> str:
    lines = text.splitlines(keepends=True)
    assert part.end_lineno is not None and part.end_col_offset is not None
    raw = "".join(lines).encode()
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    begin = starts[part.lineno - 1] + part.col_offset
    end = starts[part.end_lineno - 1] + part.end_col_offset
    return (raw[:begin] + by.encode() + raw[end:]).decode()


def _name(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def caught(mutant: Mutant, home: Path) -> bool:
    """Return whether the tests of a module fail with a mutant in its place."""
    shutil.rmtree(home / "triton", ignore_errors=True)
    shutil.copytree(PACKAGE / "triton", home / "triton")
    (home / "triton" / f"{mutant.module}.py").write_text(mutant.text, encoding="utf-8")
    child = os.fork()
    if child == 0:
        _run(mutant.module, home)
    _, status = os.waitpid(child, 0)
    return status != 0


def _run(module: str, home: Path) -> None:
    """Test one mutant and end this process with the outcome."""
    signal.alarm(SECONDS)
    output = os.open(home / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    tokenrouter_kernels.__path__.insert(0, str(home))
    config = home / "pytest.ini"
    config.write_text("[pytest]\n")
    options = ["-x", "-q", "-W", "error", "-p", "no:cacheprovider", "--import-mode=importlib"]
    tests = ROOT / f"tests/kernels/triton/test_{TESTS[module]}.py"
    options += ["-k", ONLY.get(module, "")]
    os._exit(int(pytest.main([*options, "-c", str(config), f"--rootdir={ROOT}", str(tests)])))


def main(modules: list[str]) -> int:
    """Test all mutants of some modules; returns the exit status."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # loads much, so before the forks
    missed = 0
    with tempfile.TemporaryDirectory() as home:
        for module in modules or TESTS:
            text = (PACKAGE / "triton" / f"{module}.py").read_text(encoding="utf-8")
            whole = Mutant(module, 0, "nothing", text)
            assert not caught(whole, Path(home)), f"the tests of {module} fail as it is"
            for mutant in mutants(module):
                is_caught = caught(mutant, Path(home))
                missed += not is_caught
                verdict = "caught" if is_caught else "MISSED"
                print(f"{verdict} {module}:{mutant.line} {mutant.what}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
