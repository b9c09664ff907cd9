"""Messages between the front end and the subservers, and between subservers.

msgspec structs over msgpack, tagged by class name; nothing is ever unpickled. A sequence is the prompt followed by
the output; positions in it count from 0. `state.position` counts output tokens only.

Who sends what:
    front end -> subserver   Admit, Abort, Active, Windows, Flush, Drain, Inspect
    subserver -> subserver   Handoff
    subserver -> front end   Ready, Commits, Scores, Refused, Lost, Held, Gated, Tally, Report, Failed

Every subserver hears of every request by Admit, so a Handoff carries only what its receiver has not seen. The two
travel on different sockets: a Handoff that overtakes its Admit is held until that comes. Request numbers grow, and the
front end's messages keep their order, so one that is not known and not above the last Admit is over.

A request that goes on after a subserver's death is admitted again under a new number; whatever still travels under the
old one is dropped wherever it arrives.

INVARIANT: exactly one subserver owns a request, or one Handoff in flight does.
INVARIANT: the front end's copy (prompt, committed tokens, state after the last of them) is enough to go on anywhere.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec


class Sampling(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's sampling parameters; the same on every model."""

    seed: int = 0  # 64 bits, unsigned
    temperature: float = 0.0  # 0 is greedy, ties to the lowest id
    top_p: float = 1.0
    top_k: int = 0  # 0 is off
    min_p: float = 0.0
    max_tokens: int = 16  # 0 only for a prompt that is scored: the token that comes with its places is to be dropped
    ignore_eos: bool = False
    top_logprobs: int = 0  # most likely tokens that come with each committed one
    stop_ids: list[int] = []  # ids that end the request, beside the plan's `eos_ids`
    # What changes the choice and no signal; over the tokens of all models alike.
    presence_penalty: float = 0.0  # once for an id of the output
    frequency_penalty: float = 0.0  # for each time that an id is in the output
    repetition_penalty: float = 1.0  # on ids of prompt and output; 1 is off
    logit_bias: dict[int, float] = {}
    grammar: str = ""  # that the output follows, as `runtime.grammar` spells it; '' is none
    prompt_logprobs: int | None = None  # most likely tokens to tell of each place of the prompt


class RouteState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that routing knows of a request beside its tokens; small enough to travel with each of them."""

    owner: int  # model that decides the next position
    position: int = 0  # committed output tokens
    counts: list[int]  # committed output tokens by the model that wrote them
    switches: int = 0  # hand-offs so far
    since_switch: int = 0  # steps taken at `owner` since it was reached
    tried: int = 0  # bit set of the models that had their turn at this position
    home: int | None = None  # the model a borrowed stay returns to; None outside one
    remaining: int = 0  # tokens left of a borrowed stay
    until: int | None = None  # index into the owner's `Program.untils`
    vars: list[float] = []  # by `Plan.vars`; a bool is 0 or 1
    windows: list[
        list[list[float]]
    ] = []  # by model, by Window node in program order: its last n values, oldest first
    loads: list[
        dict[int, float]
    ] = []  # load signals read since the last commit: by step, by node of its program


class Admit(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A request exists. `state.owner` decides its next position; the others may read the prompt ahead."""

    request: int
    prompt: list[int]
    output: list[int] = []  # committed already, where a request goes on after a failure
    sampling: Sampling
    params: list[float]  # by `Plan.params`, this request's values; a bool is 0 or 1
    metadata: dict[str, str | float | bool] = {}
    state: RouteState
    epochs: list[int]  # of every subserver, as the front end knows them
    traced: bool = False  # whether each token carries the signals that decided
    queues: list[int] = []  # by model, as the front end knows them; [] where no rule reads load
    elapsed_ms: float = 0.0  # since the request was first admitted
    rank: int = 0  # lower ones go first, and give up their pages last


