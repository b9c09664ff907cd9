"""The asyncio front of the runtime: what the HTTP server talks to.

One `Client` owns the subserver processes of one plan and the book of their requests. It knows nothing of HTTP, text
or tokenizers: token ids go in, `messages.Token`s come out, in order, each exactly once, also across a subserver's death.

    client = Client(plan, base=Path("."))
    await client.start(progress=print)
    ticket = client.submit([1, 2, 3], Sampling(max_tokens=8))
    async for token in ticket:
        ...
    await client.close(deadline_s=5)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import structs

from tokenrouter.plan.structs import Plan, Value
from tokenrouter.runtime.adapt import LOOK_S, Adapter, WindowsStatus
from tokenrouter.runtime.book import Book
from tokenrouter.runtime.checks import MessageCheck
from tokenrouter.runtime.errors import RequestRefused, StartFailed, SubserverLost
from tokenrouter.runtime.launch import Processes
from tokenrouter.runtime.logs import Format, Level
from tokenrouter.runtime.messages import (
    Commits,
    Drain,
    Failed,
    Gated,
    Held,
    Inspect,
    Lost,
    Ready,
    Refused,
    Report,
    Sampling,
    Scores,
    Tally,
    ToFrontEnd,
    ToSubserver,
)
from tokenrouter.runtime.settings import Settings, WindowMode
from tokenrouter.runtime.ticket import Ending, ModelStatus, Status, Watch
from tokenrouter.runtime.ticket import Ticket as Ticket
from tokenrouter.runtime.transport import FRONT_END, Sockets, endpoint, parse_for_front_end
from tokenrouter.runtime.turns import share_of_cores

log = logging.getLogger("tokenrouter")

Progress = Callable[[str], None]

CUT_OFF = "the server is shutting down, and the time to finish is over; ask again later"
PATIENCE_S = 5.0  # for processes to end by themselves
MAX_STALL_MS = 250.0
WATCH_S = 0.05  # between two looks at the processes
RESTARTS, RESTART_WINDOW_S = 5, 60.0  # so many deaths of one model within this time are too many


class Client:
    """The subservers of one plan, and the requests that they serve."""

    def __init__(
        self,
        plan: Plan,
        *,
        base: Path | None = None,  # relative `Model.use` paths are looked up from here
        dtype: str | None = None,  # instead of the plan's
        deterministic: bool = False,
        allow_python: bool = False,  # whether the plan's Python heads may run
        threads: int | None = None,  # for each subserver; `turns.share_of_cores` where None
        windows: WindowMode = "fixed",
        max_waiting: int = 1024,  # requests beyond the admitted ones before `submit` refuses
    ) -> None:
        self.plan = plan
        self.settings = Settings(
            base=str((base or Path()).absolute()),
            dtype=dtype,
            deterministic=deterministic,
            allow_python=allow_python,
            windows=windows,
            max_stall_ms=MAX_STALL_MS,
            threads=threads or share_of_cores(len(plan.models)),
        )
        self._book = Book(plan, self._send, max_waiting, lambda: 1e3 * time.monotonic())
        self.max_waiting = max_waiting
        self._check = MessageCheck(plan)
        self._tickets: dict[int, Ticket] = {}
        self.watch: Callable[[int], Watch] | None = None  # for each request's length of prompt
        self._processes: Processes | None = None
        self._relay: Callable[[str, str], None] | None = None
        self._sockets: Sockets | None = None
        self._watch: asyncio.Task[None] | None = None
        self._progress: Progress = lambda line: None
        self._changed = asyncio.Event()  # a subserver is up or down, or a request is over
        self._failure: str | None = None  # why nothing can be served any more
        self._closing = False
        self._started_at: dict[int, float] = {}
        self._deaths: dict[int, deque[float]] = {}
        self._reports: dict[int, asyncio.Future[Report]] = {}
        self.tallies: dict[int, Tally] = {}  # by model, the latest
        self.adapter = Adapter(plan, windows, self._book.set_windows)
        self._adapting: asyncio.Task[None] | None = None
        self.look_s = LOOK_S  # between two looks at the windows, where they are adaptive

    # --- What the server asks

    @property
    def ready(self) -> bool:
        """Whether every subserver is up."""
        return all(self._book.up) and not self._closing and self._failure is None

    @property
    def longest(self) -> int:
        """The most tokens of prompt and output together that a request may ask for."""
        return self._book.longest

    def submit(
        self,
        prompt: list[int],
        sampling: Sampling,
        params: Mapping[str, float | bool] | None = None,
        metadata: Mapping[str, Value] | None = None,
        *,
        traced: bool = False,
        priority: int = 0,
    ) -> Ticket:
        """Admit or queue a request, from the event loop's thread; raises RequestRefused and SubserverLost.

        `params` sets dials of the policy by name; an unknown name or a value outside its bounds is refused.
        """
        if self._failure is not None:
            raise SubserverLost(self._failure)
        if self._closing or self._sockets is None:
            raise RequestRefused("the server is not taking requests", "closing")
        entry = self._book.submit(
            prompt, sampling, params, metadata, traced=traced, priority=priority
        )
        watch = None if self.watch is None else self.watch(len(prompt))
        ticket = self._tickets[entry.request] = Ticket(entry.request, watch)
        return ticket

    def abort(self, request: int, how: Ending = "aborted") -> None:
        """End a request early, wherever it is; one that is over already is no error."""
        self._book.abort(request)
        self._end(request, how)

    def log_to(self, form: Format, level: Level, relay: Callable[[str, str], None]) -> None:
        """Have the subservers log so; `relay` is given each model's name and line. Before the start."""
        assert self._processes is None, "the subservers run"
        self.settings = structs.replace(self.settings, log_format=form, log_level=level)
        self._relay = relay

    def bound_stall(self, stall_ms: float) -> None:
        """Let a batch keep those that write waiting for prompts no longer than this. Before the start."""
        assert self._processes is None, "the subservers run"
        self.settings = structs.replace(self.settings, max_stall_ms=stall_ms)

    def status(self) -> Status:
        """Return what is running and waiting, and how each subserver is."""
        pids = [None if self._processes is None else self._processes.pid(m) for m in self._models]
        return Status(
            ready=self.ready,
            running=self._book.n_running,
            waiting=len(self._book.waiting),
            failure=self._failure,
            models=[
                ModelStatus(
                    name=model.name,
                    ready=self._book.up[at],
                    epoch=self._book.epochs[at],
                    pid=pids[at],
                    capacity_tokens=self._book.capacity,
                )
                for at, model in enumerate(self.plan.models)
            ],
        )

    @property
    def windows(self) -> WindowsStatus:
        """The windows in force, and where they come from."""
        return self.adapter.status

    async def inspect(self, timeout_s: float = 10.0) -> list[Report]:
        """Return what each subserver holds now; raises TimeoutError where one does not answer."""
        return await self._ask(list(self._models), timeout_s, check=True)

    async def peek(self, timeout_s: float = 1.0) -> list[Report]:
        """Return what the subservers that are up hold now, unchecked; empty where one is too busy to say."""
        up = [model for model in self._models if self._book.up[model]]
        try:
            return await self._ask(up, timeout_s, check=False)
        except TimeoutError:
            return []

    async def _ask(self, models: list[int], timeout_s: float, *, check: bool) -> list[Report]:
        loop = asyncio.get_running_loop()
        for model in models:
            if model not in self._reports or self._reports[model].done():
                self._reports[model] = loop.create_future()
            self._send(model, Inspect(check=check))
        waiting = [asyncio.shield(self._reports[model]) for model in models]
        return await asyncio.wait_for(asyncio.gather(*waiting), timeout_s)

    # --- Start and end

    async def start(self, progress: Progress | None = None) -> None:
        """Start the subservers and return when all are ready; raises StartFailed, and then no process is left."""
        assert self._processes is None, "a client starts once"
        if self._closing:
            raise StartFailed("the server was closed before it started")
        self._progress = progress or self._progress
        self._processes = Processes(self.plan, self.settings, self._relay)
        addresses = [FRONT_END, *self._models]
        directory = self._processes.directory
        endpoints = {at: endpoint(directory, at) for at in addresses}
        self._sockets = Sockets(FRONT_END, endpoints, self._processes.key)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._sockets.fileno(), self._receive)
        for model in self._models:
            self._start(model)
        self._watch = loop.create_task(self._watch_processes())
        self._adapting = loop.create_task(self.adapter.run(self.look_s, self.settings))
        while not all(self._book.up):
            if self._failure is not None or self._closing:
                reason = self._failure or "the server was closed while it started"
                await self.close(0)
                raise StartFailed(reason)
            await self._change()

    async def close(self, deadline_s: float = 30.0) -> None:
        """Refuse new requests, let the running ones finish until the deadline, end the rest, end every process."""
        self._closing = True
        self._changed.set()
        end = time.monotonic() + deadline_s
        while self._book.entries and self._failure is None and time.monotonic() < end:
            await self._change(end - time.monotonic())
        for request in list(self._tickets):
            self._book.abort(request)
            self._end(request, RequestRefused(CUT_OFF, "closing"))
        if self._sockets is None or self._processes is None:
            return
        sockets, processes = self._sockets, self._processes
        self._sockets = self._processes = None
        for task in (self._watch, self._adapting):
            if task is not None:
                task.cancel()
        if self._adapting is not None:
            await asyncio.wait([self._adapting])  # it ends what it has started
        asyncio.get_running_loop().remove_reader(sockets.fileno())
        for model in self._models:
            if self._book.up[model]:
                sockets.send(model, Drain())
            else:
                processes.kill(model)
        self._book.up = [False] * len(self.plan.models)
        await asyncio.to_thread(processes.close, PATIENCE_S)
        sockets.close()

    async def _change(self, timeout_s: float | None = None) -> None:
        """Wait for a subserver to come or go, or for a request to end."""
        self._changed.clear()
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return

    # --- Processes

    @property
    def _models(self) -> range:
        return range(len(self.plan.models))

    def _name(self, model: int) -> str:
        return self.plan.models[model].name

    def _start(self, model: int) -> None:
        assert self._processes is not None
        self._progress(f"{self._name(model)}: loading {self.plan.models[model].use}")
        self._started_at[model] = time.monotonic()
        self._processes.start(model)

    async def _watch_processes(self) -> None:
        """Notice processes that end, and start them again."""
        while self._processes is not None and self._failure is None:
            ended = self._processes.ended()
            self._processes.pass_on()
            for model, status in ended.items():
                self._lost(model, status)
            await asyncio.sleep(WATCH_S)

    def _lost(self, model: int, status: int) -> None:
        """A process is gone: once more where it had come up before, and not too often."""
        assert self._processes is not None
        name = self._name(model)
        how = f"signal {-status}" if status < 0 else f"status {status}"
        words = self._processes.last_words(model)
        was_up = self._book.epochs[model] > 0
        self._book.down(model)
        deaths = self._deaths.setdefault(model, deque())
        deaths.append(time.monotonic())
        while deaths[0] < deaths[-1] - RESTART_WINDOW_S:
            deaths.popleft()
        if not was_up:
            self._fail(f"subserver `{name}` did not start ({how}){words and ': ' + words}")
        elif len(deaths) > RESTARTS:
            self._fail(f"subserver `{name}` ended {len(deaths)} times within a minute ({how})")
        else:
            log.warning("subserver `%s` ended (%s); starting it again", name, how)
            self._start(model)
        self._changed.set()

    def _fail(self, reason: str) -> None:
        """Nothing can be served any more: end every request with the reason."""
        if self._failure is None and all(self._book.epochs):
            log.error("nothing can be served any more: %s", reason)
        self._failure = self._failure or reason
        for request in list(self._tickets):
            self._book.abort(request)
            self._end(request, SubserverLost(reason))
        self._changed.set()

    # --- Messages

    def _send(self, model: int, message: ToSubserver) -> None:
        if self._sockets is not None:
            self._sockets.send(model, message)

    def _receive(self) -> None:
        """Take all that has arrived; the socket's descriptor speaks up only for what comes after."""
        while self._sockets is not None and (arrived := self._sockets.receive()):
            for data in arrived:
                message = parse_for_front_end(data, self._check)
                if message is not None:
                    self._take(message)

    def _take(self, message: ToFrontEnd) -> None:
        match message:
            case Commits() | Scores():
                self._commits(message)
            case Ready():
                self._ready(message)
            case Held() | Gated():
                self._book.told(message)
            case Tally():
                self.tallies[message.model] = message
                self.adapter.take(message)
            case Refused() | Lost():
                self._give_up(message)
            case Report():
                waiting = self._reports.get(message.model)
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
            case Failed() if self._book.up[message.model]:
                log.warning("threw away word that a subserver which is up could not come up")
            case Failed():
                self._fail(f"subserver `{self._name(message.model)}`: {message.reason}")

    def _give_up(self, message: Refused | Lost) -> None:
        """End a request that a subserver refuses, or has lost too often."""
        if isinstance(message, Refused):
            entry = self._book.refused(message.request)
            why: Exception = RequestRefused(message.reason, message.kind)
        else:
            entry = self._book.lost(message.request)
            why = SubserverLost(f"subserver `{self._name(message.model)}` loses the request")
        if entry is not None:
            self._end(entry.request, why)

    def _commits(self, message: Commits | Scores) -> None:
        for token in self._book.commits(message):
            ticket = self._tickets.get(token.request)
            if ticket is not None:
                ticket.put(token)
            if token.finish is not None:
                self._tickets.pop(token.request, None)
                self._changed.set()

    def _ready(self, message: Ready) -> None:
        if self._processes is None or message.epoch != self._processes.epochs[message.model]:
            return
        seconds = time.monotonic() - self._started_at[message.model]
        self._progress(f"{self._name(message.model)}: ready after {seconds:.1f} s")
        self._book.ready(message)
        self._changed.set()

    def _end(self, request: int, why: Exception | Ending) -> None:
        ticket = self._tickets.pop(request, None)
        if ticket is not None:
            if isinstance(why, Exception):
                ticket.put(why)
            else:
                ticket.end(why)
            self._changed.set()
