"""Where weights come from: one reader for each way of storing them, all under Hugging Face names.

The libraries of the formats are imported with the first file: a dummy needs none of them.
"""

from __future__ import annotations

import json
from math import gcd
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from tokenrouter.models.config import ModelConfig
from tokenrouter.models.errors import ModelError
from tokenrouter.models.gguf import GgufHead, TensorInfo, read_gguf

JOINED = 64  # rows of a GGUF tensor that are dequantised as one


class Weights(Protocol):
    """Named tensors; each is read when it is asked for."""

    def names(self) -> set[str]:
        """Return the names of all tensors."""
        ...

    def get(self, name: str) -> Tensor:
        """Return one tensor in the dtype it stands for, packed forms expanded to float32."""
        ...


class Safetensors:
    """The *.safetensors of a directory, in one file or many."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = _shards(path)

    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self._files)

    def get(self, name: str) -> Tensor:
        """Return one tensor."""
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415

        try:
            with safe_open(self._files[name], "pt") as file:
                tensor = file.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"`{self._files[name]}` is damaged or cut short") from error
        assert isinstance(tensor, Tensor)
        return tensor


def _shards(path: Path) -> dict[str, Path]:
    """Return the file of each tensor."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415

    index = path / "model.safetensors.index.json"
    if index.is_file():
        try:
            by_name = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        except (ValueError, KeyError, TypeError) as error:
            raise ModelError(f"`{index}` is no index of weights") from error
        files = {name: path / file for name, file in by_name.items()}
        missing = sorted({file.name for file in files.values() if not file.is_file()})
        if missing:
            raise ModelError(f"`{path}` lacks `{missing[0]}`, which its index names")
        return files
    files = {}
    for file in sorted(path.glob("*.safetensors")):
        try:
            with safe_open(file, "pt") as opened:
                files |= dict.fromkeys(opened.keys(), file)
        except (SafetensorError, OSError) as error:
            raise ModelError(f"`{file}` is damaged or cut short") from error
    return files


class Gguf:
    """The tensors of a GGUF file, dequantised to float32."""

    def __init__(self, path: Path, config: ModelConfig) -> None:
        self.head: GgufHead = read_gguf(path)
        self.config = config
        self._stored = {_hf_name(name): info for name, info in self.head.tensors.items()}

    def names(self) -> set[str]:
        """Return the names of all tensors."""
        return set(self._stored)

    def get(self, name: str) -> Tensor:
        """Return one tensor."""
        tensor = dequantised(self.head.path, self._stored[name])
        # Files of these architectures hold the two halves of a rotated head interleaved.
        if self.head.architecture in ("llama", "mistral"):
            if ".q_proj." in name:
                return _halves_apart(tensor, self.config.heads)
            if ".k_proj." in name:
                return _halves_apart(tensor, self.config.kv_heads)
        return tensor


def dequantised(path: Path, info: TensorInfo) -> Tensor:
    """Return a tensor of a GGUF file in float32."""
    import gguf  # noqa: PLC0415
    import numpy as np  # noqa: PLC0415

    try:
        kind = gguf.GGMLQuantizationType(info.type)
        block, size = gguf.GGML_QUANT_SIZES[kind]
    except (ValueError, KeyError) as error:
        raise ModelError(
            f"`{path}` stores `{info.name}` in an unknown way ({info.type})"
        ) from error
    row = info.shape[-1] // block * size
    rows = 1
    for n in info.shape[:-1]:
        rows *= n
    try:
        # Rows hold whole blocks, so they can be joined; the library takes 16 rows a time, which are few blocks.
        joined = gcd(rows, JOINED)
        packed = np.fromfile(path, np.uint8, rows * row, offset=info.offset)
        values = gguf.dequantize(packed.reshape(rows // joined, joined * row), kind)
    except ValueError as error:
        raise ModelError(f"`{path}` is cut short: `{info.name}` is not whole") from error
    except NotImplementedError as error:
        raise ModelError(
            f"`{path}` stores `{info.name}` as {kind.name}, which is not supported"
        ) from error
    return torch.from_numpy(np.asarray(values, np.float32)).view(info.shape)


def _halves_apart(tensor: Tensor, heads: int) -> Tensor:
    shape = tensor.shape
    pairs = tensor.reshape(heads, shape[0] // heads // 2, 2, -1)
    return pairs.transpose(1, 2).reshape(shape)


_GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def _hf_name(name: str) -> str:
    if name.startswith("blk."):
        _, layer, part, kind = name.split(".", 3)
        return f"model.layers.{layer}.{_GGUF_NAMES.get(part, part)}.{kind}"
    return _GGUF_OUTER.get(name, name)


class Student:
    """The demo's small model: its own layers as int8 with a scale per output channel, the rest from its teacher."""

    def __init__(self, path: Path, teacher: Path) -> None:
        self._own = Safetensors(path)
        self._teacher = read_gguf(teacher)

    def names(self) -> set[str]:
        """Return the names of all tensors."""
        own = {name for name in self._own.names() if not name.endswith("_scale")}
        return own | {"model.embed_tokens.weight"}

    def get(self, name: str) -> Tensor:
        """Return one tensor."""
        if name == "model.embed_tokens.weight":
            return dequantised(self._teacher.path, self._teacher.tensors["token_embd.weight"])
        tensor = self._own.get(name)
        if tensor.dtype == torch.int8:
            return tensor.float() * self._own.get(name + "_scale")
        return tensor