class Abort(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The request is over, here too: its pages are released and later messages about it are dropped."""

    request: int


class Active(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Requests that can reach a gate now: the N of the batching windows."""

    n: int


class Windows(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The receiver's row of a window table that is feasible as a whole; it replaces the one before."""

    windows: list[int]  # by number of active requests - 1


class Flush(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Nothing can arrive at any gate: all active requests wait at closed ones. Launch what waits."""


class Drain(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Finish what is here and end."""


class Inspect(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Answer with a Report."""

    check: bool = True  # whether to look, page by page, for what does not add up


class Handoff(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The receiver owns the request from now on."""

    request: int
    epoch: int  # of the receiver, as the sender knows it; an older one is dropped
    start: int  # position in the sequence of tokens[0]; equals what the receiver was sent before
    tokens: list[int]  # the suffix that the receiver has not seen
    seen: list[int]  # by model: sequence length that each subserver has been sent
    state: RouteState
    queues: list[int] = []  # by model, as the sender knows them; [] where no rule reads load


Place = tuple[float, list[tuple[int, float]]]  # log probability; the most likely ids with theirs


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """One committed token."""

    request: int
    token: int
    model: int
    rule: int | None  # of the model's program; None inside a borrowed stay
    logprob: float  # of the token under the raw distribution
    top: list[tuple[int, float]] = []  # the most likely ids and their log probabilities, best first
    signals: dict[str, float] = {}  # by signal text; only where the request is traced
    loads: list[
        dict[int, float]
    ] = []  # load signals by step at this position, dropped ones included, by node of its program
    prompt: list[
        Place
    ] = []  # of the prompt from its second token on; with the first token of a request that asks
    state: RouteState  # after this token
    finish: Literal["stop", "length"] | None = None


class Commits(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The tokens that one step kept."""

    model: int
    epoch: int
    tokens: list[Token]
    queue: int = 0  # requests that the model owns now; 0 where no rule reads load


class Ready(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The subserver has its weights and its pool and takes requests."""

    model: int
    epoch: int
    capacity_tokens: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The subserver cannot serve the request, ever; `reason` is for the client."""

    request: int
    model: int
    reason: str
    kind: Literal["too_long", "invalid"] = "too_long"


class Lost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The subserver cannot follow the request, as after a hand-off that leaves a gap: it must be admitted again."""

    request: int
    model: int


class Scores(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What some of a prompt's tokens were worth under the raw distribution of the model that reads it."""

    request: int
    start: int  # position in the prompt of places[0]; the first token has no place
    places: list[Place]


class Held(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Requests that the subserver owns and that cannot reach its gate for now: prefilling or preempted."""

    model: int
    epoch: int
    requests: list[int]


class Gated(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """So many requests wait at the sender's closed gate while it is idle; 0 where a batch was launched."""

    model: int
    epoch: int
    waiting: int


# Upper bounds of the buckets that admission delays are counted in, the last one open.
DELAY_BOUNDS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that led from one station to another. A station is a model, in or outside a borrowed stay."""

    home: int  # where the stay returns to; -1 outside a stay
    left: int  # steps left of the stay before this one; 0 outside, -1 where their number is open
    target: int  # model that decides next
    target_home: int
    target_left: int
    n: int  # steps
    kept: int  # of them, those that committed their candidate


class StepTime(msgspec.Struct, frozen=True, kw_only=True):
    """How long the latest steps of one batch size took; steps with prefill chunks in them are left out."""

    size: int
    after: bool = False  # in turn: of steps that followed another model's, from its end on
    n: int  # steps since the start
    median_ms: float  # of the latest ones


class Tally(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a subserver has counted since its start; sent now and then while it works."""

    model: int
    epoch: int
    steps: int
    n_active: int  # the N it last heard
    window: int  # B(N)
    waiting: int  # at its gate
    launches: dict[str, int]  # batches by reason: `gate.REASONS`
    batch_sizes: dict[int, int]  # batches by the requests that passed the gate with them
    delays: list[int]  # requests by time at the gate: `DELAY_BOUNDS_MS`, and one more
    delay_sum_ms: float
    entered: int  # requests that this model was the first owner of
    ended: int  # requests that ended here
    ended_tokens: int  # their committed tokens
    moves: list[Move]
    times: list[StepTime]


Reason = Literal["tokens", "requests", "scored", "context"]  # why a step was not captured
EAGER = get_args(Reason)


class Report(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a subserver holds at this moment; `problem` names what does not add up."""

    model: int
    epoch: int
    running: int  # requests that it owns
    pending: int  # requests that are away at a peer
    pages: int
    free: int
    kept: int  # pages that only the prefix cache keeps
    preempted: int  # since the start
    steps: int  # since the start
    problem: str = ""
    prefix_asked: int = 0  # tokens looked for in the prefix cache since the start
    prefix_found: int = 0  # of them, those that were there
    handoffs: list[tuple[int, int, int]] = []  # peer, rule (-1: none), how often since the start
    captured: list[
        tuple[int, int, int]
    ] = []  # requests, tokens, how often such a step was replayed
    eager: dict[str, int] = {}  # steps that no captured one held, by `Reason`
    phases: dict[str, float] = {}  # seconds by phase of the loop since the start: `phases.PHASES`


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The subserver could not come up, and ends."""

    model: int
    epoch: int
    reason: str


ToSubserver = Admit | Abort | Active | Windows | Flush | Drain | Inspect | Handoff
ToFrontEnd = Ready | Commits | Scores | Refused | Lost | Held | Gated | Tally | Report | Failed

encode = msgspec.msgpack.Encoder().encode
decode_to_subserver = msgspec.msgpack.Decoder(ToSubserver).decode
decode_to_front_end = msgspec.msgpack.Decoder(ToFrontEnd).decode
