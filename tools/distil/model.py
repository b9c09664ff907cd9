"""A small Llama decoder in plain torch, used for both teacher and student while distilling.

It reads the teacher's GGUF and knows nothing of serving: no paging, no batching across requests.
Projections that share an input are fused (`qkv`, `gate_up`), which is what makes sampling fast.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from gguf import GGUFReader, dequantize
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The dimensions of SmolLM2-135M; teacher and student differ in their layers only."""

    hidden: int = 576
    ffn: int = 1536
    heads: int = 9
    kv_heads: int = 3
    head_dim: int = 64
    vocab: int = 49152
    rope_base: float = 100_000.0
    eps: float = 1e-5


SHAPE = Shape()


@dataclass
class Cache:
    """Keys and values of one layer, `[rows, kv heads, capacity, head dim]`."""

    keys: Tensor
    values: Tensor


class Block(nn.Module):
    """One decoder layer."""

    def __init__(self, shape: Shape = SHAPE) -> None:
        super().__init__()
        width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
        self.shape = shape
        self.attn_norm = nn.Parameter(torch.empty(shape.hidden))
        self.ffn_norm = nn.Parameter(torch.empty(shape.hidden))
        self.qkv = nn.Parameter(torch.empty(width, shape.hidden))
        self.out = nn.Parameter(torch.empty(shape.hidden, shape.heads * shape.head_dim))
        self.gate_up = nn.Parameter(torch.empty(2 * shape.ffn, shape.hidden))
        self.down = nn.Parameter(torch.empty(shape.hidden, shape.ffn))

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None = None, start: int = 0
    ) -> Tensor:
        """Attention, then the gated feed-forward, each added to its input."""
        x = x + self.attend(
            functional.rms_norm(x, x.shape[-1:], self.attn_norm, SHAPE.eps), cos, sin, cache, start
        )
        normed = functional.rms_norm(x, x.shape[-1:], self.ffn_norm, SHAPE.eps)
        gate, up = functional.linear(normed, self.gate_up).chunk(2, dim=-1)
        return x + functional.linear(functional.silu(gate) * up, self.down)

    def attend(
        self, x: Tensor, cos: Tensor, sin: Tensor, cache: Cache | None, start: int
    ) -> Tensor:
        """Causal attention; with a cache, `x` continues a sequence of `start` positions."""
        s = self.shape
        rows, steps, _ = x.shape
        heads = functional.linear(x, self.qkv).view(rows, steps, -1, s.head_dim).transpose(1, 2)
        turned = rotate(heads[:, : s.heads + s.kv_heads], cos, sin)
        q, k = turned.split([s.heads, s.kv_heads], dim=1)
        v = heads[:, s.heads + s.kv_heads :]
        if cache is not None:
            end = start + steps
            cache.keys[:rows, :, start:end] = k
            cache.values[:rows, :, start:end] = v
            k, v = cache.keys[:rows, :, :end], cache.values[:rows, :, :end]
        if steps == 1:  # the heads of a group become the queries of one key head
            group = s.heads // s.kv_heads
            mixed = functional.scaled_dot_product_attention(
                q.reshape(rows, s.kv_heads, group, -1), k, v
            )
        else:
            assert start == 0, "several steps at once only at the start of a sequence"
            mixed = functional.scaled_dot_product_attention(
                q, k, v, is_causal=True, enable_gqa=True
            )
        mixed = mixed.reshape(rows, s.heads, steps, s.head_dim).transpose(1, 2)
        return functional.linear(mixed.reshape(rows, steps, -1), self.out)


class Decoder(nn.Module):
    """Embedding, some blocks, final norm and the tied head."""

    def __init__(self, layers: int, shape: Shape = SHAPE) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(shape.vocab, shape.hidden), requires_grad=False)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(layers))
        self.norm = nn.Parameter(torch.empty(shape.hidden))

    def hidden(self, ids: Tensor, caches: list[Cache] | None = None, start: int = 0) -> Tensor:
        """Final normed states, `[rows, steps, hidden]`; `hidden @ embedding.T` are the logits."""
        x = functional.embedding(ids, self.embedding)
        cos, sin = rope_angles(start, start + ids.shape[1])
        for index, block in enumerate(self.blocks):
            x = block(x, cos, sin, caches[index] if caches else None, start)
        return functional.rms_norm(x, x.shape[-1:], self.norm, SHAPE.eps)

    def new_caches(self, rows: int, capacity: int) -> list[Cache]:
        """Room for `capacity` positions in every layer."""
        size = (rows, SHAPE.kv_heads, capacity, SHAPE.head_dim)
        return [Cache(torch.zeros(size), torch.zeros(size)) for _ in self.blocks]


def rope_angles(start: int, end: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position's rotary angles."""
    inverse = SHAPE.rope_base ** (-torch.arange(0, SHAPE.head_dim, 2) / SHAPE.head_dim)
    angles = torch.arange(start, end)[:, None] * inverse
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair of channels, half a head apart, by its angle."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def load_teacher(gguf: Path, layers: Iterable[int] = range(30)) -> Decoder:
    """The chosen layers of the GGUF, dequantised to float32, as a decoder of their own."""
    tensors = {t.name: t for t in GGUFReader(gguf).tensors}

    def read(name: str) -> Tensor:
        tensor = tensors[name]
        return torch.from_numpy(np.array(dequantize(tensor.data, tensor.tensor_type)))

    chosen = list(layers)
    model = Decoder(len(chosen))
    state = {"embedding": read("token_embd.weight"), "norm": read("output_norm.weight")}
    for place, layer in enumerate(chosen):
        source, target = f"blk.{layer}.", f"blocks.{place}."
        q = half_split(read(f"{source}attn_q.weight"), SHAPE.heads)
        k = half_split(read(f"{source}attn_k.weight"), SHAPE.kv_heads)
        state |= {
            f"{target}attn_norm": read(f"{source}attn_norm.weight"),
            f"{target}ffn_norm": read(f"{source}ffn_norm.weight"),
            f"{target}qkv": torch.cat((q, k, read(f"{source}attn_v.weight"))),
            f"{target}out": read(f"{source}attn_output.weight"),
            f"{target}gate_up": torch.cat(
                (read(f"{source}ffn_gate.weight"), read(f"{source}ffn_up.weight"))
            ),
            f"{target}down": read(f"{source}ffn_down.weight"),
        }
    model.load_state_dict(state)
    return model


def half_split(weight: Tensor, heads: int) -> Tensor:
    """Undo the row order of GGUF, which pairs neighbours; here a rotary pair is half a head apart."""
    pairs = weight.view(heads, SHAPE.head_dim // 2, 2, weight.shape[-1])
    return pairs.transpose(1, 2).reshape(weight.shape)
