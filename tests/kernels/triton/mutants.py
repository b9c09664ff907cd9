"""Takes the masks out of the kernels, one at a time, and tells which of the broken kernels the tests catch.

    python tests/kernels/triton/mutants.py [MODULE ...]

A mutant is a load or store without its mask, or without one of the conditions that its mask joins; a selection (`tl.where`) that
always, or never, takes what it selects; another condition that joins in one of these; or a program that goes on where it has nothing
to do. `route` is the generated kernel, and is broken where it is written. Each mutant is run in a process of its own against the
tests of its module. Prints rows of a table: module, function, what is taken out, the first test that fails.
"""

from __future__ import annotations

import ast
import os
import re
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

import tokenrouter.runtime

ROOT = Path(__file__).parents[3]
KERNELS = ROOT / "kernels/tokenrouter_kernels/triton"
ROUTE = ROOT / "tokenrouter/runtime/kernel"
TESTS = {
    "logistic": "elementwise",
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
    "program": "route",
    "route": "route",
}
SECONDS = 240
# Tests of a file that are about one of its modules.
ONLY = {
    "rms_norm": "norm or sum",
    "silu_mul": "silu or gate",
    "write_qkv": "queries or slots or does_not_turn",
}
# Short tests, which most mutants fail, before all of them.
FIRST = dict.fromkeys(("attention", "decode_attention", "prefill_attention"), "once or nothing")
# In the text of `source.py`: what the generated kernel masks.
GENERATED = {
    "load of logits_ptr: v < VOCABULARY": (
        "mask=v < VOCABULARY",
        "mask=(v < VOCABULARY) | ~(v < VOCABULARY)",
    ),
    "where, never: hidden ids": ("tl.where({hidden}, ", "tl.where(({hidden}) & (v < 0), "),
    "where: the second hidden id": (
        "column in names.deferred)",
        "column in names.deferred[:1])",
    ),
    "where: the first hidden id": (
        "column in names.deferred)",
        "column in names.deferred[-1:])",
    ),
}


class Mutant(NamedTuple):
    """A module's text with one condition gone."""

    module: str
    function: str
    what: str
    text: str


def text_of(module: str) -> str:
    """Return a module's text: of the kernel, or of what writes it."""
    path = ROUTE / "source.py" if module == "route" else KERNELS / f"{module}.py"
    return path.read_text(encoding="utf-8")


def mutants(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module."""
    text = text_of(module)
    if module == "route":
        for what, (mask, broken) in GENERATED.items():
            assert text.count(mask) == 1, mask
            yield Mutant(module, "route", what, text.replace(mask, broken))
        return
    for function in ast.parse(text).body:
        if isinstance(function, ast.FunctionDef) and function.decorator_list:
            found = dict(_broken(text, function))
            for broken, what in sorted(found.items(), key=lambda item: item[1].startswith("where")):
                yield Mutant(module, function.name, what, broken)


def _broken(text: str, function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield the text of each mutant of a function, and what it lacks."""
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr=name), args=args, keywords=keywords):
                for keyword in keywords:
                    if keyword.arg == "mask":
                        names = [n.id for n in ast.walk(args[0]) if isinstance(n, ast.Name)]
                        at = next((name for name in names if name.endswith("_ptr")), names[0])
                        yield from _without(text, keyword.value, f"{name} of {at}")
                if name == "where" and len(args) == 3:
                    yield _with(text, args[0], "where, always", ALWAYS)
                    yield _with(text, args[0], "where, never", NEVER)
                    if len(_parts(args[0])) > 1:
                        yield from _without(text, args[0], "where")
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_condition(value):
                yield from _without(text, value, f"{name}")
            case ast.If(test=test) if _is_bound(test):
                yield from _without(text, test, "if")


# Of the same shape: what a condition compares is kept, the comparison is not.
ALWAYS, NEVER = "(({0}) | ~({0}))", "(({0}) & ~({0}))"


