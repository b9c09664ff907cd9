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

PLAN_VERSION = 1
MIN_READER = 1

Value = bool | float | str


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model of the policy, and what the runtime must know before its weights are read."""

    name: str  # as the policy calls it, snake_case
    use: str  # directory, GGUF file, hub name or `demo:large`; outside the hashes
    fingerprint: str  # sha256 over canonical config and tokenizer digests
    family: str  # `llama`, `qwen2`, `qwen3`, ...; anything else runs through transformers
    dtype: Literal["float64", "float32", "bfloat16", "float16"]
    quantize: Literal["none", "int8"] = "none"
    tensor_parallel: int = 1
    cost: float = 1.0  # relative cost of one token, as the policy states it
    stop_ids: list[int]  # end-of-sequence ids of this model alone
    prefill: Literal["eager", "lazy"]  # eager: read the prompt at admission; changes no token
    vocab_size: int  # rows of the head, padding included
    context: int  # most tokens of prompt and output together
    layers: int
    hidden_size: int
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

    name: str
    unit: str
    value: float | bool
    low: float | None = None
    high: float | None = None


class Var(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable of one request, changed only by `set` on the rule that fired."""

    name: str
    unit: str
    value: float | bool


class Head(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A trained router head: a batched map from a step's tensors to one probability."""

    name: str
    kind: Literal["linear", "mlp", "r2r", "python"]
    file: str  # path or `package.module:Class`; outside the hashes
    digest: str  # sha256 of the file; of the name where the kind is `python`
    model: int  # the model whose step it reads
    reads: list[Literal["hidden", "logits", "token"]]


# --- Expressions: a program's nodes form one list in dependency order; operands are indices below their user.


class Const(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="const",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """A literal in base units."""

    value: Value
    unit: str


class ParamRef(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="param",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """The request's value of a param."""

    param: int


class VarRef(
    msgspec.Struct, frozen=True, kw_only=True, tag="var", tag_field="op", forbid_unknown_fields=True
):
    """The value of a request variable before this step's `set`."""

    var: int


class Signal(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="signal",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """A signal of `tokenrouter.signals` by its name, with its integer arguments."""

    name: str
    args: list[
        int
    ] = []  # k of mass(k), the id of column(ID), the model of count(M), share(M), queue(M)


class HeadRef(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="head",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """The output of a router head."""

    head: int


class Window(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="window",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """An aggregate of a numeric node over the last `n` rule-evaluated steps at this model, this one included."""

    kind: Literal["mean", "ewma", "max"]
    of: int
    n: int


class TokenIn(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="token_in",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """Whether the candidate's text is one of these."""

    texts: list[str]


class ClassIs(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="class_is",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """Whether the candidate's text falls into a lexical class."""

    name: Literal["code", "number", "word", "space", "newline", "punct", "special"]


class RequestField(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="request",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """A value of the metadata that the client sent; `default` where it sent none."""

    name: str
    default: Value


class Compare(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="compare",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """A comparison of two nodes of one type."""

    sign: Literal["<", "<=", ">", ">=", "==", "!="]
    left: int
    right: int


class Arith(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="arith",
    tag_field="op",
    forbid_unknown_fields=True,
):
    """Arithmetic on two numbers; x / 0 is 0, so that no guard is ever NaN."""

    sign: Literal["+", "-", "*", "/"]
    left: int
    right: int


class AllOf(
    msgspec.Struct, frozen=True, kw_only=True, tag="all", tag_field="op", forbid_unknown_fields=True
):
    """True where every operand is."""

    of: list[int]


class AnyOf(
    msgspec.Struct, frozen=True, kw_only=True, tag="any", tag_field="op", forbid_unknown_fields=True
):
    """True where some operand is."""

    of: list[int]


class Not(
    msgspec.Struct, frozen=True, kw_only=True, tag="not", tag_field="op", forbid_unknown_fields=True
):
    """The negation of a bool node."""

    of: int


Node = (
    Const
    | ParamRef
    | VarRef
    | Signal
    | HeadRef
    | Window
    | TokenIn
    | ClassIs
    | RequestField
    | Compare
    | Arith
    | AllOf
    | AnyOf
    | Not
)


# --- Actions: an action is «keep the candidate or drop it» times «who decides the next position».


class Stay(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="stay",
    tag_field="to",
    forbid_unknown_fields=True,
):
    """The same model decides next."""


class To(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="model",
    tag_field="to",
    forbid_unknown_fields=True,
):
    """`model` decides next: `commit then M` where the candidate is kept, `retry M` where it is dropped."""

    model: int


class Borrow(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="borrow",
    tag_field="to",
    forbid_unknown_fields=True,
):
    """`model` writes up to `most` tokens without its rules being asked, then the request comes back here."""

    model: int
    most: int  # node of the rule's own program; below 1 the rule is passed over
    until: int | None = (
        None  # index into `Program.untils` of the borrowed model; the token it holds on is kept
    )


class Share(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One component of a mixture."""

    model: int
    weight: float  # normalised: the weights of a mixture sum to 1


class Mix(
    msgspec.Struct, frozen=True, kw_only=True, tag="mix", tag_field="to", forbid_unknown_fields=True
):
    """The next model is drawn from the request's own random stream."""

    weights: list[Share]


class Stop(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="stop",
    tag_field="to",
    forbid_unknown_fields=True,
):
    """The request ends with this token, finish reason `stop`."""


Go = Stay | To | Borrow | Mix | Stop


class Assign(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`set NAME = EXPR`: all of a rule's assignments read the old values."""

    var: int
    value: int  # node


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A guarded action; the first rule of a program whose guard holds fires."""

    when: int | None  # bool node; None is `otherwise`
    keep: bool  # whether the candidate is committed
    go: Go
    sets: list[Assign] = []
    source: Literal["policy", "enforced", "fallback"] = "policy"  # who wrote the rule


class Program(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A model's route program: what a step must expose and what is decided from it."""

    nodes: list[Node] = []  # only what the rules and untils need, shared subexpressions once
    rules: list[Rule] = []  # empty where the model is only borrowed from
    untils: list[int] = []  # bool nodes that `Borrow.until` of other models refers to


class StartRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A guarded choice of the first model."""

    when: int | None
    go: To | Mix


class Start(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who decides the first position; guards read prompt signals, params and request fields only."""

    nodes: list[Node] = []
    rules: list[StartRule]


# --- Task graphs: walked by the subserver as they stand. Ids are unique within one graph.


class Admit(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="admit",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """A client request comes in; `eager` reads its prompt at once also where another model owns it."""

    id: str
    prefill: Literal["eager", "lazy"]


class Resume(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="resume",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """A peer's message brings a request and the tokens that are new here."""

    id: str


class Gate(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="gate",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The batching window: `Windows.table[model][N - 1]` requests wait before a launch."""

    id: str


class Extend(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="extend",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The unseen tokens, one or many, go through the model."""

    id: str
    hidden: bool  # whether the last hidden state is returned, for a head


class Sample(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="sample",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """A candidate a request. Leaves by `borrowed` or `own`."""

    id: str


class Signals(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="signals",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The nodes of this model's program are evaluated."""

    id: str


class Route(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="route",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The first rule that holds gives the action. Leaves by `keep` or `drop`."""

    id: str


class CountDown(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="count_down",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """One token of a borrowed stay is spent; at the end, or where its `until` holds, the request turns home."""

    id: str


class Commit(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="commit",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The candidate joins the output. Leaves by `stay`, `leave` or `ended`."""

    id: str


class Park(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="park",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The request is marked pending; its pages and its place stay."""

    id: str


class Send(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="send",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The suffix that the peer has not seen goes to it."""

    id: str
    peers: list[int]  # models that this graph may send to, ascending


class Finish(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="finish",
    tag_field="task",
    forbid_unknown_fields=True,
):
    """The request ends and its pages are released."""

    id: str


Task = (
    Admit
    | Resume
    | Gate
    | Extend
    | Sample
    | Signals
    | Route
    | CountDown
    | Commit
    | Park
    | Send
    | Finish
)

Label = Literal["next", "own", "borrowed", "keep", "drop", "stay", "leave", "ended"]


class Edge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that leave task `source` by `label` go on to task `target`."""

    source: str
    label: Label
    target: str


class Subserver(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The task graph of one model."""

    tasks: list[Task]
    edges: list[Edge]


class Windows(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Batching windows by model and number of active requests."""

    max_active: int  # N goes from 1 to this
    table: list[list[int]]  # by model, then N - 1: requests that must wait before a launch
    max_wait_ms: float
    objective: str
    source: Literal["none", "analytic", "profile", "live"]
    optimality_gap: float | None = None  # share of the best policy's throughput that is lost


class Memory(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The KV budget, split jointly: every model's pool holds the same number of tokens."""

    page_size: int  # tokens a KV page
    budget_bytes: int  # for all pools together
    capacity_tokens: int  # tokens that each pool holds, a multiple of `page_size`


class Claim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A bound that the policy states, and how far it holds."""

    text: str  # as in the policy, normalised
    status: Literal["proved", "enforced", "expected", "not proved"]
    evidence: str


class Visit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is predicted of one model."""

    share: float  # of the committed tokens
    handoffs_per_token: float
    reached: float  # probability that a request comes here at all


class Estimates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Predictions, from measured or assumed probabilities: always `expected`, never a promise."""

    source: Literal["assumed", "profile"]
    by_model: list[Visit]
    cost_per_token: float
    tokens_per_s: list[float] = []  # by N - 1; empty where no step times are known
    rules: list[
        list[float]
    ] = []  # by model, by rule: share of the model's decisions on which it fires


class RuleSource(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a rule stands in the source, so that a trace can point at the line that decided."""

    model: int
    rule: int
    line: int
    column: int
    text: str


class Provenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the plan comes from. Outside the hashes."""

    source: str  # file name without directories
    digest: str  # sha256 of the source text
    created: str  # RFC 3339, UTC
    rules: list[RuleSource] = []


class SurfaceSignal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A derived signal's name and text."""

    name: str
    text: str


class SurfaceTest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `test` block, kept as text."""

    name: str
    text: str


class Comment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A comment that is attached to a declaration."""

    anchor: str  # `model small`, `policy`, `rule small 0`, ...
    place: Literal["above", "end"]
    text: str


class Surface(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What execution does not need and `trc decompile` must not lose. Outside the hashes."""

    signals: list[SurfaceSignal] = []
    tests: list[SurfaceTest] = []
    unreached: list[str] = []  # text of models that are declared and never reached
    comments: list[Comment] = []


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the runtime needs but the weights."""

    plan_version: int
    min_reader: int
    producer: str
    policy: str
    program_hash: str
    tuning_hash: str
    models: list[Model]
    tokenizer: Tokenizer
    params: list[Param] = []
    vars: list[Var] = []
    heads: list[Head] = []
    start: Start
    programs: list[Program]  # by model
    subservers: list[Subserver]  # by model
    windows: Windows
    memory: Memory
    claims: list[Claim] = []
    estimates: Estimates
    provenance: Provenance
    surface: Surface
