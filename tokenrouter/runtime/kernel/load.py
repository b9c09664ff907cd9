"""Keeps the kernels of route programs on disk, by plan hash, and imports them.

Triton compiles from source files, so a kernel is written into the user's cache first. What lies there is never trusted: the
text is made anew, and a file that differs is written over.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tokenrouter.demo.fetch import cache_dir
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.kernel.source import source

_loaded: dict[str, ModuleType] = {}  # by source


def kernel_file(plan: Plan, model: int) -> Path:
    """Return where a model's kernel is kept."""
    name = f"{plan.program_hash[:16]}_{plan.models[model].name[:64]}_{model}.py"
    return cache_dir() / "kernels" / name


def load_kernel(plan: Plan, model: int) -> Any:
    """Return the kernel of a model's program, ready to be launched on a grid."""
    text = source(plan, model)
    if text not in _loaded:
        _loaded[text] = _import(_kept(kernel_file(plan, model), text))
    return _loaded[text].route


def _kept(path: Path, text: str) -> Path:
    """Return a file that holds the text: the cache's, or a temporary one where the cache cannot be written."""
    try:
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, text)
    except OSError:
        path = Path(tempfile.mkdtemp(prefix="tokenrouter-")) / path.name
        _write(path, text)
    return path


def _write(path: Path, text: str) -> None:
    """Write a file at once: another process may be reading it."""
    handle, made = tempfile.mkstemp(dir=path.parent, suffix=".py")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(made, path)


class _FromSource(SourceFileLoader):
    """Reads a module's source whatever bytecode lies beside it, and leaves none there."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the code of the source."""
        return self.source_to_code(self.get_data(self.path), self.path)


def _import(path: Path) -> ModuleType:
    name = f"route_{path.stem}"
    loader = _FromSource(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