def _without(text: str, mask: ast.expr, what: str) -> Iterator[tuple[str, str]]:
    """Yield the text without each part of a condition: true where parts are joined by and, false where by or."""
    way = NEVER if isinstance(mask, ast.BinOp) and isinstance(mask.op, ast.BitOr) else ALWAYS
    for part in _parts(mask):
        yield _with(text, part, what, way)


def _with(text: str, part: ast.expr, what: str, way: str) -> tuple[str, str]:
    source = ast.get_source_segment(text, part)
    assert source is not None
    return _replaced(text, part, way.format(source)), f"{what}: {' '.join(source.split())}"


def _parts(mask: ast.expr) -> list[ast.expr]:
    match mask:
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            same = type(mask.op)
            return [
                part
                for side in (mask.left, mask.right)
                for part in (
                    _parts(side)
                    if isinstance(side, ast.BinOp) and isinstance(side.op, same)
                    else [side]
                )
            ]
    return [mask]


def _is_condition(node: ast.expr) -> bool:
    match node:
        case ast.Compare():
            return True
        case ast.BinOp(op=ast.BitAnd() | ast.BitOr()):
            return any(_is_condition(part) or _is_not(part) for part in _parts(node))
    return False


def _is_not(node: ast.expr) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert)


def _is_bound(node: ast.expr) -> bool:
    """Return whether a program goes on under this condition: its tokens or its stretch of the context end."""
    return any(
        isinstance(part, ast.Compare)
        and isinstance(part.ops[0], ast.Lt)
        and isinstance(part.comparators[0], ast.Name)
        and part.comparators[0].id in ("n", "last")
        for part in _parts(node)
    )


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


def first_failure(mutant: Mutant, home: Path) -> str | None:
    """Return the test of a module that fails first with a mutant in its place; None where all pass."""
    package = ROUTE if mutant.module == "route" else KERNELS
    shutil.rmtree(home / package.name, ignore_errors=True)
    shutil.copytree(package, home / package.name)
    file = "source" if mutant.module == "route" else mutant.module
    (home / package.name / f"{file}.py").write_text(mutant.text, encoding="utf-8")
    status = 0
    every = ONLY.get(mutant.module, "")
    for tests in dict.fromkeys((FIRST.get(mutant.module, every), every)):
        child = os.fork()
        if child == 0:
            _run(mutant.module, tests, home)
        _, status = os.waitpid(child, 0)
        if status != 0:
            break
    else:
        return None
    output = (home / "output").read_text(encoding="utf-8", errors="replace")
    named = re.search(r"^(?:FAILED|ERROR) \S*?::(.+?)(?: - .*)?$", output, flags=re.MULTILINE)
    return named[1] if named else f"none to its end (status {status})"


def _run(module: str, select: str, home: Path) -> None:
    """Run a module's tests, all where none are selected, and end this process with the outcome."""
    signal.alarm(SECONDS)
    output = os.open(home / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    package = tokenrouter.runtime if module == "route" else tokenrouter_kernels
    package.__path__.insert(0, str(home))
    config = home / "pytest.ini"
    config.write_text("[pytest]\nmarkers =\n  slow\n  timeout\n")
    options = ["-x", "-q", "-W", "error", "-p", "no:cacheprovider", "--import-mode=importlib"]
    options += ["--tb=no"]
    tests = ROOT / f"tests/kernels/triton/test_{TESTS[module]}.py"
    options += ["-m", "not slow", "-k", select]
    os._exit(int(pytest.main([*options, "-c", str(config), f"--rootdir={ROOT}", str(tests)])))


def main(modules: list[str]) -> int:
    """Test all mutants of some modules; returns the exit status."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)  # loads much, so before the forks
    missed = 0
    with tempfile.TemporaryDirectory() as home:
        for module in modules or TESTS:
            whole = Mutant(module, "", "nothing", text_of(module))
            failed = first_failure(whole, Path(home))
            assert failed is None, f"{failed} fails as {module} is"
            for mutant in mutants(module):
                failed = first_failure(mutant, Path(home))
                missed += failed is None
                told = f"`{failed}`" if failed else "**none**"
                what = mutant.what.replace("|", "\\|")
                print(f"| `{module}` | `{mutant.function}` | `{what}` | {told} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
