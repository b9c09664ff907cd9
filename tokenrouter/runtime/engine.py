"""The in-process engine: every subserver of a plan in this process, on one deterministic queue and clock.

It runs the same subservers, book and messages as the server does; only transport and clock differ. `generate` is the
Python way in. `events` and `do` let a test choose what happens next: one message delivered or one batch run.

    engine = Engine(plan)
    (completion,) = engine.generate(["Name three rivers."], Sampling(max_tokens=8), chat=True)
    print(completion.text, completion.models)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.io import read
from tokenrouter.plan.structs import Plan, Value
from tokenrouter.runtime import load
from tokenrouter.runtime.adapt import Adapter
from tokenrouter.runtime.book import Book
from tokenrouter.runtime.checks import MessageCheck
from tokenrouter.runtime.errors import RequestRefused
from tokenrouter.runtime.messages import (
    Commits,
    Failed,
    Gated,
    Held,
    Lost,
    Ready,
    Refused,
    Report,
    Sampling,
    Scores,
    Tally,
    ToFrontEnd,
    Token,
)
from tokenrouter.runtime.model import LanguageModel
from tokenrouter.runtime.row import Runner
from tokenrouter.runtime.settings import GraphMode, Settings, WindowMode
from tokenrouter.runtime.subserver import Subserver
from tokenrouter.runtime.transport import (
    FRONT_END,
    Channel,
    Queues,
    parse_for_front_end,
    parse_for_subserver,
)

TICK_MS = 1.0  # the clock's advance with each event
MANY = 2**31  # nobody waits for an answer here, so the queue has no bound


class Event(NamedTuple):
    """Something that can happen next: a channel's next message arrives, or a subserver runs a batch."""

    deliver: Channel | None
    step: int | None


@dataclass(frozen=True, slots=True)
class Completion:
    """A request's output."""

    prompt: list[int]
    tokens: list[Token] = field(default_factory=list)
    decode: Callable[[list[int]], str] | None = field(default=None, compare=False, repr=False)

    @property
    def ids(self) -> list[int]:
        """The output's token ids."""
        return [token.token for token in self.tokens]

    @property
    def models(self) -> list[int]:
        """By token, the model that wrote it."""
        return [token.model for token in self.tokens]

    @property
    def text(self) -> str:
        """The output as text, control tokens left out; only of an engine's own completions."""
        assert self.decode is not None, "this completion came from no engine"
        return self.decode(self.ids)

    @property
    def finish(self) -> str | None:
        """How it ended; None where it has not."""
        return self.tokens[-1].finish if self.tokens else None


