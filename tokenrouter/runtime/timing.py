"""L_i(b) of every model of a plan, as it is on this machine: one process a model, as the server has them.

Each model is timed on a grid of batch sizes and at two context lengths, while the others are idle and while they are busy
at the same context; with more than two models also while each single one of them is busy, at one size and the shorter context.
Where models step in turn, none is ever busy beside another: then steps that follow one's own are timed, and steps that follow
another's, of any other where there are several, since all are in line.
"""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from tokenrouter.models import ModelError
from tokenrouter.plan.structs import Plan
from tokenrouter.profile.structs import Figure, ModelTimes, ReadTime, Slowed, StepTime
from tokenrouter.runtime.checks import MessageCheck
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.scheduler import RETURN
from tokenrouter.runtime.settings import Boot, Settings
from tokenrouter.runtime.stepping import Answer, Order
from tokenrouter.runtime.transport import FRONT_END, Sockets, endpoint, parse_for_front_end
from tokenrouter.runtime.turns import in_turn
from tokenrouter.runtime.waiting import environment

CONTEXTS = (64, 512)  # tokens that a request has read
PROMPTS = (16, 64, 256, 1024)  # tokens
MOST_READ = 16_384  # tokens of all prompts of one point; larger batches are measured at the shorter context only
MOST_UNREAD = (
    RETURN - 4
)  # tokens with which a request comes back; longer absences are timed as this long

LISTEN_MS = 200.0  # between two looks at whether it is over
FAR = 3.0  # quartile distances above the upper one: a step that something else interrupted
BUSY_BATCH = 8  # of the models that are kept busy, and at which pairs are measured

Say = Callable[[str], None]


class Effort(msgspec.Struct, frozen=True):
    """How much is measured."""

    ratio: float  # between batch sizes
    each: int  # batch sizes up to this one are all measured: there times rise in jumps, and fall
    steps: int  # of one point, at most
    most_ms: float  # of one point, about
    contexts: tuple[int, ...] = CONTEXTS  # ascending
    prompts: tuple[int, ...] = PROMPTS  # lengths, ascending


FULL = Effort(2**0.5, 16, 40, 1500.0)
QUICK = Effort(8.0, 1, 8, 250.0)


class Worker:
    """A process that steps one model."""

    def __init__(
        self, boot: Path, model: int, name: str, unread: tuple[int, ...], sampling: Sampling
    ) -> None:
        self.name = name
        self.unread = unread
        self.sampling = sampling
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tokenrouter.runtime.stepping", str(boot), str(model)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
        )
        self.dtype = ""

    def answer(self) -> Answer:
        """Return the next answer; raises ModelError where the process has ended instead."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise ModelError(
                f"model `{self.name}`: its process ended while it was measured (status {self.process.wait()})"
            )
        answer = msgspec.json.decode(line, type=Answer)
        if answer.error:
            raise ModelError(answer.error)
        return answer

    def order(self, order: Order) -> None:
        """Tell the process what to do."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # the answer that does not come will tell
            order = msgspec.structs.replace(order, unread=self.unread, sampling=self.sampling)
            self.process.stdin.write(msgspec.json.encode(order) + b"\n")
            self.process.stdin.flush()

    def ask(self, order: Order) -> Answer:
        """Tell the process what to do and wait for it."""
        self.order(order)
        return self.answer()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


class Listener:
    """Takes what models in turn have to say, as a front end does: it reads and checks each message while a model steps."""

    def __init__(self, plan: Plan, directory: Path, key: bytes) -> None:
        self._check = MessageCheck(plan)
        self._sockets = Sockets(FRONT_END, {FRONT_END: endpoint(directory, FRONT_END)}, key)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="listener")
        self._thread.start()

    def _listen(self) -> None:
        while not self._ended.is_set():
            self._sockets.wait(LISTEN_MS)
            for data in self._sockets.receive():
                parse_for_front_end(data, self._check)
        self._sockets.close()

    def close(self) -> None:
        """Listen no more."""
        self._ended.set()
        self._thread.join()


