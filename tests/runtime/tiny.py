"""Toy plans over tiny real models: what the process tests run."""

import json

import msgspec

from tests.factories import save_model, vocabulary_size
from tests.runtime import toy
from tokenrouter.models import fingerprint, locate
from tokenrouter.plan import structs as s

FAMILIES = ("llama", "qwen2", "qwen3")


def save(root):
    """Three tiny models of three families, over one vocabulary."""
    return [
        save_model(root / family, family=family, seed=at, layers=1)
        for at, family in enumerate(FAMILIES)
    ]


def kv_bytes(config, dtype):
    """Bytes of keys and values that a token has in all layers."""
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    n_values = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * width
    return n_values * {"float64": 8, "float32": 4}[dtype]


def real(plan, paths, dtype="float64"):
    """A toy plan with tiny models in the toys' place."""
    models, stops = [], set()
    for model, path in zip(plan.models, paths, strict=False):
        config = json.loads((path / "config.json").read_text())
        eos = config["eos_token_id"]
        stop_ids = eos if isinstance(eos, list) else [eos]
        stops |= set(stop_ids)
        models.append(
            msgspec.structs.replace(
                model,
                use=str(path),
                fingerprint=fingerprint(locate(str(path), path)),
                family=config["model_type"],
                dtype=dtype,
                vocab_size=config["vocab_size"],
                stop_ids=stop_ids,
                layers=config["num_hidden_layers"],
                hidden_size=config["hidden_size"],
                kv_bytes_per_token=kv_bytes(config, dtype),
            )
        )
    tokenizer = s.Tokenizer(
        digest="", size=vocabulary_size(), eos_ids=sorted(stops), template_from=0
    )
    return msgspec.structs.replace(plan, models=models, tokenizer=tokenizer)


PLANS = {
    "ping_pong": lambda **f: toy.ping_pong(tau=2.0, **f),
    "borrow": lambda **f: toy.borrowing(most=2, tau=2.0, **f),
    "mixture": toy.mixture,
    "coin": toy.coin,
}
