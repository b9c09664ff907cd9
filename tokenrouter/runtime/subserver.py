"""One model's server: it walks the plan's task graph, and has no other knowledge of the policy.

`receive` takes messages, `step` runs one batch through the graph; whoever drives it (a process with sockets, or the
in-process engine) brings the transport and the clock. Each task kind has one handler, which takes the requests that
reach the task in this step and says by which label each leaves; the graph's edges say where that leads.

INVARIANT: a message about a request that is over, or for another epoch of this subserver, changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, assert_never

import msgspec

from tokenrouter.plan import structs as plan_
from tokenrouter.plan.structs import Label, Plan
from tokenrouter.runtime.gate import Gate
from tokenrouter.runtime.gatekeeper import Gatekeeper
from tokenrouter.runtime.graph import TaskGraph
from tokenrouter.runtime.graphs import counted
from tokenrouter.runtime.masks import Masks
from tokenrouter.runtime.messages import (
    Abort,
    Active,
    Admit,
    Commits,
    Drain,
    Flush,
    Handoff,
    Inspect,
    Lost,
    Ready,
    Refused,
    Report,
    Token,
    ToSubserver,
    Windows,
)
from tokenrouter.runtime.meter import Meter, report
from tokenrouter.runtime.pace import Pace
from tokenrouter.runtime.phases import OF_TASK, Phases
from tokenrouter.runtime.pressure import Pressure
from tokenrouter.runtime.route import Router
from tokenrouter.runtime.row import Output, Row, Runner
from tokenrouter.runtime.sampler import sample, scores, shape
from tokenrouter.runtime.scheduler import Chunk, Scheduler
from tokenrouter.runtime.sequence import Sequence, admitted
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.state import advance, count_down, limits
from tokenrouter.runtime.transport import FRONT_END, Send

log = logging.getLogger("tokenrouter")

BARRED_MS = 1.0  # between two looks at whether a mask is there, where nothing else happens
MAX_EARLY = 4096  # hand-offs that overtook their Admit


class Subserver:
    """The scheduler, the model and the task graph of one model of a plan."""

    def __init__(
        self,
        plan: Plan,
        model: int,
        runner: Runner,
        router: Router,
        send: Send,
        now_ms: Callable[[], float],
        *,
        epoch: int = 1,
        settings: Settings | None = None,
    ) -> None:
        self.plan = plan
        self.model = model
        self.epoch = epoch
        self.pressure = Pressure(plan, model, now_ms)
        self.runner = runner
        self.router = router
        self.masks: Masks | None = None  # None where no request can ask for a grammar
        self.send = send
        self.now_ms = now_ms
        self.stopwatch_ms = now_ms  # times steps; another where `now_ms` is no real clock
        self.graph = TaskGraph(plan.subservers[model])
        self.limits = limits(plan)
        settings = settings or Settings()
        self.meter, self.phases = Meter(model, epoch), Phases()
        row = [1] if settings.windows == "off" else plan.windows.table[model]
        self.gate = Gatekeeper(Gate(row, plan.windows.max_wait_ms), self.meter, send)
        size, most = plan.memory.page_size, settings.max_batch_tokens
        sparing = settings.device == "cpu"  # there, memory is taken when it is first written
        self.scheduler = Scheduler(runner.capacity_tokens, size, most, sparing=sparing)
        self.pace = Pace(settings.max_stall_ms, plan.models[model].hidden_size)
        self.draining = False
        self._early: dict[int, Handoff] = {}
        self._last_admitted = 0
        self._committed: list[Token] = []
        self._handlers: dict[type, Callable[..., list[tuple[Label, Row]]]] = {
            plan_.Extend: self._extend,
            plan_.Sample: self._sample,
            plan_.Signals: self._signals,
            plan_.Route: self._route,
            plan_.CountDown: self._count_down,
            plan_.Commit: self._commit,
            plan_.Park: self._park,
            plan_.Send: self._send,
            plan_.Finish: self._finish,
        }

    # --- Messages

    def announce(self) -> None:
        """Say that this subserver takes requests."""
        capacity = self.scheduler.pool.total * self.scheduler.page_size
        self.send(FRONT_END, Ready(model=self.model, epoch=self.epoch, capacity_tokens=capacity))

    def receive(self, message: ToSubserver) -> None:
        """Take one message."""
        match message:
            case Admit():
                self._admit(message)
            case Handoff():
                self._resume(message)
            case Abort():
                self._early.pop(message.request, None)
                self.scheduler.remove(message.request)
            case Active() | Windows() | Flush():
                self.gate.receive(message)
            case Drain():
                self.draining = True
            case Inspect():
                self.send(FRONT_END, self.report(check=message.check))
            case _:
                assert_never(message)

    def _admit(self, message: Admit) -> None:
        if message.epochs[self.model] != self.epoch:
            return  # it was for the subserver before this one
        if message.request <= self._last_admitted:
            log.warning("threw away an admission of request %d, which is old", message.request)
            return
        self._last_admitted = message.request
        task = self.graph.only(plan_.Admit)
        sequence = admitted(message, self.model, eager=task.prefill == "eager")
        self.pressure.admitted(sequence, message.elapsed_ms)
        self.pressure.heard(message.queues)
        needed = self.limits.cached(sequence.n_prompt, message.sampling)
        if not self.scheduler.fits(needed):
            reason = f"the request may take {needed} tokens, more than the KV pool holds"
            self._refuse(message.request, reason)
            return
        self.scheduler.add(sequence)
        if sequence.owned:
            self.meter.entered += 1
            self._rest(task.id, sequence)
        handoff = self._early.pop(message.request, None)
        if handoff is not None:
            self._resume(handoff)

    def _resume(self, message: Handoff) -> None:
        if message.epoch != self.epoch:
            return
        sequence = self.scheduler.sequences.get(message.request)
        if sequence is None:
            if message.request > self._last_admitted and len(self._early) < MAX_EARLY:
                self._early[message.request] = message
            return
        if sequence.owned:
            log.warning("threw away a hand-off of request %d, which is here", message.request)
            return
        after = len(sequence.tokens) + len(message.tokens) - sequence.n_prompt
        if message.start != len(sequence.tokens) or message.state.position != after:
            # A gap would be a token that this model never reads: better to begin again from the front end's copy.
            what = f"from {message.start} on, {len(sequence.tokens)} tokens are here"
            log.warning("threw away a hand-off of request %d %s", message.request, what)
            self.send(FRONT_END, Lost(request=message.request, model=self.model))
            return
        sequence.tokens += message.tokens
        sequence.state = message.state
        sequence.seen = message.seen
        self.pressure.heard(message.queues)
        sequence.owned = True
        sequence.parked = False
        sequence.read_ahead = 0
        self._rest(self.graph.only(plan_.Resume).id, sequence)

    def _rest(self, task: str, sequence: Sequence) -> None:
        """Let a request come from outside to the gate."""
        assert self.graph.follow(task, "next") == self.graph.gate
        self.scheduler.arrive(sequence)
        sequence.due_since = self.now_ms()

    # --- One step

    def step(self, *, launch: bool = True) -> bool:
        """Run one batch where one is due, and return whether there was one; without `launch` only tell who waits."""
        self.phases.at("gate")
        now, started = self.now_ms(), self.stopwatch_ms()
        if self.masks is not None:
            self.masks.begin(self.scheduler.sequences.values(), now)
        waiting = self.scheduler.gated()
        reason = self.gate.due(waiting, now) if launch else None
        # Who waits here can write, whatever the front end has said so far.
        writing = bool(waiting) or self.gate.others_write(self.scheduler.held())
        passes, form = reason is not None, self.scheduler.paced
        chunks = form(self.pace, gate_open=passes, writing=writing) if launch else []
        self.gate.tell_held(self.scheduler.held())
        self.gate.tell(len(waiting), reason, now)
        if not chunks:
            self.phases.at(None)
            return False
        self.phases.at("build")
        prompts = self.gate.launched(chunks, reason, now)
        self._walk(chunks)
        self.phases.at("messages")
        if self._committed:
            told, self._committed = self._committed, []
            queue = self.pressure.own(self.scheduler.sequences)
            commits = Commits(model=self.model, epoch=self.epoch, tokens=told, queue=queue)
            self.send(FRONT_END, commits)
        self.phases.at(None)
        took_ms = self.stopwatch_ms() - started
        self.pace.took([(chunk.start, chunk.n) for chunk in prompts], took_ms)
        if not prompts:
            self.meter.timed(len(chunks), took_ms)
        return True

    def wait_ms(self) -> float | None:
        """Return for how long nothing happens here without a message; None for ever."""
        wait = self.gate.opens_in_ms(self.scheduler.gated(), self.now_ms())
        return min(wait or BARRED_MS, BARRED_MS) if self.scheduler.barred else wait

    def _walk(self, chunks: list[Chunk]) -> None:
        """Take a batch through the graph until each of its requests rests."""
        at: dict[str, list[Row]] = {self.graph.extend.id: [Row(chunk) for chunk in chunks]}
        for id_ in self.graph.order:
            rows = at.pop(id_, None)
            if not rows:
                continue
            task = self.graph.tasks[id_]
            self.phases.at(OF_TASK.get(type(task), "messages"))
            for label, row in self._handlers[type(task)](task, rows):
                target = self.graph.follow(id_, label)
                if target == self.graph.gate:
                    row.sequence.due_since = self.now_ms()
                else:
                    at.setdefault(target, []).append(row)

    # --- Handlers: a task and the requests that reach it, to the label by which each leaves

    def _extend(self, task: plan_.Extend, rows: list[Row]) -> list[tuple[Label, Row]]:
        chunks = [row.chunk for row in rows]
        self.phases.at("model")
        logits, hidden, scored, done, looked = self.runner.run(chunks, hidden=task.hidden)
        self.phases.at("build")
        self.scheduler.done(chunks)
        for at, of_prompt in scored.items():
            self.send(FRONT_END, scores(chunks[at], of_prompt, self.router.deferred))
        self.phases.at("sample")
        sampling = [row for row in rows if row.chunk.samples]
        kept, refused = shape(sampling, self.masks, logits.device)
        for request, reason in refused.items():
            self._refuse(request, reason, "invalid")
        if len(kept) < len(sampling):
            sampling, done, looked = [sampling[at] for at in kept], None, None
            logits, hidden = logits[kept], None if hidden is None else hidden[kept]
        output = Output(logits, hidden, self.router.deferred)
        output.done, output.looked = done, None if self.router.deferred else looked
        for at, row in enumerate(sampling):
            row.output, row.at = output, at
        return [("next", row) for row in sampling]

    def _refuse(
        self, request: int, reason: str, kind: Literal["too_long", "invalid"] = "too_long"
    ) -> None:
        self.scheduler.remove(request)
        self.send(FRONT_END, Refused(request=request, model=self.model, reason=reason, kind=kind))

    def _sample(self, task: plan_.Sample, rows: list[Row]) -> list[tuple[Label, Row]]:
        output = rows[0].output
        assert output is not None
        sample(output, rows, self.model, self.router.figures(rows))
        return [("own" if row.sequence.state.home is None else "borrowed", row) for row in rows]

    def _signals(self, task: plan_.Signals, rows: list[Row]) -> list[tuple[Label, Row]]:
        self.pressure.show(rows, self.scheduler.sequences)
        self.router.evaluate(rows)
        return [("next", row) for row in rows]

    def _route(self, task: plan_.Route, rows: list[Row]) -> list[tuple[Label, Row]]:
        self.router.decide(rows)
        return [("keep" if row.decided().keep else "drop", row) for row in rows]

    def _count_down(self, task: plan_.CountDown, rows: list[Row]) -> list[tuple[Label, Row]]:
        for row in rows:
            row.decision = count_down(row.sequence.state, reached=self.router.reached(row))
        return [("next", row) for row in rows]

    def _commit(self, task: plan_.Commit, rows: list[Row]) -> list[tuple[Label, Row]]:
        return [(self._keep(row), row) for row in rows]

    def _keep(self, row: Row) -> Label:
        """Append a candidate to the output and return where its request goes."""
        sequence, decision = row.sequence, row.decided()
        if not decision.keep:
            decision = row.decision = decision._replace(keep=True)
        sequence.tokens.append(row.token)
        sequence.seen[self.model] = len(sequence.tokens)
        end = self.limits.end(
            row.token, sequence.state.position + 1, len(sequence.tokens), sequence.sampling
        )
        if decision.target is None and end != "stop":
            end = "stop"
        before, loads = sequence.state, self.pressure.read(row)
        sequence.state = advance(before, decision, row.windows, ended=end is not None)
        row.advanced = True
        if end is None:
            self.meter.moved(before, sequence.state, kept=True)
        else:
            self.meter.ended += 1
            self.meter.ended_tokens += sequence.state.position
        self._committed.append(
            Token(
                request=sequence.request,
                token=row.token,
                model=self.model,
                rule=decision.rule,
                logprob=row.logprob,
                top=row.top,
                signals=row.signals,
                loads=loads,
                state=sequence.state,
                finish=end,
            )
        )
        if end is not None:
            return "ended"
        return "stay" if sequence.state.owner == self.model else "leave"

    def _park(self, task: plan_.Park, rows: list[Row]) -> list[tuple[Label, Row]]:
        for row in rows:
            row.sequence.parked = True
        return [("next", row) for row in rows]

    def _send(self, task: plan_.Send, rows: list[Row]) -> list[tuple[Label, Row]]:
        for row in rows:
            sequence = row.sequence
            if not row.advanced:
                before, loads = sequence.state, self.pressure.read(row)
                after = advance(before, row.decided(), row.windows, ended=False)
                sequence.state = msgspec.structs.replace(after, loads=loads)
                self.meter.moved(before, sequence.state, kept=False)
            peer, rule = sequence.state.owner, row.decided().rule
            self.meter.handoffs[peer, -1 if rule is None else rule] += 1
            assert peer in task.peers, (peer, task.peers)
            start = sequence.seen[peer]
            sequence.seen[peer] = len(sequence.tokens)
            sequence.owned = False
            if not sequence.parked:
                self.scheduler.release(sequence)
            handoff = Handoff(
                request=sequence.request,
                epoch=sequence.epochs[peer],
                start=start,
                tokens=sequence.tokens[start:],
                seen=sequence.seen,
                state=sequence.state,
                queues=self.pressure.told(self.scheduler.sequences),
            )
            self.send(peer, handoff)
        return []

    def _finish(self, task: plan_.Finish, rows: list[Row]) -> list[tuple[Label, Row]]:
        for row in rows:
            self.scheduler.remove(row.sequence.request)
        return []

    # --- What it holds

    def report(self, *, check: bool = True) -> Report:
        """Return what this subserver holds, and whether it adds up."""
        told = report(self.meter, self.scheduler, self.phases, check=check)
        captured, eager = counted(self.runner)
        return msgspec.structs.replace(told, captured=captured, eager=eager)

    @property
    def is_empty(self) -> bool:
        """Whether no request is here."""
        return not self.scheduler.sequences

    def check_integrity(self, *, idle: bool = True) -> None:
        """Assert that the pool adds up and, where nothing is served, that nothing is left of anything."""
        report = self.report()
        assert not report.problem, report.problem
        if idle:
            assert not self.scheduler.sequences, f"requests left: {list(self.scheduler.sequences)}"
            assert not self._early, f"hand-offs left: {list(self._early)}"
            assert report.free + report.kept == report.pages, report
