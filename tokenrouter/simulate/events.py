"""The discrete events: arrivals, ends of batches, and gates that open because somebody waited long enough.

The gates are the runtime's own (`runtime.gate`), with all three rules; the numbers are a throughput specification. As in
the model, a step of model m with b requests takes L_m(b) at rate v_m(busy set), and after it a request goes from station
s to j with probability P[s, j] and commits a token with probability C[s, j], or is stopped (`simulate.ways`). Prompts are read as the runtime's scheduler
reads them (`simulate.prompts`): beside a batch or alone, whatever the gate says, and the last piece brings the first step.

Models in turn (`Spec.in_turn`) stand in line as the runtime's subservers do: where a gate opens or a prompt is to be read.
Whose turn comes takes all that wait by then, and nobody else works meanwhile.

It knows nothing of plans. Times are milliseconds.
"""

from __future__ import annotations

import random
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from math import inf

from tokenrouter.runtime.gate import Gate
from tokenrouter.runtime.pace import Pace
from tokenrouter.simulate.arrivals import Arrival
from tokenrouter.simulate.prompts import Prompts, Reading, divided
from tokenrouter.simulate.ways import First, Stops, ways_of
from tokenrouter.throughput.check import entry
from tokenrouter.throughput.spec import Spec

EPSILON = 1e-9  # ms


@dataclass(eq=False, slots=True)
class Request:
    """One request on its way."""

    arrived: float
    tokens: int | None  # that it writes; None: it never ends
    prompt: int = 0  # tokens
    whole: bool = False  # whether it writes all of them, whatever its policy would stop
    admitted: float = 0.0
    first: float | None = None  # when its first token was committed
    last: float = 0.0
    written: int = 0
    station: int = 0
    since: float = 0.0  # at the gate
    known: set[int] = field(default_factory=set)  # models that read its prompt, or have


@dataclass(eq=False, slots=True)
class Server:
    """One model: its gate, who waits there, and the batch that runs."""

    gate: Gate
    step_ms: Sequence[float]  # by batch size - 1
    after_ms: Sequence[float]  # likewise, of a step that follows another model's turn
    pace: Pace
    waiting: list[Request] = field(default_factory=list)
    batch: list[Request] = field(default_factory=list)
    reading: list[Reading[Request]] = field(default_factory=list)  # the oldest first
    pieces: list[tuple[Reading[Request], int]] = field(default_factory=list)  # that run, tokens
    left: float = 0.0  # ms of work
    began: float = 0.0  # when what runs was launched
    busy: float = 0.0
    batches: int = 0
    through: int = 0
    delays: list[float] = field(default_factory=list)
    launches: dict[str, int] = field(default_factory=dict)
    in_line: bool = False  # whether it waits for its turn
    opened: str | None = None  # why its gate had opened when it stood in line

    @property
    def runs(self) -> bool:
        """Whether it works."""
        return bool(self.batch or self.pieces)


