"""Tiny random models with one real vocabulary, and plans over them: what tests run instead of checkpoints.

`save_model` writes a Hugging Face directory (config.json, model.safetensors, tokenizer.json with a chat template) that
transformers and the runtime both load. Weights are scaled so that entropy and the best token vary from step to step:
a policy over these models really goes back and forth. `Bench` holds a few of them and makes plans.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tokenrouter.plan import structs as s

if TYPE_CHECKING:
    from tokenrouter.compiler import ir

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
EOS = SPECIAL.index("<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT = """A policy says which model writes the next token. The small model writes until it is unsure of itself; then
the large one decides, and the request comes back. def area(width, height): return width * height  # 3 x 14 = 42
1 2 3 5 8 13 21 34 55 89. "Why?" she asked; "because it rains", he said. The river runs through the town, and the town
runs along the river: grün, blå, naïve, 東京, 🙂. Tell me a story about the sea. The sea is wide and the ship is small.
"""
MERGES = 56


@cache
def tokenizer() -> Tokenizer:
    """Return a byte-level BPE tokenizer of a few hundred tokens, made from `TEXT`."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=len(SPECIAL) + 256 + MERGES,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([TEXT], trainer)
    return made


def vocabulary_size() -> int:
    """Return the number of ids that the tokenizer knows."""
    return tokenizer().get_vocab_size()


def prompts(n: int, seed: int = 0, longest: int = 24) -> list[list[int]]:
    """Return `n` different prompts of plain text, 1 to `longest` tokens long, the same for the same seed."""
    ids = tokenizer().encode(TEXT).ids
    rng = random.Random(seed)
    out = []
    for _ in range(n):
        length = rng.randint(1, longest)
        start = rng.randrange(len(ids) - length)
        out.append(ids[start : start + length])
    return out


def save_tokenizer(path: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer().save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL[EOS],
        "pad_token": "<|pad|>",
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 512,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config, indent=1))


def save_model(
    path: Path,
    *,
    family: str = "llama",
    seed: int = 0,
    layers: int = 2,
    hidden: int = 32,
    padding: int = 0,
    eos: tuple[int, ...] = (EOS,),
    tied: bool = False,
    context: int = 256,
    temper: float = 3.0,
) -> Path:
    """Write a tiny random model with its tokenizer; `padding` adds rows to its head, `temper` spreads its logits."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        family,
        vocab_size=vocabulary_size() + padding,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=hidden // 4,
        max_position_embeddings=context,
        tie_word_embeddings=tied,
        eos_token_id=list(eos) if len(eos) > 1 else eos[0],
        bos_token_id=None,
        pad_token_id=3,
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        _spread(model, hidden, temper)
    save_tokenizer(path)
    config.save_pretrained(path)
    weights = {k: v for k, v in model.state_dict().items() if not (tied and k == "lm_head.weight")}
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def _spread(model: torch.nn.Module, hidden: int, temper: float) -> None:
    """Draw weights anew: large enough to matter at every layer, with a few loud dimensions in the last norm.

    Loud dimensions make the logits' spread, and with it the entropy, depend on what was read.
    """
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.copy_(1 + 0.2 * torch.randn_like(weight))
            elif name.endswith("bias"):
                weight.copy_(0.3 * torch.randn_like(weight))
            else:
                loudness = 3.0 if "o_proj" in name or "down_proj" in name else 1.0
                weight.copy_(loudness * torch.randn_like(weight) * weight.shape[-1] ** -0.5)
        embedding = model.get_input_embeddings().weight
        head = model.get_output_embeddings().weight
        tied = head is embedding
        # A tied head would mostly repeat what it reads if the embedding were as loud as the layers.
        width = 0.1 if tied else 1.0
        embedding.copy_(width * torch.randn_like(embedding))
        if not tied:
            head.copy_(torch.randn_like(head))
        loud = torch.rand(hidden) < 0.15
        loud[0] = True
        scale = torch.where(loud, 2.5, 0.35) * temper / (3.0 * width)
        model.get_submodule("model.norm").weight.copy_(scale)


def save_head(
    path: Path, kind: str, *, hidden: int = 32, top: int = 20, width: int = 12, seed: int = 0
) -> Path:
    """Write a tiny random head whose probability goes up and down over the tiny models' steps."""
    rng = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}

    def affine(name: str, rows: int, columns: int, loud: float = 1.0) -> None:
        scale = loud * columns**-0.5
        tensors[f"{name}.weight"] = scale * torch.randn(rows, columns, generator=rng)
        tensors[f"{name}.bias"] = 0.1 * torch.randn(rows, generator=rng)

    def norm(name: str) -> None:
        tensors[f"{name}.weight"] = 1 + 0.2 * torch.randn(width, generator=rng)
        tensors[f"{name}.bias"] = 0.1 * torch.randn(width, generator=rng)

    metadata = {"tokenrouter_head": "1", "kind": kind}
    if kind == "linear":
        affine("layers.0", 1, hidden, 2.0)
    elif kind == "mlp":
        affine("layers.0", width, hidden, 2.0)
        affine("layers.1", 6, width, 2.0)
        affine("layers.2", 1, 6, 3.0)
        metadata["activations"] = "relu,gelu"
    else:
        affine("logits", hidden, top)
        affine("combine", width, 3 * hidden, 2.0)
        tensors["combine.weight"][:, hidden : 2 * hidden] *= 8.0  # tied embeddings are small
        affine("input", width, width)
        for at in range(2):
            norm(f"blocks.{at}.norm")
            affine(f"blocks.{at}.up", 4 * width, width)
            affine(f"blocks.{at}.down", width, 4 * width)
        norm("output.norm")
        affine("output", 1, width, 2.0)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path, metadata=metadata)
    return path


