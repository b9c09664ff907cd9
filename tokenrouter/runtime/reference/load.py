"""Models as functions from token ids to the logits of the next token, through `transformers` and nothing of ours.

A call is a pure function of its ids, so that its results may be remembered: the same few prefixes come again and again
when one request is run under many conditions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from tokenrouter.demo import student_dir, teacher_path
from tokenrouter.plan.structs import Model

Logits = Callable[[Sequence[int]], np.ndarray]  # ids -> [V], padding rows included


class Remembered:
    """A transformers model that answers each question once."""

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.known: dict[tuple[int, ...], np.ndarray] = {}
        self.states: dict[tuple[int, ...], np.ndarray] = {}

    def __call__(self, ids: Sequence[int]) -> np.ndarray:
        """Return the logits after `ids`, computed from scratch the first time."""
        key = tuple(ids)
        if key not in self.known:
            with torch.inference_mode():
                out = self.model(torch.tensor([key]), use_cache=False, logits_to_keep=1)
            self.known[key] = out.logits[0, -1].double().numpy()
        return self.known[key]

    def hidden(self, ids: Sequence[int]) -> np.ndarray:
        """Return what the output layer reads after `ids`, the state after the final norm: [H]."""
        key = tuple(ids)
        if key not in self.states:
            with torch.inference_mode():
                out = self.model.base_model(torch.tensor([key]), use_cache=False)
            self.states[key] = out.last_hidden_state[0, -1].double().numpy()
        return self.states[key]

    def embedding(self, token: int) -> np.ndarray:
        """Return a token's row of the input embedding: [H]."""
        with torch.inference_mode():
            row: Any = self.model.get_input_embeddings()(torch.tensor(token))
        return np.asarray(row.double().numpy())


def load(models: Sequence[Model], base: Path, dtype: torch.dtype) -> list[Logits]:
    """Return the models of a plan in `dtype`, whatever the plan says of it; those of one `use` are one."""
    loaded: dict[tuple[str, bool], Remembered] = {}

    def model(use: str, int8: bool = False) -> Remembered:
        if (use, int8) not in loaded:
            if use == "demo:small":
                made = _student(model("demo:large").model)
            else:
                made = _saved(teacher_path() if use == "demo:large" else base / use)
            if int8:
                _round(made)
            loaded[use, int8] = Remembered(made.to(dtype))
        return loaded[use, int8]

    return [model(declared.use, declared.quantize == "int8") for declared in models]


def _round(model: Any) -> None:
    """Let every linear layer's weight be what its int8 form stands for: 255 steps by output, the largest at an end."""
    for module in model.modules():
        if isinstance(module, torch.nn.Linear):
            weight = module.weight.detach().float().numpy()
            step = np.abs(weight).max(axis=1, keepdims=True) / np.float32(127)
            step[step == 0] = 1
            # A weight of its own: the head may be the embedding, which stays as it is.
            module.weight = torch.nn.Parameter(torch.from_numpy(np.rint(weight / step) * step))


def _saved(path: Path) -> Any:
    """Return the model of a directory, or of a GGUF file, whose tensors would stay packed without `dequantize`."""
    from transformers import AutoModelForCausalLM, GgufConfig

    if path.suffix != ".gguf":
        return AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="sdpa"
        )
    return AutoModelForCausalLM.from_pretrained(
        path.parent,
        gguf_file=path.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
        attn_implementation="sdpa",
    )


def _student(teacher: Any) -> Any:
    """Return the demo's small model: its own int8 layers, the teacher's embedding and head."""
    from transformers import LlamaConfig, LlamaForCausalLM

    stored = load_file(student_dir() / "student.safetensors")
    weights = {}
    for name, value in stored.items():
        if not name.endswith("_scale"):
            scale = stored.get(f"{name}_scale")
            weights[name] = value.float() if scale is None else value.float() * scale
    weights["model.embed_tokens.weight"] = teacher.get_input_embeddings().weight.detach().clone()
    weights["lm_head.weight"] = weights["model.embed_tokens.weight"]
    fields = json.loads((student_dir() / "config.json").read_text(encoding="utf-8"))
    own = ("tokenrouter", "architectures", "model_type", "dtype")
    config = LlamaConfig(**{k: f for k, f in fields.items() if k not in own})
    config._attn_implementation = "sdpa"
    student: Any = LlamaForCausalLM(config)
    student.load_state_dict(weights)
    return student


def texts(model: Model, base: Path) -> Callable[[int], tuple[str, bool]]:
    """Return the function from an id to its text, U+FFFD where its bytes are no whole character, and whether it is special."""
    from transformers import AutoTokenizer

    use = teacher_path() if model.use.startswith("demo:") else base / model.use
    if use.suffix == ".gguf":
        made: Any = AutoTokenizer.from_pretrained(use.parent, gguf_file=use.name).backend_tokenizer
    else:
        made = Tokenizer.from_file(str(use / "tokenizer.json"))
    special = {id_ for id_, added in made.get_added_tokens_decoder().items() if added.special}
    return lambda token: (str(made.decode([token], skip_special_tokens=False)), token in special)
