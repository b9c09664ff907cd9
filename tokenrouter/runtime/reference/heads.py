"""Router heads for one step, in float64 numpy: read from the file as docs/heads.md has it, one vector at a time.

A head here is a function of what a model says of a text: its last hidden state, its raw logits, and the candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import safe_open

from tokenrouter.plan.structs import Head
from tokenrouter.runtime.reference.errors import BeyondReference


class Seen(NamedTuple):
    """What a head can read of one step."""

    hidden: np.ndarray  # [H] after the final norm
    logits: np.ndarray  # [V] raw, over the real vocabulary
    candidate: int
    embedding: np.ndarray  # [H]: the candidate's row of the input embedding


HeadOf = Callable[[Seen], float]


def read(heads: Sequence[Head], base: Path) -> dict[int, HeadOf]:
    """Return the heads of a plan by index, those in Python left out: a test brings its own."""
    return {at: _read(base / head.file) for at, head in enumerate(heads) if head.kind != "python"}


def _read(path: Path) -> HeadOf:
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
        w = {name: file.get_tensor(name).to(torch.float64).numpy() for name in file.keys()}  # noqa: SIM118
    if metadata["kind"] == "r2r":
        return lambda seen: _r2r(w, seen)
    names = [name for name in metadata.get("activations", "").split(",") if name]
    return lambda seen: _mlp(w, [*names, "identity"], seen.hidden)


def value(heads: Mapping[int, HeadOf], declared: Sequence[Head], at: int, seen: Seen) -> float:
    """Return what one head says of a step."""
    if at not in heads:
        raise BeyondReference(
            f"the reference does not run the Python of head `{declared[at].name}`"
        )
    return heads[at](seen)


def _affine(w: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    return np.asarray(w[f"{name}.weight"] @ x + w[f"{name}.bias"])


def _mlp(w: dict[str, np.ndarray], activations: list[str], x: np.ndarray) -> float:
    for at, name in enumerate(activations):
        x = _activated(name, _affine(w, f"layers.{at}", x))
    return _sigmoid(x)


def _r2r(w: dict[str, np.ndarray], seen: Seen) -> float:
    k = w["logits.weight"].shape[1]
    largest = np.array(sorted(seen.logits.tolist(), reverse=True)[:k])
    x = np.concatenate((seen.hidden, seen.embedding, _affine(w, "logits", largest)))
    x = _affine(w, "input", _affine(w, "combine", x))
    at = 0
    while f"blocks.{at}.up.weight" in w:
        inner = _affine(w, f"blocks.{at}.up", _normed(w, f"blocks.{at}.norm", x))
        x = x + _affine(w, f"blocks.{at}.down", _activated("gelu", inner))
        at += 1
    return _sigmoid(_affine(w, "output", _normed(w, "output.norm", x)))


def _normed(w: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    scaled = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
    return np.asarray(scaled * w[f"{name}.weight"] + w[f"{name}.bias"])


def _activated(name: str, x: np.ndarray) -> np.ndarray:
    match name:
        case "relu":
            return np.asarray(np.maximum(x, 0))
        case "tanh":
            return np.asarray(np.tanh(x))
        case "silu":
            return np.asarray(x / (1 + np.exp(-x)))
        case "gelu":
            from scipy.special import erf  # noqa: PLC0415 - slow to import, seldom needed

            return np.asarray(x * (1 + erf(x / np.sqrt(2))) / 2)
        case _:
            return x


def _sigmoid(x: np.ndarray) -> float:
    return float(1 / (1 + np.exp(-x[0])))