def head_kind(body: str) -> str:
    """Return the kind of a head by the text of its declaration."""
    named = re.search(r"\bkind\s+(\w+)", body)
    if named:
        return named[1]
    return "r2r" if re.search(r"\blogits\b", body) else "mlp"


def plan_from_ir(auto: ir.Automaton, max_active: int = 32, kv_budget: int = 8 << 20) -> s.Plan:
    """Return the plan of a policy in the compiler's IR whose `use` fields are saved directories.

    What the passes find fault with runs all the same: a runtime must not depend on them.
    """
    from tokenrouter.compiler import emit, gather, pipeline

    auto, _ = pipeline.run(auto)
    facts = gather.gather(auto, Path())
    digests = gather.head_digests(auto, Path())
    provenance = s.Provenance(source="ir", digest="", created="2026-01-01T00:00:00Z")
    tuning = emit.Tuning(max_active=max_active, kv_budget=kv_budget)
    return emit.emit(auto, facts, tuning, provenance, s.Surface(), [], digests)


@dataclass(frozen=True)
class Bench:
    """Saved tiny models by the names that policies use for them."""

    root: Path
    models: Mapping[str, Path]
    heads: Mapping[str, Path]  # by kind; they fit all of the models

    def text(self, policy: str) -> str:
        """Return a policy's text with every model that it declares replaced by a tiny one, in the plain dtype; heads too."""

        def declare(found: re.Match[str]) -> str:
            name, body = found["name"], found["body"]
            body = re.sub(r'use\s+"[^"]*"', f'use "{self.models[name]}"', body)
            body = re.sub(r"\bdtype\s+\w+", "", body)
            return f"model {name} {{{body}}}"

        def point(found: re.Match[str]) -> str:
            body = found[0]
            return re.sub(r'file\s+"[^"]*"', f'file "{self.heads[head_kind(body)]}"', body)

        policy = re.sub(r"^head\s+\w+\s*\{.*\}$", point, policy, flags=re.M)
        return re.sub(r"^model\s+(?P<name>\w+)\s*\{(?P<body>[^}]*)\}", declare, policy, flags=re.M)


def save_bench(root: Path) -> Bench:
    """Write three models of three families, with other paddings and end-of-sequence ids, over one vocabulary."""
    return Bench(
        root,
        {
            "small": save_model(root / "small", family="llama", seed=1, tied=True),
            "large": save_model(root / "large", family="qwen2", seed=2, padding=13, eos=(EOS, 0)),
            "half": save_model(root / "half", family="qwen3", seed=3, padding=4),
        },
        {
            kind: save_head(root / f"heads/{kind}.safetensors", kind, seed=at)
            for at, kind in enumerate(("linear", "mlp", "r2r"))
        },
    )
