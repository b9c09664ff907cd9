"""What a model is: its family, sizes and numerics, from config.json or a GGUF file's metadata."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenrouter.models import dummy
from tokenrouter.models.errors import ModelError
from tokenrouter.models.files import read_json
from tokenrouter.models.gguf import GgufHead, read_gguf
from tokenrouter.models.locate import Located
from tokenrouter.models.stops import gguf_stop_ids, stop_ids

OWN_FAMILIES = ("llama", "mistral", "qwen2", "qwen3")  # run by our decoder; others by transformers
DTYPES = ("float64", "float32", "bfloat16", "float16")


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary embedding. `scaling` holds the parameters of its kind under their Hugging Face names."""

    theta: float
    kind: str = "default"  # `default`, `linear`, `llama3`, `yarn`; others our decoder refuses
    scaling: dict[str, Any] = field(default_factory=dict)
    partial: float = 1.0  # share of a head's dimensions that turn


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One model, as far as compiler and runtime must know it before its weights are read."""

    family: str  # Hugging Face's `model_type`
    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    rope: Rope
    rms_eps: float
    tied: bool  # whether the head is the embedding
    context: int
    vocab_rows: int  # rows of the head, padding included
    dtype: str  # that the weights are stored in; quantised ones count as float32
    eos_ids: tuple[int, ...]  # ascending; of config and generation_config
    activation: str = "silu"
    windows: tuple[int | None, ...] = ()  # sliding window by layer; empty where no layer has one

    @property
    def is_own(self) -> bool:
        """Whether our decoder runs it; else transformers does."""
        return self.family in OWN_FAMILIES and self.activation == "silu"


def read_config(located: Located) -> ModelConfig:
    """Return a model's configuration; raises ModelError where it is incomplete."""
    config = _read(located)
    if config.kv_heads < 1 or config.heads % config.kv_heads:
        raise ModelError(
            f"`{located.path}`: {config.heads} attention heads cannot share {config.kv_heads} key heads evenly"
        )
    return config


def _read(located: Located) -> ModelConfig:
    if located.kind == "gguf":
        return _from_gguf(read_gguf(located.path))
    raw = (
        dummy.raw_config(located.path)
        if located.kind == "dummy"
        else read_json(located.path / "config.json")
    )
    return _from_json(raw, stop_ids(located), located.path)


def _from_json(raw: dict[str, Any], eos: tuple[int, ...], path: Path) -> ModelConfig:
    family = raw.get("model_type")
    if not isinstance(family, str):
        raise ModelError(f"`{path / 'config.json'}` has no `model_type`")
    text = raw.get("text_config")  # of models that also see or hear
    raw = {**raw, **text} if isinstance(text, dict) else raw

    def need(*names: str) -> Any:
        for name in names:
            if raw.get(name) is not None:
                return raw[name]
        raise ModelError(f"`{path / 'config.json'}` has no `{names[0]}`")

    hidden = int(need("hidden_size", "n_embd", "d_model"))
    heads = int(need("num_attention_heads", "n_head", "n_heads"))
    layers = int(need("num_hidden_layers", "n_layer", "n_layers"))
    dtype = str(raw.get("dtype") or raw.get("torch_dtype") or "float32").removeprefix("torch.")
    return ModelConfig(
        family=family,
        layers=layers,
        hidden=hidden,
        intermediate=int(raw.get("intermediate_size") or raw.get("n_inner") or 4 * hidden),
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or hidden // heads),
        rope=_rope(raw),
        rms_eps=float(raw.get("rms_norm_eps") or raw.get("layer_norm_eps") or 1e-6),
        tied=bool(raw.get("tie_word_embeddings", False)),
        context=int(raw.get("max_position_embeddings") or raw.get("n_positions") or 2048),
        vocab_rows=int(need("vocab_size")),
        dtype=dtype if dtype in DTYPES else "float32",
        eos_ids=eos,
        activation=str(raw.get("hidden_act", "silu")),
        windows=_windows(raw, family, layers),
    )


def _rope(raw: dict[str, Any]) -> Rope:
    """Read `rope_parameters` (transformers 5) or `rope_theta` and `rope_scaling` (before)."""
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(given, dict) or any(isinstance(v, dict) for v in given.values()):
        given = {}  # one set for each kind of layer: only transformers reads those
    theta = given.get("rope_theta", raw.get("rope_theta", 10000.0))
    kind = str(given.get("rope_type") or given.get("type") or "default")
    named = ("rope_theta", "rope_type", "type", "partial_rotary_factor")
    partial = given.get("partial_rotary_factor", raw.get("partial_rotary_factor"))
    return Rope(
        theta=float(theta),
        kind=kind,
        scaling={k: v for k, v in given.items() if k not in named},
        partial=float(1.0 if partial is None else partial),
    )


def _windows(raw: dict[str, Any], family: str, layers: int) -> tuple[int | None, ...]:
    window = raw.get("sliding_window")
    if window is None or raw.get("use_sliding_window", family == "mistral") is False:
        return ()
    kinds = raw.get("layer_types")
    if isinstance(kinds, list) and len(kinds) == layers:
        return tuple(int(window) if kind == "sliding_attention" else None for kind in kinds)
    from_layer = int(raw.get("max_window_layers") or 0) if family.startswith("qwen") else 0
    return tuple(int(window) if layer >= from_layer else None for layer in range(layers))


def _from_gguf(head: GgufHead) -> ModelConfig:
    if head.architecture not in OWN_FAMILIES:
        raise ModelError(
            f"`{head.path}` holds a model of architecture `{head.architecture}`; "
            f"GGUF files of {', '.join(OWN_FAMILIES)} can be read"
        )

    def need(key: str) -> Any:
        value = head.own(key)
        if value is None:
            raise ModelError(f"`{head.path}` has no `{head.architecture}.{key}`")
        return value

    hidden, heads = int(need("embedding_length")), int(need("attention.head_count"))
    head_dim = int(head.own("attention.key_length") or hidden // heads)
    rows = head.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in head.tensors else 0
    if not rows:
        raise ModelError(f"`{head.path}` has no weights")
    window = head.own("attention.sliding_window")
    layers = int(need("block_count"))
    return ModelConfig(
        family=head.architecture,
        layers=layers,
        hidden=hidden,
        intermediate=int(need("feed_forward_length")),
        heads=heads,
        kv_heads=int(head.own("attention.head_count_kv") or heads),
        head_dim=head_dim,
        rope=_gguf_rope(head, head_dim),
        rms_eps=float(need("attention.layer_norm_rms_epsilon")),
        tied="output.weight" not in head.tensors,
        context=int(need("context_length")),
        vocab_rows=rows,
        dtype="float32",
        eos_ids=gguf_stop_ids(head),
        windows=(int(window),) * layers if window else (),
    )


def _gguf_rope(head: GgufHead, head_dim: int) -> Rope:
    theta = float(head.own("rope.freq_base", 10000.0))
    partial = float(head.own("rope.dimension_count", head_dim)) / head_dim
    kind = str(head.own("rope.scaling.type", "none"))
    factor = head.own("rope.scaling.factor", head.own("rope.scale_linear"))
    if "rope_freqs.weight" in head.tensors:
        return Rope(theta, "factors", {}, partial)  # the file holds the divisors themselves
    if kind == "yarn":
        scaling = {
            "factor": float(factor),
            "original_max_position_embeddings": head.own("rope.scaling.original_context_length"),
        }
        return Rope(theta, "yarn", scaling, partial)
    if factor and float(factor) != 1.0:
        return Rope(theta, "linear", {"factor": float(factor)}, partial)
    return Rope(theta, partial=partial)
