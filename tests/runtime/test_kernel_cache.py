"""Kernels of route programs on disk: what lies there is written over and never run."""

import py_compile
import sys

import msgspec
import pytest

from tests.runtime import toy
from tokenrouter.runtime.kernel import load
from tokenrouter.runtime.kernel.source import source

MODEL = 0


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(load, "_loaded", {})
    return toy.ping_pong()


def again(plan):
    load._loaded.clear()
    return load.load_kernel(plan, MODEL)


def test_a_kernel_lies_in_the_cache_as_it_is_shown(plan):
    load.load_kernel(plan, MODEL)

    assert load.kernel_file(plan, MODEL).read_text() == source(plan, MODEL)


def test_a_file_that_was_changed_is_written_over(plan):
    load.load_kernel(plan, MODEL)
    file = load.kernel_file(plan, MODEL)
    file.write_text("raise SystemExit('planted')\n")

    again(plan)

    assert file.read_text() == source(plan, MODEL)


def test_bytecode_that_lies_beside_a_kernel_is_not_run(plan, tmp_path):
    load.load_kernel(plan, MODEL)
    file = load.kernel_file(plan, MODEL)
    planted = tmp_path / "planted.py"
    planted.write_text("raise SystemExit('planted')\n")
    tag = sys.implementation.cache_tag
    beside = file.parent / "__pycache__" / f"{file.stem}.{tag}.pyc"
    beside.parent.mkdir(exist_ok=True)
    # Bytecode that says of itself that no source need be looked at.
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(planted), cfile=str(beside), invalidation_mode=mode)

    assert again(plan) is not None


def test_the_longest_name_of_a_model_is_a_file(plan):
    models = [msgspec.structs.replace(m, name=f"{m.name}_{'x' * 300}") for m in plan.models]
    long = msgspec.structs.replace(plan, models=models)

    load.load_kernel(long, MODEL)

    assert load.kernel_file(long, MODEL).exists()
    assert load.kernel_file(long, 0) != load.kernel_file(long, 1)
