"""A decoder's weights by their meaning, one layer at a time, before a form is chosen for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from tokenrouter.models.config import ModelConfig
from tokenrouter.models.errors import ModelError
from tokenrouter.runtime.model.weights import Weights

_IGNORED = ("rotary_emb.inv_freq", "rope_freqs.weight", "attn.masked_bias")


class RawLinear(NamedTuple):
    """One linear layer: several of the checkpoint's, one under the other."""

    weight: Tensor  # [N, K]
    bias: Tensor | None  # [N]


@dataclass(frozen=True, slots=True)
class RawLayer:
    """The weights of one layer."""

    attention_norm: Tensor  # [H]
    qkv: RawLinear  # to (heads + 2 kv_heads) * D
    query_norm: Tensor | None  # [D], of Qwen3
    key_norm: Tensor | None  # [D]
    out: RawLinear
    feed_forward_norm: Tensor  # [H]
    gate_up: RawLinear  # to 2 F
    down: RawLinear


class Taken:
    """Weights in one dtype on one device, and which of them were used.

    `int8`: matrices of linear layers come in float32, from which they are rounded.
    """

    def __init__(
        self, weights: Weights, dtype: torch.dtype, device: torch.device, *, int8: bool = False
    ) -> None:
        self.weights = weights
        self.dtype = dtype
        self.linears = torch.float32 if int8 else dtype
        self.device = device
        self.names = weights.names()
        self.used: set[str] = set()

    def get(self, name: str, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> Tensor:
        """Return a tensor of a known shape; raises ModelError."""
        if name not in self.names:
            raise ModelError(f"the model's weights lack `{name}`")
        self.used.add(name)
        tensor = self.weights.get(name)
        if tensor.shape != shape:
            raise ModelError(
                f"`{name}` has shape {list(tensor.shape)}, the config asks for {list(shape)}"
            )
        return tensor.to(self.device, dtype or self.dtype).contiguous()

    def maybe(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        """Return a tensor that not every model has."""
        return self.get(name, shape) if name in self.names else None

    def check(self) -> None:
        """Refuse weights that would be left out: the model would not be what it claims."""
        left = sorted(
            name
            for name in self.names - self.used
            if not name.endswith(_IGNORED) and name != "lm_head.weight"
        )
        if left:
            raise ModelError(f"the model has {len(left)} unknown weights, such as `{left[0]}`")


def raw_layer(taken: Taken, config: ModelConfig, at: int) -> RawLayer:
    """Return the weights of one layer."""
    c, prefix = config, f"model.layers.{at}."
    queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim

    def joined(parts: Mapping[str, int], width: int) -> RawLinear:
        weight = [
            taken.get(f"{prefix}{n}.weight", (rows, width), taken.linears)
            for n, rows in parts.items()
        ]
        bias = [taken.maybe(f"{prefix}{n}.bias", (rows,)) for n, rows in parts.items()]
        some = None
        if any(b is not None for b in bias):
            some = torch.cat(
                [
                    torch.zeros(rows, dtype=taken.dtype, device=taken.device) if b is None else b
                    for b, rows in zip(bias, parts.values(), strict=True)
                ]
            )
        return RawLinear(weight[0] if len(weight) == 1 else torch.cat(weight), some)

    return RawLayer(
        attention_norm=taken.get(prefix + "input_layernorm.weight", (c.hidden,)),
        qkv=joined(
            {"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys},
            c.hidden,
        ),
        query_norm=taken.maybe(prefix + "self_attn.q_norm.weight", (c.head_dim,)),
        key_norm=taken.maybe(prefix + "self_attn.k_norm.weight", (c.head_dim,)),
        out=joined({"self_attn.o_proj": c.hidden}, queries),
        feed_forward_norm=taken.get(prefix + "post_attention_layernorm.weight", (c.hidden,)),
        gate_up=joined({"mlp.gate_proj": c.intermediate, "mlp.up_proj": c.intermediate}, c.hidden),
        down=joined({"mlp.down_proj": c.hidden}, c.intermediate),
    )
