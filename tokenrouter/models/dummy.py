"""Models that are only a shape: random weights of real sizes, for benchmarks and for machines without checkpoints.

    dummy:qwen3-0.6b            a shape that is known here; no file is read
    dummy:path/to/dir           a directory with config.json, and with the tokenizer where it has one
    dummy:qwen3-0.6b?seed=2     other weights of the same shape

Where there is no tokenizer, ids stand for bytes (0 to 255), the end of a text (256), and words like ` w300` that only a model
writes. Which weights a seed gives is `tokenrouter.runtime.model.dummy`'s to say; here nothing is drawn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenrouter.models.errors import ModelError
from tokenrouter.models.files import read_json

if TYPE_CHECKING:
    from tokenrouter.models.config import ModelConfig

END = 256  # the id that ends a text
TEMPLATE = (
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:"
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a published model."""

    family: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    tied: bool
    rows: int
    theta: float
    context: int

    def config(self) -> dict[str, Any]:
        """Return them as a config.json."""
        return {
            "model_type": self.family,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "tie_word_embeddings": self.tied,
            "vocab_size": self.rows,
            "rope_theta": self.theta,
            "max_position_embeddings": self.context,
            "dtype": "bfloat16",
        }


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, *, tied: bool = False) -> Shape:
    return Shape(
        "qwen3", hidden, intermediate, layers, heads, 8, 128, tied, 151936, 1_000_000.0, 40960
    )


SHAPES = {
    "qwen3-0.6b": _qwen3(1024, 3072, 28, 16, tied=True),
    "qwen3-1.7b": _qwen3(2048, 6144, 28, 16, tied=True),
    "qwen3-4b": _qwen3(2560, 9728, 36, 32, tied=True),
    "qwen3-8b": _qwen3(4096, 12288, 36, 32),
    "qwen3-14b": _qwen3(5120, 17408, 40, 40),
    "qwen3-32b": _qwen3(5120, 25600, 64, 64),
    "smollm2-135m": Shape("llama", 576, 1536, 30, 9, 3, 64, True, 49152, 100_000.0, 8192),
}


def parse(use: str) -> tuple[str, int]:
    """Return the shape or path, and the seed, of `dummy:...`; raises ModelError."""
    name, asked, query = use.removeprefix("dummy:").partition("?")
    key, _, value = query.partition("=")
    if asked and (key != "seed" or not value.isdecimal()):
        raise ModelError(f"`{use}`: behind `?` only `seed=NUMBER` may stand")
    return name, int(value) if asked else 0


def where(use: str, base: Path) -> tuple[Path, int]:
    """Return a dummy's directory, or its shape's name in the form of one, and its seed; raises ModelError."""
    name, seed = parse(use)
    if name in SHAPES:
        return Path(name), seed
    path = base / os.path.expanduser(name)
    if (path / "config.json").is_file():
        return path, seed
    raise ModelError(
        f"`{use}` is neither a directory with a config.json nor one of the shapes {', '.join(SHAPES)}"
    )


def raw_config(path: Path) -> dict[str, Any]:
    """Return the config.json of a dummy's directory, or that of a shape's name."""
    shape = SHAPES.get(str(path))
    return read_json(path / "config.json") if shape is None else shape.config()


def is_plain(path: Path) -> bool:
    """Return whether a dummy has no tokenizer of its own."""
    return str(path) in SHAPES or not (path / "tokenizer.json").is_file()


def tokens(rows: int) -> tuple[bytes, ...]:
    """Return what each id stands for where there is no tokenizer; raises ModelError."""
    if rows <= END:
        raise ModelError(
            f"{rows} rows are too few for ids of bytes and an end: give the dummy a tokenizer.json"
        )
    words = (b" w%d" % id_ for id_ in range(END + 1, rows))
    return (*(bytes([id_]) for id_ in range(END)), b"<|end|>", *words)


def tensors(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the name and shape of every weight of a model of our own families."""
    if not config.is_own:
        raise ModelError(
            f"dummy weights are drawn for llama, mistral, qwen2 and qwen3, not for `{config.family}`"
        )
    c, queries, keys = config, config.heads * config.head_dim, config.kv_heads * config.head_dim
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (c.vocab_rows, c.hidden)}
    for layer in range(c.layers):
        part = {
            "input_layernorm.weight": (c.hidden,),
            "self_attn.q_proj.weight": (queries, c.hidden),
            "self_attn.k_proj.weight": (keys, c.hidden),
            "self_attn.v_proj.weight": (keys, c.hidden),
            "self_attn.o_proj.weight": (c.hidden, queries),
            "post_attention_layernorm.weight": (c.hidden,),
            "mlp.gate_proj.weight": (c.intermediate, c.hidden),
            "mlp.up_proj.weight": (c.intermediate, c.hidden),
            "mlp.down_proj.weight": (c.hidden, c.intermediate),
        }
        if c.family == "qwen2":
            part |= {
                f"self_attn.{name}_proj.bias": (rows,)
                for name, rows in (("q", queries), ("k", keys), ("v", keys))
            }
        if c.family == "qwen3":
            part |= {f"self_attn.{name}_norm.weight": (c.head_dim,) for name in ("q", "k")}
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in part.items()}
    found["model.norm.weight"] = (c.hidden,)
    if not c.tied:
        found["lm_head.weight"] = (c.vocab_rows, c.hidden)
    return found
