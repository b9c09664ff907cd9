"""A resolved policy, whichever spelling it came in -> the text of a `.route` file of the same meaning, without model files.

It goes the way of `trc decompile`: through a plan whose models are stood in for, since the text says nothing of what is in them.
"""

from __future__ import annotations

from dataclasses import replace

from tokenrouter.compiler.analyse import analysed
from tokenrouter.compiler.compile import claim_of, provenance, surface
from tokenrouter.compiler.decompile import decompile
from tokenrouter.compiler.emit import Tuning, emit
from tokenrouter.compiler.facts import Facts
from tokenrouter.dsl import hir
from tokenrouter.models.config import ModelConfig, Rope
from tokenrouter.models.vocabulary import Vocabulary

_STANDIN = Facts(
    fingerprint="0" * 64,
    config=ModelConfig(
        family="llama",
        layers=1,
        hidden=1,
        intermediate=1,
        heads=1,
        kv_heads=1,
        head_dim=1,
        rope=Rope(1.0),
        rms_eps=1.0,
        tied=True,
        context=1 << 16,
        vocab_rows=1 << 24,
        dtype="float32",
        eos_ids=(0,),
    ),
    vocabulary=Vocabulary((b"a",), frozenset()),
    template=None,
    parameters=1,
)


def route_text(resolved: hir.Resolved, policy: hir.Policy) -> str:
    """Return the `.route` text of a sound policy of a file; raises PolicyError where the passes refuse it."""
    alone = replace(resolved, policies=(policy,))
    auto, _ = analysed(alone)
    plan = emit(
        auto,
        [_STANDIN] * len(auto.models),
        Tuning(),
        provenance(alone, auto),
        surface(alone, auto),
        [claim_of(auto, claim) for claim in auto.claims],
        {head.name: "0" * 64 for head in auto.heads},
    )
    return decompile(plan)