def step_times(
    plan: Plan,
    settings: Settings,
    effort: Effort,
    unread: Sequence[list[int]],
    sampling: Sampling,
    say: Say,
) -> list[ModelTimes]:
    """Return the step times of every model; raises ModelError.

    `unread`, by model, is how many tokens of others requests bring when they come back, each number as often: they are read
    in the same step.
    """
    with tempfile.TemporaryDirectory(prefix="trc-") as directory:
        boot, key = Path(directory) / "boot.json", secrets.token_bytes(16)
        told = Boot(plan=plan, settings=settings, parent=os.getpid(), key=key.hex())
        boot.write_bytes(msgspec.json.encode(told))
        turns = in_turn(plan, settings)
        listener = Listener(plan, Path(directory), key) if turns else None
        workers: list[Worker] = []
        try:
            for at, model in enumerate(plan.models):
                most = max(1, min(MOST_UNREAD, model.context // 16))
                returns = tuple(min(n, most) for n in unread[at])
                workers.append(Worker(boot, at, model.name, returns, sampling))
            for worker in workers:
                say(f"loading {worker.name}")
                worker.dtype = worker.answer().dtype
            return [_model(plan, workers, at, effort, say, turns) for at in range(len(workers))]
        finally:
            for worker in workers:
                worker.close()
            if listener is not None:
                listener.close()


def _model(
    plan: Plan, workers: list[Worker], at: int, effort: Effort, say: Say, turns: bool
) -> ModelTimes:
    worker, model = workers[at], plan.models[at]
    others = [other for place, other in enumerate(workers) if place != at]
    short = min(effort.contexts[0], max(1, model.context // 4))
    longer = [min(context, max(2, model.context // 2)) for context in effort.contexts[1:]]
    grid = sizes(plan.windows.max_active, effort.ratio, effort.each)
    steps = []
    for context in (short, *longer):
        for batch in grid:
            order = _order(batch, context, effort)
            if batch > 1 and batch * context > MOST_READ and context != short:
                continue
            if not worker.ask(msgspec.structs.replace(order, do="fits")).fits:
                continue
            idle = figure(worker.ask(order).ms)
            step = StepTime(batch=batch, context=context, idle=idle)
            if others:
                beside = msgspec.structs.replace(order, do="after") if turns else order
                with _busy(others, min(BUSY_BATCH, plan.windows.max_active), context):
                    ms = worker.ask(beside).ms
                other = {"after" if turns else "busy": figure(ms)} if ms else {}
                step = msgspec.structs.replace(step, **other)
            say(_told(model.name, step))
            steps.append(step)
    if not steps:
        raise ModelError(
            f"model `{model.name}`: not even one request of {short} tokens fits its KV pool; compile with a larger `--kv-budget`"
        )
    reads = list(_reads(worker, model.context, effort, say))
    slowed = _slowed(plan, workers, at, steps, effort)
    return ModelTimes(
        name=model.name,
        fingerprint=model.fingerprint,
        dtype=worker.dtype,
        unread=worker.unread,
        steps=steps,
        reads=reads,
        slowed=slowed,
    )


def _slowed(
    plan: Plan, workers: list[Worker], at: int, steps: list[StepTime], effort: Effort
) -> list[Slowed]:
    """Return what each other model alone does to this one; nothing where models step in turn."""
    others = [place for place in range(len(workers)) if place != at]
    if len(others) == 1:
        return [
            Slowed(by=others[0], batch=step.batch, context=step.context, step=step.busy)
            for step in steps
            if step.busy is not None
        ]
    short = steps[0].context
    busy = [s for s in steps if s.busy is not None and s.batch <= BUSY_BATCH and s.context == short]
    out = []
    for other in others if busy else []:
        point = busy[-1]
        with _busy([workers[other]], point.batch, point.context):
            ms = workers[at].ask(_order(point.batch, point.context, effort)).ms
        slowed = Slowed(by=other, batch=point.batch, context=short, step=figure(ms))
        out.append(slowed)
    return out


def _reads(worker: Worker, longest: int, effort: Effort, say: Say) -> Iterator[ReadTime]:
    """Yield how long prompts are read that fit."""
    for tokens in effort.prompts:
        order = msgspec.structs.replace(_order(1, tokens, effort), do="read")
        if tokens > longest // 2 or not worker.ask(msgspec.structs.replace(order, do="fits")).fits:
            return
        time = figure(worker.ask(order).ms)
        say(f"{worker.name}: a prompt of {tokens} tokens: {time.mean:.4g} ms")
        yield ReadTime(tokens=tokens, time=time)


def _order(batch: int, context: int, effort: Effort) -> Order:
    return Order(
        do="time", batch=batch, context=context, steps=effort.steps, most_ms=effort.most_ms
    )


@contextmanager
def _busy(workers: Sequence[Worker], batch: int, context: int) -> Iterator[None]:
    """Keep models busy for a while."""
    for worker in workers:
        size = batch
        while size > 1 and not worker.ask(Order(do="fits", batch=size, context=context)).fits:
            size //= 2
        worker.ask(Order(do="spin", batch=size, context=context))
    yield
    for worker in workers:
        # Any order ends the spinning; this one has no effect.
        worker.ask(Order(do="fits"))
        worker.answer()


def sizes(most: int, ratio: float, each: int = 1) -> list[int]:
    """Return the batch sizes that are measured: all up to `each`, then powers of the ratio, rounded, and the largest."""
    out, wanted = list(range(1, min(each, most) + 1)), 1.0
    while (wanted := wanted * ratio) < most:
        if round(wanted) > out[-1]:
            out.append(round(wanted))
    return out if out[-1] == most else [*out, most]


def figure(ms: list[float]) -> Figure:
    """Return the mean, the median and the quartiles of some times; the mean leaves out what lies far beyond the quartiles."""
    low, median, high = statistics.quantiles(ms, n=4, method="inclusive")
    usual = [t for t in ms if t <= high + FAR * (high - low)]
    return Figure(
        mean=_digits(statistics.fmean(usual)),
        median=_digits(median),
        low=_digits(low),
        high=_digits(high),
        n=len(ms),
    )


def _digits(ms: float) -> float:
    return float(f"{ms:.4g}")


def _told(name: str, step: StepTime) -> str:
    more = "" if step.busy is None else f", {step.busy.median:.4g} ms while others are busy"
    if step.after is not None:
        more = f", {step.after.median:.4g} ms after another model's"
    return (
        f"{name}: batch {step.batch}, {step.context} tokens: {step.idle.median:.4g} ms a step{more}"
    )