class Engine:
    """All subservers of a plan, driven one event at a time."""

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        plan: Plan
        | str
        | Path,  # a path is read; its models lie beside it unless `base` says otherwise
        base: Path | None = None,
        *,
        dtype: str | None = None,
        deterministic: bool = False,
        allow_python: bool = False,  # whether the plan's Python heads may run
        models: Sequence[LanguageModel | Runner] | None = None,  # instead of loading the plan's
        max_batch_tokens: int = 512,
        windows: WindowMode = "fixed",
        device: str = "cpu",  # or `cuda`: where the models are run
        graphs: GraphMode = "auto",  # whether short steps are captured
    ) -> None:
        if not isinstance(plan, Plan):
            base = Path(plan).parent if base is None else base
            plan = read(plan)
        self.plan = plan
        self.check = MessageCheck(plan)
        self.queues = Queues()
        self.now = 0.0
        self.settings = Settings(
            base=str(base or "."),
            dtype=dtype,
            deterministic=deterministic,
            allow_python=allow_python,
            max_batch_tokens=max_batch_tokens,
            windows=windows,
            device=device,
            graphs=graphs,
        )
        self.completions: dict[int, Completion] = {}  # by request, those that are not taken yet
        self.refusals: dict[int, str] = {}
        self._turn = 0
        n = len(plan.models)
        self.runners: list[Runner] = [
            load.load_runner(plan, model, self.settings) for model in range(n if not models else 0)
        ]
        for at, model in enumerate(models or []):
            self.runners.append(
                model if isinstance(model, Runner) else load.wrap(plan, model, at, self.settings)
            )
        self.book = Book(
            plan,
            lambda to, message: self.queues.send(FRONT_END, to, message),
            MANY,
            lambda: self.now,
        )
        self.tallies: dict[int, Tally] = {}  # by model, the latest
        self.adapter = Adapter(plan, windows, self.book.set_windows)
        self.subservers = [self._subserver(model, epoch=1) for model in range(n)]
        for subserver in self.subservers:
            subserver.announce()

    def _subserver(self, model: int, epoch: int) -> Subserver:
        subserver = load.subserver(
            self.plan,
            model,
            self.runners[model],
            lambda to, message: self.queues.send(model, to, message),
            lambda: self.now,
            settings=self.settings,
            epoch=epoch,
        )
        subserver.stopwatch_ms = lambda: time.perf_counter() * 1000.0
        return subserver

    # --- Requests

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        sampling: Sampling | Sequence[Sampling] | None = None,
        params: Mapping[str, float | bool] | None = None,
        metadata: Mapping[str, Value] | None = None,
        *,
        chat: bool = False,
        traced: bool = False,
    ) -> list[Completion]:
        """Return the completions of prompts that are served together.

        A prompt is text or token ids; with `chat`, a text is what a user says to the plan's chat template. Raises
        RequestRefused for the first prompt that is refused, and ModelError where there is no chat template.
        """
        assert not isinstance(prompts, str), "a list of prompts, not one"
        if sampling is None or isinstance(sampling, Sampling):
            sampling = [sampling or Sampling()] * len(prompts)
        requests = [
            self.submit(self._ids(prompt, chat), each, params, metadata, traced=traced)
            for prompt, each in zip(prompts, sampling, strict=True)
        ]
        self.run()
        for request in requests:
            if request in self.refusals:
                raise RequestRefused(self.refusals.pop(request))
        return [self.completions.pop(request) for request in requests]

    @cached_property
    def tokenizer(self) -> TextTokenizer:
        """The tokenizer that the plan's requests speak, read when it is first needed; raises ModelError."""
        return TextTokenizer.of(self.plan, Path(self.settings.base))

    def _ids(self, prompt: str | Sequence[int], chat: bool) -> list[int]:
        if not isinstance(prompt, str):
            return list(prompt)
        if chat:
            return self.tokenizer.apply_chat_template([{"role": "user", "content": prompt}])
        return self.tokenizer.encode(prompt)

    def submit(
        self,
        prompt: list[int],
        sampling: Sampling | None = None,
        params: Mapping[str, float | bool] | None = None,
        metadata: Mapping[str, Value] | None = None,
        *,
        traced: bool = False,
        priority: int = 0,
    ) -> int:
        """Return the number of a new request; raises RequestRefused."""
        entry = self.book.submit(
            prompt, sampling or Sampling(), params, metadata, traced=traced, priority=priority
        )
        self.completions[entry.request] = Completion(
            prompt, decode=lambda ids: self.tokenizer.decode(ids)
        )
        return entry.request

    def abort(self, request: int) -> None:
        """End a request early; what it has so far stays in `completions`."""
        self.book.abort(request)

    # --- Events

    def run(self) -> None:
        """Let things happen until nothing can any more."""
        while self.step():
            pass
        assert not self.book.entries, f"requests stopped for ever: {list(self.book.entries)}"

    def step(self) -> bool:
        """Let one thing happen, messages before batches and subservers in turn; False where nothing can."""
        waiting = self.queues.waiting()
        if waiting:
            self.do(Event(waiting[0], None))
            return True
        n = len(self.subservers)
        for at in range(n):
            model = (self._turn + at) % n
            if self._step(model):
                self._turn = model + 1
                return True
        # A closed gate may have sent word of that; else only time can open one.
        return bool(self.queues.waiting()) or self._wait()

    def _wait(self) -> bool:
        """Let time pass until a request has waited long enough for its batch; False where none will."""
        waits = sorted(w for s in self.subservers if (w := s.wait_ms()) is not None)
        began = self.now
        for wait in waits:
            self.now = max(self.now, began + wait)
            if any(self._step(model) for model in range(len(self.subservers))):
                return True
        return False

    def events(self) -> list[Event]:
        """Return what can happen next; a batch may turn out not to be due."""
        messages = [Event(channel, None) for channel in self.queues.waiting()]
        return messages + [Event(None, model) for model in range(len(self.subservers))]

    def do(self, event: Event) -> bool:
        """Let one thing happen; False where the batch was not due."""
        if event.deliver is None:
            assert event.step is not None
            return self._step(event.step)
        self.now += TICK_MS
        data = self.queues.take(event.deliver)
        receiver = event.deliver[1]
        if receiver == FRONT_END:
            answer = parse_for_front_end(data, self.check)
            assert answer is not None
            self._receive(answer)
        else:
            message = parse_for_subserver(data, self.check, receiver)
            assert message is not None
            self.subservers[receiver].receive(message)
        return True

    def _step(self, model: int) -> bool:
        self.now += TICK_MS
        return self.subservers[model].step()

    def _receive(self, message: ToFrontEnd) -> None:
        match message:
            case Commits() | Scores():
                for token in self.book.commits(message):
                    self.completions[token.request].tokens.append(token)
            case Ready():
                if message.epoch == self.subservers[message.model].epoch:
                    self.book.ready(message)
            case Held() | Gated():
                self.book.told(message)
            case Tally():
                self._count(message)
            case Refused():
                entry = self.book.refused(message.request)
                if entry is not None:
                    self.refusals[entry.request] = message.reason
            case Lost():
                entry = self.book.lost(message.request)
                assert entry is None, f"request {message.request} is lost again and again"
            case Report() | Failed():
                pass

    def _count(self, tally: Tally) -> None:
        """Look at the windows whenever the first model has counted: the clock here is no measure."""
        self.tallies[tally.model] = tally
        self.adapter.take(tally)
        if self.settings.windows == "adaptive" and tally.model == 0:
            self.adapter.look_here()

    # --- Faults and checks

    def restart(self, model: int) -> None:
        """Lose a subserver with all that it holds and all that is on its way to it, and start another in its place."""
        self.queues.drop(model)
        self.book.down(model)
        self.subservers[model] = self._subserver(model, self.subservers[model].epoch + 1)
        self.subservers[model].announce()

    def check_integrity(self) -> None:
        """Assert that every page is accounted for, and that an idle engine holds nothing but cached prefixes."""
        idle = not self.book.entries and not self.queues.waiting()
        for subserver in self.subservers:
            subserver.check_integrity(idle=idle)
