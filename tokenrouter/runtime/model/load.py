"""From a plan's model to a model with its weights, in the plan's dtype."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from tokenrouter.models.config import ModelConfig, read_config
from tokenrouter.models.errors import ModelError
from tokenrouter.models.locate import Located, locate
from tokenrouter.models.sharing import share
from tokenrouter.plan import structs as plan_
from tokenrouter.runtime.model.cuda import CudaDecoder
from tokenrouter.runtime.model.decoder import Decoder, Layer
from tokenrouter.runtime.model.dummy import Dummy
from tokenrouter.runtime.model.foreign import load_foreign
from tokenrouter.runtime.model.language_model import LanguageModel
from tokenrouter.runtime.model.linears import Linear, linear
from tokenrouter.runtime.model.parallel import Group, Shard
from tokenrouter.runtime.model.rope import RotaryTable
from tokenrouter.runtime.model.weights import Gguf, Safetensors, Student, Weights

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
_IGNORED = ("rotary_emb.inv_freq", "rope_freqs.weight", "attn.masked_bias")


CPU = torch.device("cpu")


def load_model(
    model: plan_.Model,
    base: Path,
    *,
    dtype: str | None = None,
    deterministic: bool = False,
    group: Group | None = None,
    device: torch.device = CPU,
) -> LanguageModel:
    """Return a model with its weights, or a rank's part of it; raises ModelError.

    `dtype` overrides the plan's. `deterministic` needs float32 or float64: then a request's logits are equal to the bit
    alone and in a crowd, whole or in chunks.
    """
    if model.quantize != "none":
        raise ModelError(f"model `{model.name}`: `quantize {model.quantize}` is not supported yet")
    return load(
        locate(model.use, base),
        dtype or model.dtype,
        deterministic=deterministic,
        group=group,
        device=device,
    )


def load(
    located: Located,
    dtype: str,
    *,
    deterministic: bool = False,
    group: Group | None = None,
    device: torch.device = CPU,
) -> LanguageModel:
    """Return a located model with its weights; raises ModelError."""
    if dtype not in DTYPES:
        raise ModelError(f"dtype `{dtype}` is unknown; there are {', '.join(DTYPES)}")
    if deterministic and dtype not in ("float32", "float64"):
        raise ModelError(f"deterministic mode needs float32 or float64, not {dtype}")
    config = read_config(located)
    if not config.is_own:
        if deterministic:
            raise ModelError(
                f"`{located.path}`: deterministic mode covers our own decoder, and `{config.family}` runs through transformers"
            )
        return load_foreign(located, config, DTYPES[dtype])
    weights = weights_of(located, config)
    if group is not None:
        weights, config = Shard(weights, group), share(config, group.size)
    return assemble(
        weights, config, DTYPES[dtype], deterministic=deterministic, group=group, device=device
    )


def weights_of(located: Located, config: ModelConfig) -> Weights:
    """Return the reader of a located model's weights."""
    match located.kind:
        case "gguf":
            return Gguf(located.path, config)
        case "student":
            assert located.teacher is not None
            return Student(located.path, located.teacher)
        case "directory":
            return Safetensors(located.path)
        case "dummy":
            return Dummy(config, located.seed)


def assemble(
    weights: Weights,
    config: ModelConfig,
    dtype: torch.dtype,
    *,
    deterministic: bool = False,
    group: Group | None = None,
    device: torch.device = CPU,
) -> Decoder:
    """Return a decoder made of named weights; raises ModelError where some are missing or left over."""
    taken = _Taken(weights, dtype, device)
    embedding = taken.get("model.embed_tokens.weight", (config.vocab_rows, config.hidden))
    layers = [_layer(taken, config, at, deterministic, group) for at in range(config.layers)]
    norm = taken.get("model.norm.weight", (config.hidden,))
    head = embedding
    if not config.tied:
        head = taken.get("lm_head.weight", (config.vocab_rows, config.hidden))
    factors = weights.get("rope_freqs.weight") if config.rope.kind == "factors" else None
    taken.check()
    logits = linear(head if group is None else group.rows(head), None, deterministic=deterministic)
    made = CudaDecoder if device.type == "cuda" else Decoder
    return made(
        config=config,
        dtype=dtype,
        embedding=embedding,
        layers=layers,
        norm=norm,
        head=logits if group is None else group.joined(logits, config.vocab_rows),
        rotary=RotaryTable(config, dtype, factors, device),
        deterministic=deterministic,
        device=device,
    )


class _Taken:
    """Weights, and which of them were used."""

    def __init__(self, weights: Weights, dtype: torch.dtype, device: torch.device) -> None:
        self.weights = weights
        self.dtype = dtype
        self.device = device
        self.names = weights.names()
        self.used: set[str] = set()

    def get(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self.names:
            raise ModelError(f"the model's weights lack `{name}`")
        self.used.add(name)
        tensor = self.weights.get(name)
        if tensor.shape != shape:
            raise ModelError(
                f"`{name}` has shape {list(tensor.shape)}, the config asks for {list(shape)}"
            )
        return tensor.to(self.device, self.dtype).contiguous()

    def maybe(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
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


def _layer(
    taken: _Taken, config: ModelConfig, at: int, deterministic: bool, group: Group | None
) -> Layer:
    c, prefix = config, f"model.layers.{at}."
    queries, keys = c.heads * c.head_dim, c.kv_heads * c.head_dim

    def joined(parts: dict[str, int], width: int) -> Linear:
        weight = [taken.get(f"{prefix}{n}.weight", (rows, width)) for n, rows in parts.items()]
        bias = [taken.maybe(f"{prefix}{n}.bias", (rows,)) for n, rows in parts.items()]
        some = None
        if any(b is not None for b in bias):
            some = torch.cat(
                [
                    torch.zeros(rows, dtype=taken.dtype, device=taken.device) if b is None else b
                    for b, rows in zip(bias, parts.values(), strict=True)
                ]
            )
        whole = weight[0] if len(weight) == 1 else torch.cat(weight)
        return linear(whole, some, deterministic=deterministic)

    def summed(part: Linear) -> Linear:
        return part if group is None else group.summed(part, in_order=deterministic)

    return Layer(
        attention_norm=taken.get(prefix + "input_layernorm.weight", (c.hidden,)),
        qkv=joined(
            {"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys},
            c.hidden,
        ),
        query_norm=taken.maybe(prefix + "self_attn.q_norm.weight", (c.head_dim,)),
        key_norm=taken.maybe(prefix + "self_attn.k_norm.weight", (c.head_dim,)),
        out=summed(joined({"self_attn.o_proj": c.hidden}, queries)),
        feed_forward_norm=taken.get(prefix + "post_attention_layernorm.weight", (c.hidden,)),
        gate_up=joined({"mlp.gate_proj": c.intermediate, "mlp.up_proj": c.intermediate}, c.hidden),
        down=summed(joined({"mlp.down_proj": c.hidden}, c.intermediate)),
    )
