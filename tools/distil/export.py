"""Write the student as it ships: int8 weights with a float scale per output channel.

Names and shapes are those of a Hugging Face Llama; `NAME.weight_scale` belongs to `NAME.weight`, and
the product is the weight. The embedding, which is also the head, stays with the teacher.

    python tools/distil/export.py --weights RUN/student.safetensors --layers 0 1 2 26 27 28 29 --out DIR
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from model import SHAPE
from safetensors.torch import load_file, save_file
from torch import Tensor

QUANTISATION = "int8-per-output-channel"
TEACHER_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
ROWS = {
    "qkv": {
        "self_attn.q_proj": SHAPE.heads * SHAPE.head_dim,
        "self_attn.k_proj": SHAPE.kv_heads * SHAPE.head_dim,
        "self_attn.v_proj": SHAPE.kv_heads * SHAPE.head_dim,
    },
    "out": {"self_attn.o_proj": SHAPE.hidden},
    "gate_up": {"mlp.gate_proj": SHAPE.ffn, "mlp.up_proj": SHAPE.ffn},
    "down": {"mlp.down_proj": SHAPE.hidden},
}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row to 127 steps of its largest weight."""
    scale = weight.abs().amax(1, keepdim=True).clamp_min(1e-12) / 127
    return (weight / scale).round().to(torch.int8), scale


def shipped(weights: dict[str, Tensor], layers: int) -> dict[str, Tensor]:
    """The file's tensors, from the trainer's fused ones."""
    tensors = {"model.norm.weight": weights["norm"]}
    for index in range(layers):
        source, target = f"blocks.{index}.", f"model.layers.{index}."
        for own, name in NORMS.items():
            tensors[f"{target}{name}.weight"] = weights[source + own]
        for own, parts in ROWS.items():
            split = weights[source + own].split(list(parts.values()))
            for name, part in zip(parts, split, strict=True):
                stored, scale = quantise(part)
                tensors[f"{target}{name}.weight"] = stored
                tensors[f"{target}{name}.weight_scale"] = scale
    return tensors


def loaded(path: Path, layers: int) -> dict[str, Tensor]:
    """The inverse of `shipped`: the trainer's tensors, as the int8 file gives them."""
    tensors = load_file(path)
    weights = {"norm": tensors["model.norm.weight"]}
    for index in range(layers):
        source, target = f"model.layers.{index}.", f"blocks.{index}."
        for own, name in NORMS.items():
            weights[target + own] = tensors[f"{source}{name}.weight"]
        for own, parts in ROWS.items():
            weights[target + own] = torch.cat(
                [
                    tensors[f"{source}{n}.weight"] * tensors[f"{source}{n}.weight_scale"]
                    for n in parts
                ]
            )
    return weights


def config(layers: list[int]) -> dict[str, object]:
    """A Hugging Face configuration, and what is ours under one key."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": SHAPE.hidden,
        "intermediate_size": SHAPE.ffn,
        "num_hidden_layers": len(layers),
        "num_attention_heads": SHAPE.heads,
        "num_key_value_heads": SHAPE.kv_heads,
        "head_dim": SHAPE.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": 8192,
        "rms_norm_eps": SHAPE.eps,
        "rope_theta": SHAPE.rope_base,
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "vocab_size": SHAPE.vocab,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "dtype": "float32",
        "tokenrouter": {
            "teacher": "SmolLM2-135M-Instruct",
            "teacher_layers": layers,
            "shares": ["embedding", "head"],
            "quantisation": QUANTISATION,
        },
    }


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--layers", type=int, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    metadata = {
        "format": "pt",
        "quantisation": QUANTISATION,
        "teacher": "SmolLM2-135M-Instruct",
        "teacher_sha256": TEACHER_SHA256,
    }
    tensors = shipped(load_file(args.weights), len(args.layers))
    save_file(tensors, args.out / "student.safetensors", metadata)
    (args.out / "student.safetensors").chmod(0o644)  # the library makes it private
    text = json.dumps(config(args.layers), indent=2) + "\n"
    (args.out / "config.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
