"""Which hash covers which field of the plan: the table that `hash` reads, and nothing else decides.

`program`  what the policy means: the tokens that come out
`tuning`   how fast they come: windows, memory, prefill, task graphs, parallelism
`both`     a container whose parts say for themselves
`none`     names of places, times, estimates, what is told for people, and what the fingerprint implies
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tokenrouter.plan import structs as s

Part = Literal["program", "tuning", "both", "none"]
Struct = type[msgspec.Struct]

COVERED: dict[Struct, dict[str, Part]] = {
    s.Plan: {
        "plan_version": "none",
        "min_reader": "none",
        "producer": "none",
        "policy": "none",  # what a policy is called does not change what it means
        "program_hash": "none",
        "tuning_hash": "none",
        "models": "both",
        "tokenizer": "program",
        "params": "program",
        "vars": "program",
        "heads": "program",
        "start": "program",
        "programs": "program",
        "subservers": "tuning",  # built from the programs; what they add is how a step is carried out
        "windows": "both",
        "memory": "tuning",
        "claims": "program",
        "estimates": "none",
        "provenance": "none",
        "surface": "none",
    },
    s.Model: {
        "name": "program",
        "use": "none",
        "fingerprint": "program",
        "family": "none",  # this and the sizes below are implied by the fingerprint
        "dtype": "program",
        "quantize": "program",
        "tensor_parallel": "tuning",
        "gpus": "tuning",
        "cost": "program",
        "stop_ids": "program",
        "prefill": "tuning",
        "vocab_size": "none",
        "context": "program",  # the context limit ends a request
        "layers": "none",
        "hidden_size": "none",
        "kv_bytes_per_token": "tuning",
        "weight_bytes": "none",
    },
    s.Tokenizer: {
        "digest": "program",
        "size": "program",
        "eos_ids": "program",
        "template_from": "program",
    },
    s.Param: {
        "name": "program",
        "unit": "program",
        "value": "program",
        "low": "program",
        "high": "program",
    },
    s.Var: {"name": "program", "unit": "program", "value": "program"},
    s.Head: {
        "name": "program",
        "kind": "program",
        "file": "none",
        "digest": "program",
        "model": "program",
        "reads": "program",
    },
    s.Windows: {
        "max_active": "tuning",
        "table": "tuning",
        "max_wait_ms": "tuning",
        "objective": "program",
        "source": "none",
        "optimality_gap": "none",
        "gap_at": "none",
        "machine": "none",
        "note": "none",
        "system": "none",  # of it only the table decides when a batch is launched
    },
    s.Memory: {"page_size": "tuning", "budget_bytes": "tuning", "capacity_tokens": "tuning"},
    s.Claim: {"text": "program", "status": "program", "evidence": "none"},
}

# Of these every field counts, for whichever hash covers the place where they stand.
WHOLE: tuple[Struct, ...] = (
    s.Const,
    s.ParamRef,
    s.VarRef,
    s.Signal,
    s.HeadRef,
    s.Window,
    s.TokenIn,
    s.ClassIs,
    s.RequestField,
    s.Compare,
    s.Arith,
    s.AllOf,
    s.AnyOf,
    s.Not,
    s.Stay,
    s.To,
    s.Borrow,
    s.Share,
    s.Mix,
    s.Stop,
    s.Assign,
    s.Rule,
    s.Program,
    s.StartRule,
    s.Start,
    s.Admit,
    s.Resume,
    s.Gate,
    s.Extend,
    s.Sample,
    s.Signals,
    s.Route,
    s.CountDown,
    s.Commit,
    s.Park,
    s.Send,
    s.Finish,
    s.Edge,
    s.Subserver,
)

# No hash ever looks into these.
OUTSIDE: tuple[Struct, ...] = (
    s.BusySet,
    s.System,
    s.ModelLoad,
    s.Load,
    s.Visit,
    s.Estimates,
    s.RuleSource,
    s.Provenance,
    s.SurfaceSignal,
    s.SurfaceTest,
    s.Comment,
    s.Surface,
)
