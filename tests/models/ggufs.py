"""Write a tiny Hugging Face model as a GGUF file, the way the usual converters do."""

import json

import gguf
import numpy as np
from safetensors.torch import load_file

OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
INNER = {
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


def write_model(source, path, kind=gguf.GGMLQuantizationType.F32):
    """Write a saved model's weights and tokenizer; matrices in `kind`, everything else in float32."""
    config = json.loads((source / "config.json").read_text())
    arch, heads = config["model_type"], config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config["head_dim"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    write_byte_level(writer, json.loads((source / "tokenizer.json").read_text()))
    for name, tensor in load_file(source / "model.safetensors").items():
        values = tensor.numpy()
        for part, n in (("q_proj.weight", heads), ("k_proj.weight", kv_heads)):
            if arch == "llama" and name.endswith(part):
                halves = values.reshape(n, 2, values.shape[0] // n // 2, -1)
                values = halves.swapaxes(1, 2).reshape(values.shape)
        if values.ndim == 1 or kind == gguf.GGMLQuantizationType.F32:
            writer.add_tensor(_name(name), np.ascontiguousarray(values))
        else:
            packed = gguf.quantize(np.ascontiguousarray(values), kind)
            writer.add_tensor(_name(name), packed, raw_dtype=kind)
    close(writer)
    return path


def _name(name):
    if name in OUTER:
        return OUTER[name]
    _, _, layer, rest = name.split(".", 3)
    part, suffix = rest.rsplit(".", 1)
    return f"blk.{layer}.{INNER[part]}.{suffix}"


def write_byte_level(writer, raw, pre="default", padding=2):
    """Write a tokenizer.json's byte-level BPE, with some unused ids at the end."""
    tokens = sorted(raw["model"]["vocab"], key=raw["model"]["vocab"].get)
    special = {token["content"] for token in raw["added_tokens"] if token["special"]}
    types = [3 if token in special else 1 for token in tokens]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens + [f"[PAD{i}]" for i in range(padding)])
    writer.add_token_types(types + [5] * padding)
    merges = raw["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_chat_template("{{ messages[0].content }}{{ eos_token }}")


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
