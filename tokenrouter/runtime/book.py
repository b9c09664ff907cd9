"""The front end's record of its requests: the one authority on what was committed, and on what goes on after a failure.

It knows nothing of processes, sockets or clocks; messages leave through `send`. A request has a number of its own, which
clients see, and one on the wire, which changes each time it is admitted again: whatever a dead or confused subserver
still says under an old number falls on nothing.

INVARIANT: a request's tokens are delivered in order, each once, whatever order the subservers' messages come in.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from tokenrouter.plan.nodes import reads_load
from tokenrouter.plan.structs import Plan, Signal, Value
from tokenrouter.runtime.checks import sampling_fault
from tokenrouter.runtime.errors import RequestRefused
from tokenrouter.runtime.gate import infeasible_count
from tokenrouter.runtime.messages import (
    Abort,
    Active,
    Admit,
    Commits,
    Flush,
    Gated,
    Held,
    Place,
    Ready,
    RouteState,
    Sampling,
    Scores,
    Token,
    ToSubserver,
    Windows,
)
from tokenrouter.runtime.start import first_owner
from tokenrouter.runtime.state import initial, limits

MOST_LOSSES = 8  # of one request
LONG = 512  # tokens of a prompt that takes a model several batches
STEP = 64  # later requests that one step of priority can let pass, so that overtaking has an end


@dataclass(eq=False, slots=True)
class Entry:
    """One request as the front end knows it."""

    request: int
    prompt: list[int]
    sampling: Sampling
    params: list[float]
    metadata: dict[str, Value]
    traced: bool
    rank: int  # the request's number, shifted by its priority
    state: RouteState  # after the last committed token
    output: list[int] = field(default_factory=list)
    admitted_ms: float | None = None  # when it was first admitted
    wire: int | None = None  # None until it is admitted
    places: list[Place | None] = field(
        default_factory=list
    )  # of the prompt from its second token on, where they are asked for; None until known
    losses: int = 0  # how often a subserver could not follow it
    early: dict[int, Token] = field(default_factory=dict)  # by position: overtook an earlier one


class Book:
    """All requests of one plan, from submission to their last token."""

    def __init__(
        self,
        plan: Plan,
        send: Callable[[int, ToSubserver], None],
        max_waiting: int = 1024,
        now_ms: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.now_ms = now_ms
        self._queues = [0] * len(plan.models) if reads_load(plan) else []  # as last told
        self.plan = plan
        self.send = send
        self.max_waiting = max_waiting
        self.context = plan.context
        self.capacity = plan.memory.capacity_tokens  # of the smallest pool; Ready may lower it
        self.epochs = [0] * len(plan.models)  # 0 until the first Ready
        self.up = [False] * len(plan.models)
        self.entries: dict[int, Entry] = {}  # by request
        self.waiting: list[Entry] = []  # by rank
        self._by_wire: dict[int, Entry] = {}
        self._held: dict[int, set[int]] = {}  # by model: wire numbers that cannot reach its gate
        self._gated = [0] * len(plan.models)  # requests at a closed gate
        self._table: list[list[int]] | None = None  # the plan's, where None
        self._requests = 0
        self._wires = 0
        self._n_active = 0  # as last told

    @property
    def longest(self) -> int:
        """The most tokens of prompt and output together that a request may ask for."""
        return min(self.context, self.capacity + 1)  # the last token is never read

    @property
    def n_running(self) -> int:
        """Requests that are admitted and not over."""
        return len(self._by_wire)

    def submit(
        self,
        prompt: list[int],
        sampling: Sampling,
        params: Mapping[str, float | bool] | None = None,
        metadata: Mapping[str, Value] | None = None,
        *,
        traced: bool = False,
        priority: int = 0,  # lower ones go sooner
    ) -> Entry:
        """Return the new request, admitted or waiting; raises RequestRefused."""
        self._check(prompt, sampling)
        if len(self.waiting) >= self.max_waiting:
            raise RequestRefused(
                f"{len(self.waiting)} requests are waiting already; try again later", "overloaded"
            )
        values = self._params(params or {})
        fields = dict(metadata or {})
        loads = {
            at: float(self._queues[node.args[0]])
            for at, node in enumerate(self.plan.start.nodes)
            if isinstance(node, Signal) and node.name == "queue"
        }
        owner = first_owner(self.plan, sampling.seed, len(prompt), values, fields, loads)
        state = initial(self.plan, owner)
        if self._queues:
            state = msgspec.structs.replace(state, loads=[loads])
        self._requests += 1
        entry = Entry(
            request=self._requests,
            prompt=prompt,
            sampling=sampling,
            params=values,
            metadata=fields,
            traced=traced,
            rank=self._requests + STEP * priority,
            state=state,
            places=[] if sampling.prompt_logprobs is None else [None] * (len(prompt) - 1),
        )
        self.entries[entry.request] = entry
        insort(self.waiting, entry, key=lambda each: (each.rank, each.request))
        self._admit_waiting()
        return entry

    def _check(self, prompt: list[int], sampling: Sampling) -> None:
        if not prompt:
            raise RequestRefused("the prompt is empty")
        size = self.plan.tokenizer.size
        wrong = next((token for token in prompt if not 0 <= token < size), None)
        if wrong is not None:
            raise RequestRefused(f"token {wrong} is not in the vocabulary of {size}")
        fault = sampling_fault(sampling, size)
        if fault is not None:
            raise RequestRefused(fault)
        if len(prompt) + min(sampling.max_tokens, 1) > self.context:
            raise RequestRefused(
                f"the prompt has {len(prompt)} tokens and leaves no room in the context of {self.context}",
                "too_long",
            )
        needed = limits(self.plan).cached(len(prompt), sampling)
        if needed > self.capacity:
            raise RequestRefused(
                f"prompt and output may take {needed} tokens, and the smallest KV pool holds {self.capacity}; "
                "ask for fewer, or compile the plan with more memory",
                "too_long",
            )

    def _params(self, given: Mapping[str, float | bool]) -> list[float]:
        known = {param.name for param in self.plan.params}
        for name in given:
            if name not in known:
                raise RequestRefused(f"the policy has no param `{name}`")
        values = []
        for param in self.plan.params:
            value = given.get(param.name, param.value)
            if isinstance(value, bool) != isinstance(param.value, bool):
                raise RequestRefused(f"param `{param.name}` does not take {value!r}")
            low = float("-inf") if param.low is None else param.low
            high = float("inf") if param.high is None else param.high
            if not low <= value <= high:
                raise RequestRefused(
                    f"param `{param.name}` is {value:g}, outside {low:g} to {high:g}"
                )
            values.append(float(value))
        return values

    def ready(self, message: Ready) -> None:
        """A subserver is up: for the first time, or again, and then what it knew is lost."""
        if self.up[message.model] and self.epochs[message.model] == message.epoch:
            return  # it has said so before
        again = self.epochs[message.model] > 0
        self.epochs[message.model] = message.epoch
        self.up[message.model] = True
        self.capacity = min(self.capacity, message.capacity_tokens)
        self._held.pop(message.model, None)
        self._n_active = -1  # a new subserver has not heard it
        if self._table is not None:
            self.send(message.model, Windows(windows=self._table[message.model]))
        if again:
            for entry in list(self._by_wire.values()):
                self._leave(entry, tell=range(len(self.up)))
                self._admit(entry)
        self._admit_waiting()

    def down(self, model: int) -> None:
        """A subserver is gone; nothing is admitted until it is back, the others go on meanwhile."""
        self.up[model] = False
        self._gated[model] = 0

    def commits(self, message: Commits | Scores) -> list[Token]:
        """Return the tokens that can be delivered now, under the requests' own numbers."""
        if isinstance(message, Scores):
            return self._scored(message)
        if self._queues:
            self._queues[message.model] = message.queue
        delivered: list[Token] = []
        for token in message.tokens:
            entry = self._by_wire.get(token.request)
            if entry is None:
                continue  # over, or admitted again since
            entry.early[token.state.position] = token
            delivered += self._due(entry)
        return delivered

    def _due(self, entry: Entry) -> list[Token]:
        """Return what can be delivered of one request: nothing before its prompt is scored, so that it can begin anew."""
        delivered: list[Token] = []
        if None in entry.places:
            return delivered
        began = not entry.output
        while (due := entry.early.pop(len(entry.output) + 1, None)) is not None:
            prompt = [] if entry.output else [place for place in entry.places if place is not None]
            entry.output.append(due.token)
            entry.state = due.state
            delivered.append(msgspec.structs.replace(due, request=entry.request, prompt=prompt))
            if due.finish is not None:
                self._end(entry, tell=[m for m in range(len(self.up)) if m != due.model])
        if began and entry.output and len(entry.prompt) > LONG:
            self._admit_waiting()  # it has been read
        return delivered

    def _scored(self, message: Scores) -> list[Token]:
        entry = self._by_wire.get(message.request)
        if entry is None or None not in entry.places:
            return []
        at = message.start - 1
        if at + len(message.places) > len(entry.places):
            return []
        entry.places[at : at + len(message.places)] = message.places
        return self._due(entry)

    def told(self, message: Held | Gated) -> None:
        """Note which requests cannot reach a gate for now, or how many wait at a closed one."""
        if message.epoch != self.epochs[message.model]:
            return
        if isinstance(message, Held):
            self._held[message.model] = set(message.requests)
            self._tell_active()
        else:
            self._gated[message.model] = message.waiting
            self._flush()

    def _flush(self) -> None:
        """Where all active requests wait at closed gates, nothing can arrive at any of them: open them.

        What was told may be old by now. Then a batch is smaller than it should be, and that is all.
        """
        if sum(self._gated) >= max(self._n_active, 1):
            for model, waiting in enumerate(self._gated):
                if waiting:
                    self.send(model, Flush())

    def set_windows(self, table: list[list[int]]) -> None:
        """Give every subserver its row of another table; one that is not feasible for each of its counts is an error."""
        assert len(table) == len(self.up), table
        n = infeasible_count(table)
        assert n is None, f"the windows for {n} active requests could stop for ever: {table}"
        self._table = table
        for model, row in enumerate(table):
            if self.up[model]:
                self.send(model, Windows(windows=row))

    def wire_of(self, request: int) -> int | None:
        """Return the number under which subservers know a request now."""
        entry = self.entries.get(request)
        return None if entry is None else entry.wire

    def refused(self, wire: int) -> Entry | None:
        """End a request that a subserver refuses; None where it is over already."""
        entry = self._by_wire.get(wire)
        if entry is not None:
            self._end(entry, tell=range(len(self.up)))
        return entry

    def lost(self, wire: int) -> Entry | None:
        """Admit a request again that a subserver cannot follow; one for which that helps no more ends, and is returned."""
        entry = self._by_wire.get(wire)
        if entry is None:
            return None
        entry.losses += 1
        if entry.losses > MOST_LOSSES:
            self._end(entry, tell=range(len(self.up)))
            return entry
        self._leave(entry, tell=range(len(self.up)))
        self._admit(entry)
        return None

    def abort(self, request: int) -> None:
        """End a request everywhere; one that is over is no error."""
        entry = self.entries.get(request)
        if entry is None:
            return
        if entry.wire is None:
            self.waiting.remove(entry)
            del self.entries[request]
            return
        self._end(entry, tell=range(len(self.up)))

    def _end(self, entry: Entry, tell: range | list[int]) -> None:
        self._leave(entry, tell)
        del self.entries[entry.request]
        self._admit_waiting()

    def _leave(self, entry: Entry, tell: range | list[int]) -> None:
        """Take a request off the wire; its number there is never used again."""
        assert entry.wire is not None
        for model in tell:
            self.send(model, Abort(request=entry.wire))
        del self._by_wire[entry.wire]
        entry.wire = None
        entry.early.clear()

    def _admit_waiting(self) -> None:
        while all(self.up) and self.n_running < self.plan.windows.max_active:
            entry = self._next()
            if entry is None:
                break
            self.waiting.remove(entry)
            self._admit(entry)
        self._tell_active()

    def _next(self) -> Entry | None:
        """Return who is admitted next: the first, but that long prompts leave most places to others while they are read."""
        reading = sum(len(e.prompt) > LONG and not e.output for e in self._by_wire.values())
        full = reading >= max(1, self.plan.windows.max_active // 4)
        return next((e for e in self.waiting if not full or len(e.prompt) <= LONG), None)

    def _admit(self, entry: Entry) -> None:
        self._wires += 1
        entry.wire = self._wires
        self._by_wire[entry.wire] = entry
        if entry.admitted_ms is None:
            entry.admitted_ms = self.now_ms()
        message = Admit(
            request=entry.wire,
            prompt=entry.prompt,
            output=entry.output,
            sampling=entry.sampling,
            params=entry.params,
            metadata=entry.metadata,
            state=entry.state,
            epochs=self.epochs,
            traced=entry.traced,
            queues=self._queues,
            elapsed_ms=self.now_ms() - entry.admitted_ms,
            rank=entry.rank,
        )
        for model in range(len(self.up)):
            self.send(model, message)

    def _tell_active(self) -> None:
        """Tell every subserver the N of the windows where it has changed."""
        held = {wire for wires in self._held.values() for wire in wires if wire in self._by_wire}
        n = len(self._by_wire) - len(held)
        if n != self._n_active:
            self._n_active = n
            for model in range(len(self.up)):
                self.send(model, Active(n=n))
            self._flush()
