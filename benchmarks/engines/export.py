"""A policy's model in the forms that other engines read: Hugging Face's layout in bfloat16, and GGUF files in that, in Q8_0, and in float16 and float32.

The weights are those that our own loader gives, so a dummy's are written down as they are drawn here.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors.torch import save_file

from tokenrouter.demo.fetch import cache_dir
from tokenrouter.models.config import ModelConfig, read_config
from tokenrouter.models.gguf import read_gguf
from tokenrouter.models.locate import Located, locate
from tokenrouter.models.rebuild import of_bytes, rebuild
from tokenrouter.models.vocabulary import gguf_of as own_gguf
from tokenrouter.models.vocabulary import printable_bytes, read_vocabulary
from tokenrouter.runtime.model.load import weights_of

NAMES = {  # of a layer's parts, here and in a GGUF file
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
ROTATED = re.compile(r"self_attn\.([qk])_proj\.weight")
NORMAL, CONTROL = 1, 3  # kinds of tokens in a GGUF file
SPARE = 1 << 30  # bytes that stay free on the disk
Kind = gguf.GGMLQuantizationType
Tensors = dict[str, torch.Tensor]


def directory_of(use: str) -> Path:
    """Return a model's directory in Hugging Face's layout, in the cache, written where it is missing."""
    return kept(use, "directory", write_directory)


def gguf_of(use: str, kind: Kind = Kind.BF16) -> Path:
    """Return a model's GGUF file in the cache, its matrices of a kind, written where it is missing."""
    form = "gguf" if kind == Kind.BF16 else f"gguf-{kind.name.lower()}"
    return kept(use, form, partial(write_gguf, kind=kind)) / "model.gguf"


def kept(use: str, form: str, write: Callable[[Path, Located, ModelConfig, Tensors], None]) -> Path:
    """Return the folder of one form of a model, which is whole."""
    place = cache_dir() / "bench" / "exported" / re.sub(r"[^\w.-]+", "-", use) / form
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        located = locate(use, Path())
        config = read_config(located)
        tensors = read(located, config)
        need = sum(tensor.nbytes for tensor in tensors.values())
        if (free := shutil.disk_usage(place).free) < need + SPARE:
            raise SystemExit(
                f"{place}: {need / 1e9:.1f} GB are to be written, {free / 1e9:.1f} are free"
            )
        write(place, located, config, tensors)
        (place / "done").touch()
    return place


def read(located: Located, config: ModelConfig) -> Tensors:
    """Return all weights in bfloat16, under Hugging Face's names."""
    weights = weights_of(located, config)
    names = sorted(weights.names() - {"rope_freqs.weight"})
    return {name: weights.get(name).to(torch.bfloat16).contiguous() for name in names}


def write_directory(place: Path, located: Located, config: ModelConfig, tensors: Tensors) -> None:
    """Write config.json, model.safetensors and tokenizer.json."""
    shape: dict[str, Any] = {
        "architectures": ["Qwen3ForCausalLM" if config.family == "qwen3" else "LlamaForCausalLM"],
        "model_type": config.family,
        "hidden_size": config.hidden,
        "intermediate_size": config.intermediate,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": config.activation,
        "rms_norm_eps": config.rms_eps,
        "rope_theta": config.rope.theta,
        "max_position_embeddings": config.context,
        "tie_word_embeddings": config.tied,
        "vocab_size": config.vocab_rows,
        "eos_token_id": list(config.eos_ids),
        "dtype": "bfloat16",
    }
    (place / "config.json").write_text(json.dumps(shape, indent=1), encoding="utf-8")
    save_file(tensors, place / "model.safetensors", {"format": "pt"})
    source = own_gguf(located)
    plain = (
        of_bytes(read_vocabulary(located).tokens) if source is None else rebuild(read_gguf(source))
    )
    plain.save(str(place / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (place / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")


def write_gguf(
    place: Path, located: Located, config: ModelConfig, tensors: Tensors, kind: Kind
) -> None:
    """Write the same as one GGUF file, matrices in bfloat16 or rounded as a kind says."""
    writer = gguf.GGUFWriter(place / "model.gguf", config.family)
    writer.add_block_count(config.layers)
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.hidden)
    writer.add_feed_forward_length(config.intermediate)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope.theta)
    writer.add_layer_norm_rms_eps(config.rms_eps)
    writer.add_vocab_size(config.vocab_rows)
    add_tokenizer(writer, located, config)
    for name, tensor in tensors.items():
        rotated = ROTATED.search(name)
        if rotated and config.family == "llama":
            tensor = interleaved(tensor, config.heads if rotated[1] == "q" else config.kv_heads)
        if tensor.ndim == 1:
            writer.add_tensor(gguf_name(name), tensor.float().numpy())
        elif kind == Kind.BF16:
            raw = tensor.contiguous().view(torch.uint8).numpy()
            writer.add_tensor(gguf_name(name), raw, raw_dtype=kind)
        else:
            rounded = gguf.quants.quantize(tensor.float().numpy(), kind)
            writer.add_tensor(gguf_name(name), rounded, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def interleaved(tensor: torch.Tensor, heads: int) -> torch.Tensor:
    """Return rows in the order that files of this architecture have: the halves of a rotated head in turn."""
    halves = tensor.reshape(heads, 2, tensor.shape[0] // heads // 2, -1)
    return halves.transpose(1, 2).reshape(tensor.shape)


def gguf_name(name: str) -> str:
    """Return what a GGUF file calls a tensor."""
    if name in OUTER:
        return OUTER[name]
    layer, part, kind = re.fullmatch(r"model\.layers\.(\d+)\.(.+)\.(\w+)", name).groups()  # type: ignore[union-attr]
    return f"blk.{layer}.{NAMES[part]}.{kind}"


def add_tokenizer(writer: gguf.GGUFWriter, located: Located, config: ModelConfig) -> None:
    """Copy the tokenizer of the model's own file, or spell a dummy's."""
    source = own_gguf(located)
    if source is None:
        spelling = {byte: character for character, byte in printable_bytes().items()}
        tokens = read_vocabulary(located).tokens
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(["".join(spelling[byte] for byte in token) for token in tokens])
        writer.add_token_types(
            [CONTROL if at in config.eos_ids else NORMAL for at in range(len(tokens))]
        )
        writer.add_token_merges(["a b"])
        writer.add_eos_token_id(config.eos_ids[0])
        return
    for name, value in gguf.GGUFReader(source).fields.items():
        if name.startswith("tokenizer."):
            kind = value.types[0]
            of = value.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, value.contents(), kind, of)
