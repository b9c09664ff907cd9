"""The plan: the typed record that the compiler hands to the runtime.

It knows nothing of policy source, torch, sockets or clocks. Every list that is «by model» has one entry a
model, in the order of `Plan.models`; every other reference to a model, param, var, head or node is an index
into its list. The published JSON Schema, the validator and docs/plan.md are made from these structs, so a
field's meaning is written here and nowhere else.

Units: tokens, bytes, milliseconds; probabilities and shares lie in [0, 1]; entropies are in nats.

INVARIANT: unknown fields are an error. A new field needs a default, a type never changes.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from tokenrouter.plan.predictions import BusySet, Estimates, Load, ModelLoad, System, Visit
from tokenrouter.plan.program import (
    AllOf,
    AnyOf,
    Arith,
    Assign,
    Borrow,
    ClassIs,
    Compare,
    Const,
    Go,
    HeadRef,
    Mix,
    Node,
    Not,
    ParamRef,
    Program,
    RequestField,
    Rule,
    Share,
    Signal,
    Start,
    StartRule,
    Stay,
    Stop,
    To,
    TokenIn,
    Value,
    VarRef,
    Window,
)
from tokenrouter.plan.taskgraph import (
    Admit,
    Commit,
    CountDown,
    Edge,
    Extend,
    Finish,
    Gate,
    Label,
    Park,
    Resume,
    Route,
    Sample,
    Send,
    Signals,
    Subserver,
    Task,
)

__all__ = [
    "MIN_READER",
    "PLAN_VERSION",
    "Admit",
    "AllOf",
    "AnyOf",
    "Arith",
    "Assign",
    "Borrow",
    "BusySet",
    "Claim",
    "ClassIs",
    "Comment",
    "Commit",
    "Compare",
    "Const",
    "CountDown",
    "Edge",
    "Estimates",
    "Extend",
    "Finish",
    "Gate",
    "Go",
    "Head",
    "HeadRef",
    "Label",
    "Load",
    "Memory",
    "Mix",
    "Model",
    "ModelLoad",
    "Node",
    "Not",
    "Param",
    "ParamRef",
    "Park",
    "Plan",
    "Program",
    "Provenance",
    "RequestField",
    "Resume",
    "Route",
    "Rule",
    "RuleSource",
    "Sample",
    "Send",
    "Share",
    "Signal",
    "Signals",
    "Start",
    "StartRule",
    "Stay",
    "Stop",
    "Subserver",
    "Surface",
    "SurfaceSignal",
    "SurfaceTest",
    "System",
    "Task",
    "To",
    "TokenIn",
    "Tokenizer",
    "Value",
    "Var",
    "VarRef",
    "Visit",
    "Window",
    "Windows",
]

PLAN_VERSION = 1
MIN_READER = 1


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of the policy, and what the runtime must know before its weights are read."""

    name: str  # as the policy calls it, snake_case
    use: str  # directory, GGUF file, hub name, `demo:large` or `dummy:SHAPE`; outside the hashes
    fingerprint: str  # sha256 over canonical config and tokenizer digests
    family: str  # `llama`, `qwen2`, `qwen3`, ...; anything else runs through transformers
    dtype: Literal["float64", "float32", "bfloat16", "float16"]  # of weights, activations and KV
    quantize: Literal["none", "int8"] = "none"  # of the weights
    tensor_parallel: int = 1  # ranks that share the model
    gpus: list[int] = []  # of each rank; where empty, those that are there in turn
    cost: float = 1.0  # relative cost of one token, as the policy states it
    stop_ids: list[int]  # end-of-sequence ids of this model alone
    prefill: Literal["eager", "lazy"]  # eager: read the prompt at admission; changes no token
    vocab_size: int  # rows of the head, padding included
    context: int  # most tokens of prompt and output together
    layers: int  # decoder layers
    hidden_size: int  # width of the hidden state
    kv_bytes_per_token: int  # over all layers, in `dtype`
    weight_bytes: int  # parameters times width of `dtype`; 0 where weights are not at hand


class Tokenizer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The vocabulary that all models share, compared as id -> bytes."""

    digest: str  # sha256 over the id -> bytes table and the special ids
    size: int  # ids that the tokenizer knows; rows above it are padding and are never sampled
    eos_ids: list[int]  # union over the models, ascending
    template_from: int  # model whose chat template and special tokens are used


class Param(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A dial of the policy, settable at compile time and per request."""

    name: str  # snake_case, as a request names it
    unit: str  # of `tokenrouter.signals`
    value: float | bool  # where a request gives none
    low: float | None = None  # least value allowed
    high: float | None = None  # largest value allowed


