"""Plans of small automata on made-up models."""

from hashlib import sha256

from tokenrouter.compiler.emit import Tuning, emit
from tokenrouter.compiler.facts import Facts, Vocabulary
from tokenrouter.plan import structs as s

TABLE = tuple(f"t{i}".encode() for i in range(60))


def vocabulary(table=TABLE, special=(0, 2), template="{{ messages }}"):
    digest = sha256(repr((table, special, template)).encode()).hexdigest()
    return Vocabulary(digest, tuple(table), frozenset(special), template)


def facts(fingerprint="f", stop_ids=(2,), **more):
    given = {
        "family": "llama",
        "vocab_size": 64,
        "context": 128,
        "layers": 2,
        "hidden_size": 8,
        "kv_heads": 1,
        "head_dim": 4,
        "parameters": 1000,
        "vocabulary": vocabulary(),
    }
    return Facts(fingerprint=fingerprint, stop_ids=tuple(stop_ids), **(given | more))


def plan_of(auto, claims=(), **tuning):
    return emit(
        auto,
        [facts(f"fingerprint of {decl.name}") for decl in auto.models],
        Tuning(**({"max_active": 4, "kv_budget": 1 << 16} | tuning)),
        s.Provenance(source="p.route", digest="source", created="2026-11-29T12:00:00Z"),
        s.Surface(),
        list(claims),
        {decl.name: "digest" for decl in auto.heads},
    )
