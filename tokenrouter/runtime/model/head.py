"""From a head's file to a function of a step's tensors: the weights in float32, or in float64 beside a float64 model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import tokenrouter_kernels as kernels
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from tokenrouter.models.head import HeadFile, HeadFileError, read_head

ROWS = 16  # of every call in deterministic mode


@dataclass(frozen=True, slots=True)
class HeadInputs:
    """What a head may read of B rows of a step."""

    hidden: Tensor | None  # [B, H] after the final norm
    logits: Tensor | None  # [B, V] raw, over the real vocabulary
    token: Tensor | None  # [B] int64: the candidates
    embedding: Tensor | None = None  # [B, H]: the candidates' rows of the model's input embedding


HeadFunction = Callable[[HeadInputs], Tensor]  # -> [B] in [0, 1]


def load_head(path: Path) -> HeadFunction:
    """Return the head of a file; raises HeadFileError."""
    head = read_head(path)
    try:
        stored = load_file(path)
    except (SafetensorError, OSError) as error:
        raise HeadFileError(f"`{path}` is damaged or cut short") from error

    @cache
    def computed(dtype: torch.dtype, device: torch.device) -> HeadFunction:
        weights = {name: tensor.to(device, dtype) for name, tensor in stored.items()}
        return _r2r(weights, dtype) if head.kind == "r2r" else _mlp(head, weights, dtype)

    def apply(inputs: HeadInputs) -> Tensor:
        assert inputs.hidden is not None
        dtype = torch.promote_types(inputs.hidden.dtype, torch.float32)
        return computed(dtype, inputs.hidden.device)(inputs)

    return apply


def _affine(stored: dict[str, Tensor], name: str) -> kernels.Affine:
    return kernels.Affine(stored[f"{name}.weight"], stored[f"{name}.bias"])


def _mlp(head: HeadFile, stored: dict[str, Tensor], dtype: torch.dtype) -> HeadFunction:
    activations = list(head.activations)
    layers = [_affine(stored, f"layers.{at}") for at in range(len(activations) + 1)]

    def apply(inputs: HeadInputs) -> Tensor:
        assert inputs.hidden is not None
        return kernels.mlp_head(inputs.hidden.to(dtype), layers, activations)

    return apply


def _r2r(stored: dict[str, Tensor], dtype: torch.dtype) -> HeadFunction:
    count = len({name.split(".")[1] for name in stored if name.startswith("blocks.")})
    blocks = [
        kernels.R2RBlock(*(_affine(stored, f"blocks.{at}.{part}") for part in _BLOCK))
        for at in range(count)
    ]
    weights = kernels.R2RWeights(
        logits=_affine(stored, "logits"),
        combine=_affine(stored, "combine"),
        input=_affine(stored, "input"),
        blocks=blocks,
        norm=_affine(stored, "output.norm"),
        output=_affine(stored, "output"),
    )

    def apply(inputs: HeadInputs) -> Tensor:
        assert inputs.hidden is not None
        assert inputs.embedding is not None
        assert inputs.logits is not None
        return kernels.r2r_head(
            inputs.hidden.to(dtype), inputs.embedding.to(dtype), inputs.logits.to(dtype), weights
        )

    return apply


_BLOCK = ("norm", "up", "down")


def in_fixed_calls(head: HeadFunction) -> HeadFunction:
    """Return a head that is always called with `ROWS` rows, the last call filled up with zeros.

    Calls of one shape add in one order, so that a row's bits do not depend on how many others there are.
    """

    def apply(inputs: HeadInputs) -> Tensor:
        parts = (inputs.hidden, inputs.logits, inputs.token, inputs.embedding)
        rows = max(len(part) for part in parts if part is not None)
        found = [
            head(HeadInputs(*(_some(part, start) for part in parts)))
            for start in range(0, rows, ROWS)
        ]
        return torch.cat(found)[:rows]

    return apply


def _some(part: Tensor | None, start: int) -> Tensor | None:
    """Return `ROWS` rows from `start` on."""
    if part is None:
        return None
    rows = part[start : start + ROWS]
    short = ROWS - len(rows)
    return functional.pad(rows, (*(0, 0) * (rows.dim() - 1), 0, short)) if short else rows
