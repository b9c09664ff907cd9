"""The file of a router head, read without torch: what kind it is, what it takes, and whether its tensors fit together.

A head file is a safetensors file whose metadata (all values are text) says

    tokenrouter_head   1, the version of this format
    kind               linear, mlp or r2r
    activations        of an mlp: what follows each layer but the last, as in `relu,identity`
    threshold          optional: the threshold that was published with it
    source             optional: where it comes from, for people

and whose tensors are named as `shapes` lists them; docs/heads.md has the formulas. Sizes are those of the tensors.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite, prod
from pathlib import Path
from typing import Literal, cast, get_args

from tokenrouter.models.errors import ModelError

FORMAT = "1"
Kind = Literal["linear", "mlp", "r2r"]
ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "identity")
WIDTHS = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # bytes a value
_LARGEST = 1 << 20  # bytes of a header

Shape = tuple[int, ...]


class HeadFileError(ModelError):
    """A file is no router head; the message is one line that says why."""


@dataclass(frozen=True, slots=True)
class HeadFile:
    """A router head as its header describes it."""

    kind: Kind
    hidden: int  # width of the hidden state that it reads
    top: int  # most likely logits that it reads; 0 where it reads none
    activations: tuple[str, ...]
    threshold: float | None
    source: str
    shapes: dict[str, Shape]  # by tensor

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return sum(map(prod, self.shapes.values()))


def read_head(path: Path) -> HeadFile:
    """Return what a head file says of itself; raises HeadFileError, also where its tensors do not fit together."""
    metadata, shapes = _header(path)
    version, kind = metadata.get("tokenrouter_head"), metadata.get("kind")
    if version is None:
        raise HeadFileError(
            f"`{path}` has no `tokenrouter_head` in its metadata, so it is no router head; "
            "`trc head convert` makes one of a published checkpoint"
        )
    if version != FORMAT:
        raise HeadFileError(f"`{path}` is a head of format {version}; this reads {FORMAT}")
    if kind not in get_args(Kind):
        raise HeadFileError(f"`{path}` is of kind `{kind}`; there are {', '.join(get_args(Kind))}")
    found = HeadFile(
        kind=cast("Kind", kind),
        hidden=_width(path, shapes, "logits.weight" if kind == "r2r" else "layers.0.weight"),
        top=shapes["logits.weight"][1] if kind == "r2r" else 0,
        activations=_activations(path, metadata.get("activations", "")),
        threshold=_threshold(path, metadata.get("threshold")),
        source=metadata.get("source", ""),
        shapes=shapes,
    )
    wanted = _r2r(found) if kind == "r2r" else _layers(found)
    for name in sorted(wanted.keys() | shapes.keys()):
        has, asked = shapes.get(name), wanted.get(name)
        if has is None or asked is None:
            raise HeadFileError(f"`{path}` {'lacks' if has is None else 'has an unknown'} `{name}`")
        if has != asked:
            raise HeadFileError(f"`{path}`: `{name}` is {_by(has)}, and {_by(asked)} fits the rest")
    if kind == "linear" and len(shapes) != 2:
        raise HeadFileError(f"`{path}`: a linear head has one layer; this one is an `mlp`")
    return found


def _by(shape: Shape) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def _width(path: Path, shapes: dict[str, Shape], name: str) -> int:
    """Return the width of the hidden state by the first tensor that meets it."""
    shape = shapes.get(name)
    if shape is None or len(shape) != 2:
        raise HeadFileError(f"`{path}` lacks the matrix `{name}`")
    return shape[0] if name == "logits.weight" else shape[1]


def _activations(path: Path, text: str) -> tuple[str, ...]:
    names = tuple(text.split(",")) if text else ()
    for name in names:
        if name not in ACTIVATIONS:
            known = ", ".join(ACTIVATIONS)
            raise HeadFileError(f"`{path}` names the activation `{name}`; there are {known}")
    return names


def _threshold(path: Path, text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not isfinite(value):
        raise HeadFileError(f"`{path}` has a threshold that is no number: `{text}`")
    return value


def _layers(head: HeadFile) -> dict[str, Shape]:
    """Return the tensors that a linear head or an mlp must have, by the heights of its layers."""
    wanted: dict[str, Shape] = {}
    width, count = head.hidden, len(head.activations) + 1
    for at in range(count):
        shape = head.shapes.get(f"layers.{at}.weight", (1, width))
        height = 1 if at == count - 1 else shape[0]
        wanted |= {f"layers.{at}.weight": (height, width), f"layers.{at}.bias": (height,)}
        width = height
    return wanted


def _r2r(head: HeadFile) -> dict[str, Shape]:
    """Return the tensors that an r2r head must have, by its widths and its number of blocks."""
    h, width = head.hidden, _height(head, "combine.weight")
    wanted: dict[str, Shape] = {"logits.weight": (h, head.top), "logits.bias": (h,)}
    wanted |= {"combine.weight": (width, 3 * h), "combine.bias": (width,)}
    wanted |= {"input.weight": (width, width), "input.bias": (width,)}
    blocks = {name.split(".")[1] for name in head.shapes if name.startswith("blocks.")}
    for at in range(len(blocks)):
        block = f"blocks.{at}."
        inner = _height(head, block + "up.weight")
        wanted |= {block + "norm.weight": (width,), block + "norm.bias": (width,)}
        wanted |= {block + "up.weight": (inner, width), block + "up.bias": (inner,)}
        wanted |= {block + "down.weight": (width, inner), block + "down.bias": (width,)}
    wanted |= {"output.norm.weight": (width,), "output.norm.bias": (width,)}
    return wanted | {"output.weight": (1, width), "output.bias": (1,)}


def _height(head: HeadFile, name: str) -> int:
    return (head.shapes.get(name) or (0,))[0]


def _header(path: Path) -> tuple[dict[str, str], dict[str, Shape]]:
    """Return the metadata and the shapes of a safetensors file; the weights are not read."""
    try:
        with path.open("rb") as file:
            size, total = int.from_bytes(file.read(8), "little"), path.stat().st_size
            if not 2 <= size <= min(_LARGEST, total - 8):
                raise ValueError(size)
            raw = json.loads(file.read(size))
        metadata = raw.pop("__metadata__", {})
        shapes = {name: tuple(map(int, tensor["shape"])) for name, tensor in raw.items()}
        end = max((tensor["data_offsets"][1] for tensor in raw.values()), default=0)
        sound = all(
            tensor["data_offsets"][1] - tensor["data_offsets"][0]
            == prod(shapes[name]) * WIDTHS.get(tensor["dtype"], 0)
            for name, tensor in raw.items()
        )
        if not sound or end != total - 8 - size:
            raise ValueError(end)
    except OSError as error:
        raise HeadFileError(f"cannot read `{path}`: {error.strerror or error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise HeadFileError(
            f"`{path}` is no safetensors file of floating-point weights, or is cut short"
        ) from None
    return metadata, shapes
