"""From what a policy calls a model to where it lies on this machine. Nothing is ever downloaded here.

    demo:small, demo:large      the demo pair
    dummy:SHAPE, dummy:DIR      random weights of a real shape (`tokenrouter.models.dummy`)
    a/path/to/dir               a Hugging Face directory: config.json, *.safetensors, tokenizer.json
    a/path/to/file.gguf         a GGUF file
    org/name                    a hub model that the local Hugging Face cache holds

Relative paths start at the directory of the policy or plan.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenrouter import demo
from tokenrouter.models import dummy
from tokenrouter.models.errors import ModelError


@dataclass(frozen=True, slots=True)
class Located:
    """A model on this machine."""

    kind: Literal["directory", "gguf", "student", "dummy"]
    path: Path  # the directory, or the GGUF file, or the name of a dummy's shape
    teacher: Path | None = (
        None  # of a student: the GGUF whose embedding, head and tokenizer it shares
    )
    seed: int = 0  # of a dummy's weights


def locate(use: str, base: Path) -> Located:
    """Return where a model lies; raises ModelError where it is not there or cannot be used."""
    if use.startswith("demo:"):
        return _demo(use)
    if use.startswith("dummy:"):
        path, seed = dummy.where(use, base)
        return Located("dummy", path, seed=seed)
    path = base / os.path.expanduser(os.path.expandvars(use))
    if path.is_file():
        return _file(path)
    if path.is_dir():
        return _directory(path)
    if use.count("/") == 1 and not use.startswith((".", "/", "~")):
        return _directory(_cached(use))
    raise ModelError(f"there is no model at `{path}`")


def _demo(use: str) -> Located:
    try:
        if use == "demo:large":
            return Located("gguf", demo.teacher_path())
        if use == "demo:small":
            return Located("student", demo.student_dir(), demo.teacher_path())
    except demo.DemoUnavailable as error:
        raise ModelError(str(error)) from error
    raise ModelError(f"`{use}` is unknown; the demo has `demo:small` and `demo:large`")


def _file(path: Path) -> Located:
    if path.suffix == ".gguf":
        return Located("gguf", path)
    raise ModelError(f"`{path}` is no model: give a .gguf file or a Hugging Face directory")


def _directory(path: Path) -> Located:
    """Refuse what cannot be run, before anything is read."""
    if not (path / "config.json").is_file():
        ggufs = sorted(path.glob("*.gguf"))
        if ggufs:
            raise ModelError(
                f"`{path}` has no config.json; name the file itself: `{ggufs[0].name}`"
            )
        raise ModelError(f"`{path}` has no config.json, so it is no Hugging Face model directory")
    if not any(path.glob("*.safetensors")):
        if any(path.glob("*.bin")) or any(path.glob("*.pt*")):
            raise ModelError(
                f"`{path}` has pickled weights only, which are never loaded; convert them to safetensors"
            )
        raise ModelError(f"`{path}` has no weights (*.safetensors)")
    return Located("directory", path)


def _cached(name: str) -> Path:
    """Return the snapshot of a hub model in the local cache."""
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    repo = Path(hub) / f"models--{name.replace('/', '--')}"
    main = repo / "refs" / "main"
    if main.is_file():
        snapshot = repo / "snapshots" / main.read_text(encoding="utf-8").strip()
        if snapshot.is_dir():
            return snapshot
    found = [path for path in repo.glob("snapshots/*") if path.is_dir()]
    if found:
        return max(found, key=lambda path: path.stat().st_mtime)
    raise ModelError(
        f"`{name}` is neither a path nor in the local Hugging Face cache; fetch it with `hf download {name}`"
    )
