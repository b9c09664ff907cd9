"""From a plan's model to a model with its weights, in the plan's dtype."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tokenrouter.models.config import ModelConfig, read_config
from tokenrouter.models.errors import ModelError
from tokenrouter.models.locate import Located, locate
from tokenrouter.models.sharing import share
from tokenrouter.runtime.model.cuda import CudaDecoder
from tokenrouter.runtime.model.decoder import Decoder, Layer
from tokenrouter.runtime.model.dummy import Dummy
from tokenrouter.runtime.model.foreign import load_foreign
from tokenrouter.runtime.model.language_model import LanguageModel
from tokenrouter.runtime.model.linears import Linear, linear
from tokenrouter.runtime.model.native import Maker, fits, kernels
from tokenrouter.runtime.model.parallel import Group, Shard
from tokenrouter.runtime.model.raw import RawLayer, RawLinear, Taken, raw_layer
from tokenrouter.runtime.model.rope import RotaryTable
from tokenrouter.runtime.model.weights import Gguf, Safetensors, Student, Weights

if TYPE_CHECKING:
    from tokenrouter.plan import structs as plan_

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
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
    return load(
        locate(model.use, base),
        dtype or model.dtype,
        deterministic=deterministic,
        int8=model.quantize == "int8",
        group=group,
        device=device,
    )


def load(
    located: Located,
    dtype: str,
    *,
    deterministic: bool = False,
    int8: bool = False,
    group: Group | None = None,
    device: torch.device = CPU,
) -> LanguageModel:
    """Return a located model with its weights, those of linear layers rounded to int8 or not; raises ModelError."""
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
        if int8:
            raise ModelError(
                f"`{located.path}`: `quantize int8` covers our own decoder, and `{config.family}` runs through transformers"
            )
        return load_foreign(located, config, DTYPES[dtype])
    if int8 and group is not None:
        raise ModelError(
            f"`{located.path}`: `quantize int8` and `tensor_parallel` exclude each other"
        )
    weights = weights_of(located, config, device)
    if group is not None:
        weights, config = Shard(weights, group), share(config, group.size)
    return assemble(
        weights,
        config,
        DTYPES[dtype],
        deterministic=deterministic,
        int8=int8,
        group=group,
        device=device,
    )


def weights_of(located: Located, config: ModelConfig, device: torch.device = CPU) -> Weights:
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
            return Dummy(config, located.seed, device)


def assemble(
    weights: Weights,
    config: ModelConfig,
    dtype: torch.dtype,
    *,
    deterministic: bool = False,
    int8: bool = False,
    group: Group | None = None,
    device: torch.device = CPU,
) -> LanguageModel:
    """Return a decoder made of named weights; raises ModelError where some are missing or left over."""
    taken = Taken(weights, dtype, device, int8=int8)
    if group is None and not deterministic and device.type == "cpu" and fits(config, dtype):
        library = kernels()
        if library is not None:
            return _native(taken, config, Maker(library, config, int8=int8))
    embedding = taken.get("model.embed_tokens.weight", (config.vocab_rows, config.hidden))

    def form(part: RawLinear) -> Linear:
        return linear(part.weight, part.bias, deterministic=deterministic, int8=int8, dtype=dtype)

    layers = [
        _layer(raw_layer(taken, config, at), group, form, in_order=deterministic)
        for at in range(config.layers)
    ]
    norm = taken.get("model.norm.weight", (config.hidden,))
    head = _head(taken, config, embedding)
    taken.check()
    logits = form(RawLinear(head if group is None else group.rows(head), None))
    made = CudaDecoder if device.type == "cuda" else Decoder
    return made(
        config=config,
        dtype=dtype,
        embedding=embedding,
        layers=layers,
        norm=norm,
        head=logits if group is None else group.joined(logits, config.vocab_rows),
        rotary=RotaryTable(config, dtype, _factors(weights, config), device),
        deterministic=deterministic,
        device=device,
    )


def _native(taken: Taken, config: ModelConfig, maker: Maker) -> LanguageModel:
    for at in range(config.layers):
        maker.layer(at, raw_layer(taken, config, at))
    norm = taken.get("model.norm.weight", (config.hidden,))
    embedding = taken.get("model.embed_tokens.weight", (config.vocab_rows, config.hidden))
    head = _head(taken, config, embedding)
    taken.check()
    rotary = RotaryTable(config, torch.float32, _factors(taken.weights, config))
    own = None if head is embedding and not maker.int8 else embedding  # one packed copy is both
    return maker.finish(taken.dtype, own, norm, head, rotary)


def _head(taken: Taken, config: ModelConfig, embedding: Tensor) -> Tensor:
    """Return the head's weight, in the dtype of linear layers."""
    shape = (config.vocab_rows, config.hidden)
    if not config.tied:
        return taken.get("lm_head.weight", shape, taken.linears)
    if taken.linears == taken.dtype:
        return embedding
    return taken.get("model.embed_tokens.weight", shape, taken.linears)


def _factors(weights: Weights, config: ModelConfig) -> Tensor | None:
    return weights.get("rope_freqs.weight") if config.rope.kind == "factors" else None


def _layer(
    raw: RawLayer, group: Group | None, form: Callable[[RawLinear], Linear], *, in_order: bool
) -> Layer:

    def summed(part: RawLinear) -> Linear:
        made = form(part)
        return made if group is None else group.summed(made, in_order=in_order)

    return Layer(
        attention_norm=raw.attention_norm,
        qkv=form(raw.qkv),
        query_norm=raw.query_norm,
        key_norm=raw.key_norm,
        out=summed(raw.out),
        feed_forward_norm=raw.feed_forward_norm,
        gate_up=form(raw.gate_up),
        down=summed(raw.down),
    )