class Simulation:
    """Requests that arrive, circulate and end under the windows of a table."""

    def __init__(
        self,
        spec: Spec,
        table: Sequence[Sequence[int]],  # by model, then N - 1
        max_wait_ms: float,
        max_active: int,
        *,
        seed: int = 0,
        prompts: Prompts | None = None,  # None: they take no time
        first: First | None = None,  # ways before a request's first token; None: as always
        stops: Stops | None = None,  # None: only their lengths end requests
    ) -> None:
        self.rng = random.Random(seed)
        self.prompts = prompts
        self.max_active = max_active
        self.model_of = spec.model_of or list(range(len(spec.step_ms)))
        paces = _paces(prompts, len(table))
        self.servers = [
            Server(Gate(row, max_wait_ms), _listed(steps), _listed(after), pace)
            for row, steps, after, pace in zip(
                table, spec.step_ms, spec.after_ms or spec.step_ms, paces, strict=True
            )
        ]
        self.in_turn = spec.in_turn
        self.line: list[int] = []  # models that wait for their turn, the first one first
        self.last = 0  # the model whose turn was the latest
        starts = entry(spec).tolist()
        self.always = ways_of(spec.p, spec.c, starts, stops)
        self.first = None if first is None else ways_of(first.p, first.c, starts, stops)
        self.stops = stops is not None and stops.ends
        self.entry = list(accumulate(starts))
        self.mean_tokens = spec.mean_output_tokens
        self.rates = {
            frozenset(busy.models): dict(zip(busy.models, busy.rates, strict=True))
            for busy in spec.busy
        }
        self.now = 0.0
        self.active = 0
        self.tokens = 0
        self.queue: list[Request] = []  # not admitted yet, the oldest last
        self.done: list[Request] = []
        self.active_ms = self.queue_ms = 0.0  # integrals of the two counts
        self.longest_queue = 0

    # --- Requests

    def submit(self, tokens: int | None, prompt: int | None = None, *, whole: bool = False) -> None:
        """Let a request arrive now; without a length of its own its prompt has the mean one. A `whole` one is never stopped."""
        if prompt is None:
            prompt = 0 if self.prompts is None else self.prompts.tokens
        request = Request(self.now, tokens, prompt, whole)
        if self.active < self.max_active:
            self._admit(request)
        else:
            self.queue.insert(0, request)
            self.longest_queue = max(self.longest_queue, len(self.queue))

    def length(self) -> int | None:
        """Return how many tokens a request writes: geometric, as the model has it; None where requests never end."""
        if self.mean_tokens is None:
            return None
        n = 1
        while self.rng.random() >= 1 / self.mean_tokens:
            n += 1
        return n

    def _admit(self, request: Request) -> None:
        self.active += 1
        request.admitted = self.now
        station = self._draw(self.entry)
        self._arrive(request, station)
        if self.prompts is None or request.prompt <= 1:
            return
        for model, eager in enumerate(self.prompts.eager):
            if eager and model not in request.known:
                self._read(request, model, request.prompt - 1, owned=False)

    def _arrive(self, request: Request, station: int) -> None:
        """Let a request come to a gate, or where its prompt is yet to be read."""
        request.station, request.since = station, self.now
        model = self.model_of[station]
        server = self.servers[model]
        ahead = next((r for r in server.reading if r.request is request), None)
        if ahead is not None:
            ahead.owned = True
            ahead.left += 1  # the last token, left for its logits
        elif self.prompts is not None and request.prompt and model not in request.known:
            self._read(request, model, request.prompt + request.written, owned=True)
        else:
            server.waiting.append(request)

    def _read(self, request: Request, model: int, tokens: int, *, owned: bool) -> None:
        request.known.add(model)
        self.servers[model].reading.append(Reading(request, tokens, owned))

    def _draw(self, upto: Sequence[float]) -> int:
        return min(bisect(upto, self.rng.random() * upto[-1]), len(upto) - 1)

    # --- Events

    def run(self, arrivals: Iterator[Arrival]) -> None:
        """Let all of these requests arrive and end."""
        coming = next(arrivals, None)
        while coming is not None or self.active:
            self.advance(inf if coming is None else coming.at_ms)
            while coming is not None and coming.at_ms <= self.now + EPSILON:
                tokens = self.length() if coming.tokens is None else coming.tokens
                self.submit(tokens, coming.prompt, whole=coming.tokens is not None)
                coming = next(arrivals, None)

    def advance(self, until: float = inf) -> None:
        """Launch what is due, and let time pass to the next event, at most until a moment to come."""
        self.launch()
        busy = [m for m, server in enumerate(self.servers) if server.runs]
        rate = self.rates.get(frozenset(busy), {}) if self.rates else {}
        ends = min((self.servers[m].left / rate.get(m, 1.0) for m in busy), default=inf)
        opens = min(
            (s.waiting[0].since + s.gate.max_wait_ms for s in self.servers if self._held(s)),
            default=inf,
        )
        to = min(self.now + ends, opens, until)
        assert to < inf, "nothing can happen and requests wait"
        passed = max(0.0, to - self.now)
        self.now = to
        self.active_ms += passed * self.active
        self.queue_ms += passed * len(self.queue)
        for m in busy:
            server = self.servers[m]
            server.busy += passed
            server.left -= passed * rate.get(m, 1.0)
        for m in busy:
            if self.servers[m].left <= EPSILON:
                self._finish(m)

    @staticmethod
    def _held(server: Server) -> bool:
        return bool(server.waiting) and not server.runs and not server.in_line

    def launch(self) -> None:
        """Launch every idle model whose gate opens or that has prompts to read; where all who can reach a gate wait, all open."""
        active = self._writing()
        moving = sum(len(s.waiting if s.in_line else s.batch) for s in self.servers)
        held = [server for server in self.servers if self._held(server)]
        # A look at all gates before the first launch: those are idle at the same moment.
        due = [
            (s, reason)
            for s in held
            if (reason := s.gate.due(len(s.waiting), self._oldest(s), active, max(moving, 1)))
        ]
        if held and not due and not moving:
            due = [(server, "nothing_else") for server in held]
        if self.in_turn:
            for server, reason in due:
                server.opened = reason
            self._take_turns(active)
            return
        idle = [model for model, server in enumerate(self.servers) if not server.runs]
        for server, reason in due:
            self._open(server, reason)
        for model in idle:
            self._start(model)

    def _open(self, server: Server, reason: str) -> None:
        """Let all that wait at a gate into the batch."""
        server.launches[reason] = server.launches.get(reason, 0) + 1
        server.delays += [self.now - request.since for request in server.waiting]
        server.batch, server.waiting = server.waiting, []

    def _take_turns(self, active: int) -> None:
        """Let models stand in line that have something to do, and the first of the line work where nobody does."""
        ready = [
            model
            for model, server in enumerate(self.servers)
            if not server.in_line and not server.runs and (server.opened or server.reading)
        ]
        ready.sort(key=lambda model: model != self.last)  # its own gate is the first it looks at
        for model in ready:
            self.servers[model].in_line = True
        self.line += ready
        while self.line and not any(server.runs for server in self.servers):
            model = self.line.pop(0)
            server = self.servers[model]
            server.in_line = False
            reason = server.opened
            server.opened = None
            if (
                reason is None and server.waiting
            ):  # it came for a prompt, and others have come since
                waiting = len(server.waiting)
                reason = server.gate.due(waiting, self._oldest(server), active, active - waiting)
            if reason is not None:
                self._open(server, reason)
            self._start(model)
            if server.runs:
                self.last = model

    def _writing(self) -> int:
        """Return how many requests can reach a gate: all but those whose prompt is read."""
        return self.active - sum(r.owned for server in self.servers for r in server.reading)

    def _start(self, model: int) -> None:
        """Let a batch run, with as much of the prompts as goes beside it."""
        server = self.servers[model]
        size = len(server.batch)
        own = not self.in_turn or self.last == model
        steps = server.step_ms if own else server.after_ms
        server.left = steps[min(size, len(steps)) - 1] if size else 0.0
        server.began = self.now
        if self.prompts is None or not server.reading:
            return
        allowance = server.pace.allowance(writing=self._writing() > 0, passes=size > 0)
        work = min(float(self.prompts.beside(size)), allowance.work)
        server.pieces = divided(server.reading, work, allowance)
        read = sum(taken for _, taken in server.pieces)
        server.left += self.prompts.ms(model, read, beside=size > 0)

    def _oldest(self, server: Server) -> float:
        return self.now - server.waiting[0].since + EPSILON

    def _finish(self, model: int) -> None:
        server = self.servers[model]
        stepped, server.batch = server.batch, []
        pieces, server.pieces = server.pieces, []
        if stepped:
            server.batches += 1
            server.through += len(stepped)
        if pieces or stepped:
            server.pace.took([(r.start, taken) for r, taken in pieces], self.now - server.began)
        for reading, taken in pieces:
            reading.left -= taken
            reading.start += taken
            if reading.left <= 0 and reading in server.reading:
                server.reading.remove(reading)
                if reading.owned:
                    stepped = [*stepped, reading.request]
        for request in stepped:
            self._route(request)

    def _route(self, request: Request) -> None:
        """Let a request that has made a step commit what it wrote, and go on."""
        source, ways = request.station, self.always
        if self.first is not None and request.first is None and source < len(self.servers):
            ways = self.first
        stop, stop_kept = ways.stops[source]
        if self.stops and stop > 0 and not request.whole and self.rng.random() < stop:
            self._commit(request, stop_kept)
            self._end(request)
            return
        target = self._draw(ways.upto[source])
        self._commit(request, ways.kept[source][target])
        if request.tokens is not None and request.written >= request.tokens:
            self._end(request)
        else:
            self._arrive(request, target)

    def _commit(self, request: Request, kept: float) -> None:
        """Let a request write a token with probability `kept`."""
        if kept >= 1 or (kept > 0 and self.rng.random() < kept):
            self.tokens += 1
            request.written += 1
            request.last = self.now
            if request.first is None:
                request.first = self.now

    def _end(self, request: Request) -> None:
        self.active -= 1
        self.done.append(request)
        for server in self.servers:  # nobody reads ahead for it any more
            server.reading = [r for r in server.reading if r.request is not request]
        if self.queue:
            self._admit(self.queue.pop())

    def forget(self) -> None:
        """Begin to count anew, as after a warm-up."""
        self.tokens = 0
        self.active_ms = self.queue_ms = 0.0
        self.longest_queue = len(self.queue)
        self.done.clear()
        for server in self.servers:
            server.busy = 0.0
            server.batches = server.through = 0
            server.delays.clear()
            server.launches.clear()


def _listed(steps: float | list[float]) -> Sequence[float]:
    return steps if isinstance(steps, list) else [steps]


def _paces(prompts: Prompts | None, n_models: int) -> list[Pace]:
    """Return by model what learns how much of prompts a batch may read."""
    if prompts is None or prompts.stall_ms is None:
        return [Pace(None, 1) for _ in range(n_models)]
    return [Pace(prompts.stall_ms, hidden) for hidden in prompts.hidden[:n_models]]
