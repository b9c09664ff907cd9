"""Plans of small automata on made-up models."""

from tokenrouter.compiler.emit import Tuning, emit
from tokenrouter.compiler.facts import Facts
from tokenrouter.models.config import ModelConfig, Rope
from tokenrouter.models.vocabulary import Vocabulary
from tokenrouter.plan import structs as s

TOKENS = tuple(f"t{i}".encode() for i in range(60))


def vocabulary(tokens=TOKENS, special=(0, 2)):
    return Vocabulary(tuple(tokens), frozenset(special))


def facts(fingerprint="f", stop_ids=(2,), rows=64, template="{{ messages }}", tokens=None):
    config = ModelConfig(
        family="llama",
        layers=2,
        hidden=8,
        intermediate=16,
        heads=2,
        kv_heads=1,
        head_dim=4,
        rope=Rope(10000.0),
        rms_eps=1e-5,
        tied=True,
        context=128,
        vocab_rows=rows,
        dtype="float32",
        eos_ids=tuple(stop_ids),
    )
    return Facts(fingerprint, config, tokens or vocabulary(), template, 1000)


def plan_of(auto, claims=(), found=None, **tuning):
    return emit(
        auto,
        found or [facts(f"fingerprint of {decl.name}") for decl in auto.models],
        Tuning(**({"max_active": 4, "kv_budget": 1 << 16} | tuning)),
        s.Provenance(source="p.route", digest="source", created="2026-11-29T12:00:00Z"),
        s.Surface(),
        list(claims),
        {decl.name: "digest" for decl in auto.heads},
    )
