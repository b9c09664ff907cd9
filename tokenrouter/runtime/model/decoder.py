"""One decoder for the Llama family: Llama and SmolLM, Mistral, Qwen2 (attention bias), Qwen3 (query and key norms).

    x = embedding[token]
    each layer:  x += o(attention(rotary(q), rotary(k), v)) with q, k, v from norm(x);   x += down(silu(gate) * up) of norm(x)
    logits = head(norm(x))

A batch is a ragged row of tokens [T, H]; only attention and the cache know that they belong to different requests.

Deterministic mode: a row's bits depend on nothing but its own request's tokens. Linears go in blocks of one shape, attention
in blocks of one size, and no other operation mixes rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import tokenrouter_kernels as kernels
import torch
from torch import Tensor

from tokenrouter.models.config import ModelConfig
from tokenrouter.runtime.model.batch import ExtendBatch, ExtendOutput
from tokenrouter.runtime.model.kv import KVCache, KVShape
from tokenrouter.runtime.model.linears import Linear
from tokenrouter.runtime.model.rope import RotaryTable


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one layer."""

    attention_norm: Tensor  # [H]
    qkv: Linear  # to (heads + 2 kv_heads) * D
    query_norm: Tensor | None  # [D], of Qwen3
    key_norm: Tensor | None  # [D]
    out: Linear
    feed_forward_norm: Tensor  # [H]
    gate_up: Linear  # to 2 F
    down: Linear


@dataclass(frozen=True, slots=True)
class Decoder:
    """A model of the Llama family with its weights."""

    config: ModelConfig
    dtype: torch.dtype
    embedding: Tensor  # [vocab rows, H]
    layers: list[Layer]
    norm: Tensor  # [H]
    head: Linear  # to the vocab rows
    rotary: RotaryTable
    deterministic: bool = False
    device: torch.device | str = "cpu"

    def new_cache(self, pages: int, page_size: int) -> KVCache:
        """Return empty pages of this model's shape."""
        c = self.config
        shape = KVShape(c.kv_heads, c.head_dim, c.head_dim)
        return KVCache.new([shape] * c.layers, pages, page_size, self.dtype, self.device)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the input embeddings of tokens: [B] -> [B, H]."""
        return self.embedding[tokens]

    @torch.inference_mode()
    def extend(self, batch: ExtendBatch, cache: KVCache, *, hidden: bool = False) -> ExtendOutput:
        """Read the batch's tokens into the cache and return what those that sample need."""
        x = self.embedding[batch.token_ids]
        turn = self.rotary(batch.positions, max(batch.ragged.lengths))
        last = len(self.layers) - 1
        for at, layer in enumerate(self.layers):
            normed = kernels.rms_norm(x, layer.attention_norm, self.config.rms_eps)
            attended = self._attend(at, layer, normed, turn, batch, cache)
            if at == last:
                # From here on, rows that nobody samples from matter to nobody.
                x, attended = x[batch.logits_rows], attended[batch.logits_rows]
            x = x + layer.out(attended)
            normed = kernels.rms_norm(x, layer.feed_forward_norm, self.config.rms_eps)
            gated = kernels.silu_mul(layer.gate_up(normed), batch_invariant=self.deterministic)
            x = x + layer.down(gated)
        x = kernels.rms_norm(x, self.norm, self.config.rms_eps)
        return ExtendOutput(self.head(x), x if hidden else None)

    def _attend(
        self,
        at: int,
        layer: Layer,
        x: Tensor,
        turn: tuple[Tensor, Tensor],
        batch: ExtendBatch,
        cache: KVCache,
    ) -> Tensor:
        """Return what each token's heads found: [T, heads * D]."""
        c = self.config
        heads = layer.qkv(x).view(x.shape[0], -1, c.head_dim)
        turning, v = heads[:, : c.heads + c.kv_heads], heads[:, c.heads + c.kv_heads :]
        if layer.query_norm is not None and layer.key_norm is not None:
            q = kernels.rms_norm(turning[:, : c.heads], layer.query_norm, c.rms_eps)
            k = kernels.rms_norm(turning[:, c.heads :], layer.key_norm, c.rms_eps)
            turning = torch.cat((q, k), 1)
        turned = kernels.rotary(turning, *turn)
        q = turned[:, : c.heads]
        cache.write(at, batch.slots, turned[:, c.heads :], v)
        attention = kernels.invariant_attention if self.deterministic else kernels.paged_attention
        window = c.windows[at] if c.windows else None
        found = attention(
            q, cache.keys[at], cache.values[at], batch.ragged, c.head_dim**-0.5, window=window
        )
        return found.flatten(1)
