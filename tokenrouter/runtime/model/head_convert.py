"""Published router checkpoints -> head files. They are pickles, so they are read weights-only: tensors, numbers, texts.

R2R    a dict of model_type, init_args, common_args (threshold), state_dict; of its classes, the one with hidden state, token
       and logits. The token embedding, which `X_all.pt` holds and `X.pt` does not, is left out: the runtime takes it from
       the model that the head reads.
CITER  a bare state dict: linear, batch norm, ReLU, dropout, linear, dropout, linear. In eval mode the batch norm is a scale
       and a shift, which are folded into the linear before it. Nothing stands between the last two linears.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from tokenrouter.models.head import HeadFile, HeadFileError, read_head

Publisher = Literal["r2r", "citer"]
R2R_CLASS = "HiddenStatesTokenLMHeadLogitsClassifier"
_BATCH_NORM_EPS = 1e-5


class Converted(NamedTuple):
    """A head's tensors and its metadata, and the names of what was left out."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]
    dropped: list[str]


def convert(
    checkpoint: Path, publisher: Publisher, out: Path, threshold: float | None = None
) -> tuple[HeadFile, list[str]]:
    """Write a head file and return what it says of itself, and what was left out; raises HeadFileError.

    `threshold` is noted instead of the checkpoint's.
    """
    content = read_checkpoint(checkpoint)
    made = from_r2r(content, checkpoint) if publisher == "r2r" else from_citer(content, checkpoint)
    tensors = {name: tensor.float().contiguous() for name, tensor in made.tensors.items()}
    metadata = {"tokenrouter_head": "1", **made.metadata}
    if threshold is not None:
        metadata["threshold"] = repr(threshold)
    save_file(tensors, out, metadata=metadata)
    try:
        return read_head(out), made.dropped
    except HeadFileError as error:
        out.unlink()
        raise HeadFileError(f"`{checkpoint}` makes no sound head: {error}") from None


def read_checkpoint(path: Path) -> Any:
    """Return what a checkpoint holds; objects other than tensors and plain values are refused and never made."""
    if not path.is_file():
        raise HeadFileError(f"there is no checkpoint at `{path}`")
    try:
        with warnings.catch_warnings():  # of odd pickles; what is wrong is told in one line
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        text = " ".join(str(error).split())
        if "nsupported" in text or "eights only" in text or "eights_only" in text:
            raise HeadFileError(
                f"`{path}` holds more than weights, and nothing of it was run; only tensors, numbers and texts are read"
            ) from error
        raise HeadFileError(f"`{path}` is no checkpoint of torch, or is cut short") from error


def from_r2r(content: Any, path: Path) -> Converted:
    """Return the head of an R2R checkpoint."""
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), Mapping):
        raise HeadFileError(f"`{path}` is no checkpoint of R2R: it has no `state_dict`")
    if content.get("model_type") != R2R_CLASS:
        raise HeadFileError(
            f"`{path}` holds R2R's `{content.get('model_type')}`; only `{R2R_CLASS}` can be converted"
        )
    arguments = content.get("init_args") or {}
    for name in ("normalize_input", "use_position_embedding"):
        if arguments.get(name):
            raise HeadFileError(f"`{path}` was trained with `{name}`, which heads here do not have")
    state = _State(content["state_dict"], path)
    tensors: dict[str, Tensor] = {}
    for ours, theirs in _R2R.items():
        tensors |= state.affine(ours, theirs)
    at = 0
    while f"backbone.blocks.{at}.mlp.0.weight" in state.left:
        if f"backbone.blocks.{at}.dim_change.weight" in state.left:
            raise HeadFileError(
                f"`{path}` has blocks of several widths, which heads here do not have"
            )
        for ours, theirs in _R2R_BLOCK.items():
            tensors |= state.affine(f"blocks.{at}.{ours}", f"backbone.blocks.{at}.{theirs}")
        at += 1
    dropped = state.finish({"token_embeddings.weight"})
    metadata = {"kind": "r2r", "source": f"R2R, {path.name}"}
    threshold = (content.get("common_args") or {}).get("threshold")
    if isinstance(threshold, (int, float)):
        metadata["threshold"] = repr(float(threshold))
    return Converted(tensors, metadata, dropped)


_R2R = {
    "logits": "logits_projection",
    "combine": "combined_projection",
    "input": "backbone.input_projection",
    "output.norm": "backbone.output_layer.0",
    "output": "backbone.output_layer.1",
}
_R2R_BLOCK = {"norm": "layer_norm", "up": "mlp.0", "down": "mlp.3"}


def from_citer(content: Any, path: Path) -> Converted:
    """Return the head of a CITER checkpoint."""
    if not isinstance(content, Mapping) or not all(isinstance(t, Tensor) for t in content.values()):
        raise HeadFileError(f"`{path}` is no checkpoint of CITER: it is no bare state dict")
    state = _State(content, path)
    first = state.affine("layers.0", "mlp.0")
    norm = {name: state.take(f"mlp.1.{name}") for name in _BATCH_NORM}
    scale = norm["weight"] / (norm["running_var"] + _BATCH_NORM_EPS).sqrt()
    tensors = {
        "layers.0.weight": first["layers.0.weight"] * scale[:, None],
        "layers.0.bias": (first["layers.0.bias"] - norm["running_mean"]) * scale + norm["bias"],
    }
    tensors |= state.affine("layers.1", "mlp.4") | state.affine("layers.2", "linear")
    dropped = state.finish({"mlp.1.num_batches_tracked"})
    metadata = {
        "kind": "mlp",
        "activations": "relu,identity",
        "source": f"CITER, {path.name}",
    }
    return Converted(tensors, metadata, dropped)


_BATCH_NORM = ("weight", "bias", "running_mean", "running_var")


class _State:
    """A state dict, and what of it was not used yet; numbers in float64, so that folding loses nothing."""

    def __init__(self, state: Mapping[str, Any], path: Path) -> None:
        self.left = {name: value for name, value in state.items() if isinstance(value, Tensor)}
        self.path = path

    def take(self, name: str) -> Tensor:
        if name not in self.left:
            raise HeadFileError(f"`{self.path}` lacks `{name}`, so it has another layout")
        return self.left.pop(name).double()

    def affine(self, ours: str, theirs: str) -> dict[str, Tensor]:
        return {f"{ours}.{part}": self.take(f"{theirs}.{part}") for part in ("weight", "bias")}

    def finish(self, ignored: set[str]) -> list[str]:
        """Return what was left out; what nobody knows is refused, since the head would be another one."""
        unknown = sorted(self.left.keys() - ignored)
        if unknown:
            raise HeadFileError(
                f"`{self.path}` has an unknown `{unknown[0]}`, so it has another layout"
            )
        return sorted(self.left)