class Var(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable of one request, changed only by `set` on the rule that fired."""

    name: str  # snake_case
    unit: str  # of `tokenrouter.signals`
    value: float | bool  # at the start of a request


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trained router head: a batched map from a step's tensors to one probability."""

    name: str  # snake_case
    kind: Literal["linear", "mlp", "r2r", "python"]  # how the file is read
    file: str  # path or `package.module:Class`; outside the hashes
    digest: str  # sha256 of the file; of the name where the kind is `python`
    model: int  # the model whose step it reads
    reads: list[Literal["hidden", "logits", "token"]]  # what of a step it takes


class Windows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Batching windows by model and number of active requests."""

    max_active: int  # N goes from 1 to this
    table: list[list[int]]  # by model, then N - 1: requests that must wait before a launch
    max_wait_ms: float  # a batch is launched for a request that waited longer, whatever the window
    objective: str  # what the table is chosen for
    source: Literal["none", "analytic", "profile", "live"]  # of the step times behind the table
    optimality_gap: float | None = None  # share of the best policy's throughput that is lost
    gap_at: int | None = None  # the N of `optimality_gap`
    machine: str = ""  # that the step times hold for
    note: str = ""  # why all windows are 1, where nothing was solved
    system: System | None = None  # what the table was solved for; None where nothing was


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The KV budget, split jointly: every model's pool holds the same number of tokens."""

    page_size: int  # tokens a KV page
    budget_bytes: int  # for all pools together
    capacity_tokens: int  # tokens that each pool holds, a multiple of `page_size`


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bound that the policy states, and how far it holds."""

    text: str  # as in the policy, normalised
    status: Literal[
        "proved", "enforced", "expected", "not proved"
    ]  # the three words are never mixed
    evidence: str  # why, for people


class RuleSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a rule stands in the source, so that a trace can point at the line that decided."""

    model: int  # index into `Plan.models`
    rule: int  # index into its rules
    line: int  # from 1
    column: int  # from 1
    text: str  # the rule as written, on one line; one in Python as a `.route` file has it


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the plan comes from. Outside the hashes."""

    source: str  # file name without directories
    digest: str  # sha256 of the source text
    created: str  # RFC 3339, UTC
    rules: list[RuleSource] = []  # in source order


class SurfaceSignal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A derived signal's name and text."""

    name: str  # snake_case
    text: str  # its expression


class SurfaceTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `test` block, kept as text."""

    name: str  # as in the policy
    text: str  # its source


class Comment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A comment that is attached to a declaration."""

    anchor: str  # `model small`, `policy`, `rule small 0`, ...
    place: Literal["above", "end"]  # the lines before it, or the end of its line
    text: str  # with its `#`


class Surface(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What execution does not need and `trc decompile` must not lose. Outside the hashes."""

    source: str = ""  # the policy as one `.route` file, laid out, with what it imports
    signals: list[SurfaceSignal] = []  # derived signals
    tests: list[SurfaceTest] = []  # in source order
    unreached: list[
        str
    ] = []  # texts: models that are never reached, their rules, heads that none reads
    comments: list[Comment] = []  # in source order


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the runtime needs but the weights."""

    plan_version: int  # of this format
    min_reader: int  # the oldest reader version that understands it
    producer: str  # program and version
    policy: str  # name in the source
    program_hash: str  # sha256 of what the policy means
    tuning_hash: str  # sha256 of what only speed depends on
    models: list[Model]  # at least one
    tokenizer: Tokenizer  # shared by all models
    params: list[Param] = []  # dials
    vars: list[Var] = []  # request variables
    heads: list[Head] = []  # router heads
    start: Start  # the first decision
    programs: list[Program]  # by model
    subservers: list[Subserver]  # by model
    windows: Windows  # when a batch is launched
    memory: Memory  # KV pools
    claims: list[Claim] = []  # of the policy
    estimates: Estimates  # predictions
    provenance: Provenance  # where it comes from
    surface: Surface  # what only people need

    @property
    def context(self) -> int:
        """Tokens that all models read."""
        return min(model.context for model in self.models)

    @property
    def longest(self) -> int:
        """Tokens that a request may have, prompt and answer together."""
        return min(self.context, self.memory.capacity_tokens + 1)  # the last token is never read
