"""Running a plan under conditions that must not matter: company, order, memory, chunks, prefill, windows, deaths.

`serve` drives the in-process engine by events that a seed chooses, and gives what each request wrote. `PagedTokens` is
a model whose KV pool holds token ids, so that the whole runtime but its arithmetic can be run in microseconds a step
and every fault in its bookkeeping still shows in the logits.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
import numpy as np
import torch

from tokenrouter.plan import structs as s
from tokenrouter.runtime.engine import Completion, Engine
from tokenrouter.runtime.load import wrap
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.model import LanguageModel
from tokenrouter.runtime.reference.load import Logits, Remembered
from tokenrouter.runtime.row import Runner, StepOutput
from tokenrouter.runtime.runner import ModelRunner
from tokenrouter.runtime.scheduler import Chunk
from tokenrouter.runtime.settings import WindowMode
from tokenrouter.runtime.subserver import Subserver

STALE = -1


@dataclass(frozen=True)
class Request:
    """What a client asks for."""

    prompt: list[int]
    sampling: Sampling
    params: Mapping[str, float | bool] = field(default_factory=dict)
    metadata: Mapping[str, s.Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Conditions:
    """What surrounds a request and must not change it."""

    crowd: int = 16  # requests in flight at most
    order: int | None = (
        None  # seed of arrivals and of the order of events; None is the engine's own
    )
    capacity: int | None = None  # tokens of each KV pool; small ones force preemption
    chunk: int = 512  # tokens of a batch
    prefill: Literal["eager", "lazy"] | None = None  # of every model; None as compiled
    windows: int | None = None  # seed of a table of feasible windows
    deaths: int = 0  # subservers lost on the way
    aborts: int = 0  # other requests that are given up on the way
    mode: WindowMode = "fixed"  # of the windows
    graphs: bool = False  # whether short steps are captured
    swaps: bool = False  # whether other tables are put in force on the way
    late: bool = False  # whether grammars are followed in threads that no batch waits for


def under(plan: s.Plan, conditions: Conditions) -> s.Plan:
    """Return a plan with its memory, prefill and windows as the conditions say."""
    if conditions.capacity is not None:
        memory = msgspec.structs.replace(plan.memory, capacity_tokens=conditions.capacity)
        plan = msgspec.structs.replace(plan, memory=memory)
    if conditions.prefill is not None:
        plan = _prefill(plan, conditions.prefill)
    if conditions.windows is not None:
        table = feasible(len(plan.models), plan.windows.max_active, conditions.windows)
        windows = msgspec.structs.replace(plan.windows, table=table)
        plan = msgspec.structs.replace(plan, windows=windows)
    return plan


def _prefill(plan: s.Plan, prefill: Literal["eager", "lazy"]) -> s.Plan:
    models = [msgspec.structs.replace(model, prefill=prefill) for model in plan.models]
    graphs = []
    for graph in plan.subservers:
        admit = msgspec.structs.replace(graph.tasks[0], prefill=prefill)
        graphs.append(msgspec.structs.replace(graph, tasks=[admit, *graph.tasks[1:]]))
    return msgspec.structs.replace(plan, models=models, subservers=graphs)


def feasible(n_models: int, max_active: int, seed: int) -> list[list[int]]:
    """Return random windows, by model and active requests N, whose excesses over 1 sum to less than N."""
    rng = random.Random(seed)
    table = [[1] * max_active for _ in range(n_models)]
    for n in range(1, max_active + 1):
        for _ in range(rng.randrange(n)):
            table[rng.randrange(n_models)][n - 1] += 1
    return table


class PagedTokens:
    """A model by its function from ids to logits, behind a KV pool.

    The «KV» of a position is the tuple of all ids that it was computed from. A step computes from what lies in the
    sequence's pages; where a page is lost, shared wrongly or stale, the logits are those of another text.
    """

    def __init__(self, logits: Logits, plan: s.Plan) -> None:
        self.logits = logits
        self.size = plan.tokenizer.size
        self.page_size = plan.memory.page_size
        self.capacity_tokens = plan.memory.capacity_tokens
        self.kv: dict[tuple[int, int], tuple[int, ...]] = {}  # by page and slot

    def run(self, chunks: list[Chunk], *, hidden: bool) -> StepOutput:
        """Read the chunks' tokens and return the logits of those that sample."""
        rows = [self._read(chunk) for chunk in chunks]
        wanted = [self._row(r) for chunk, r in zip(chunks, rows, strict=True) if chunk.samples]
        logits = np.stack(wanted) if wanted else np.zeros((0, self.size))
        states = None
        if hidden:
            sampling = [r for chunk, r in zip(chunks, rows, strict=True) if chunk.samples]
            states = torch.tensor(np.array([self._state(r) for r in sampling]))
        return StepOutput(torch.from_numpy(logits), states)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the input embeddings of tokens."""
        assert isinstance(self.logits, Remembered)
        return torch.tensor(np.array([self.logits.embedding(t) for t in tokens.tolist()]))

    def _read(self, chunk: Chunk) -> list[int]:
        pages, tokens = chunk.sequence.pages, chunk.sequence.tokens
        seen = self._seen(pages, chunk.start)
        for at in range(chunk.start, chunk.start + chunk.n):
            seen.append(tokens[at])
            self.kv[self._place(pages, at)] = tuple(seen)
        return seen

    def _seen(self, pages: Sequence[int], n: int) -> list[int]:
        """Return the ids that the first `n` positions stand for; `STALE` where they were computed from others."""
        seen: list[int] = []
        for at in range(n):
            kv = self.kv.get(self._place(pages, at), (STALE,))
            seen.append(kv[-1] if list(kv[:-1]) == seen else STALE)
        return seen

    def _place(self, pages: Sequence[int], at: int) -> tuple[int, int]:
        return pages[at // self.page_size], at % self.page_size

    def _row(self, ids: list[int]) -> np.ndarray:
        known = [max(token, 0) for token in ids]
        row = self.logits(known)[: self.size].copy()
        return row if known == ids else np.roll(row, 1 + ids.count(STALE))

    def _state(self, ids: list[int]) -> np.ndarray:
        assert isinstance(self.logits, Remembered), "this model shows no states"
        known = [max(token, 0) for token in ids]
        row = self.logits.hidden(known)
        return row if known == ids else np.roll(row, 1 + ids.count(STALE))


class Watched:
    """A runner whose logits are noted: the same text must give the same bits, whatever else is in the batch."""

    def __init__(self, runner: ModelRunner, seen: dict[tuple[int, ...], bytes]) -> None:
        self.runner = runner
        self.capacity_tokens = runner.capacity_tokens
        self.seen = seen

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the input embeddings of tokens."""
        return self.runner.embed(tokens)

    def run(self, chunks: list[Chunk], *, hidden: bool) -> StepOutput:
        """Run a batch; raises where a text gives other bits than before."""
        out = self.runner.run(chunks, hidden=hidden)
        sampling = [chunk for chunk in chunks if chunk.samples]
        for chunk, row in zip(sampling, out.logits, strict=True):
            text = tuple(chunk.sequence.tokens[: chunk.start + chunk.n])
            bits = row.numpy().tobytes()
            before = self.seen.setdefault(text, bits)
            assert before == bits, (
                f"{len(chunks)} chunks, {chunk.n} tokens after {chunk.start}: other bits"
            )
        return out


@dataclass
class Served:
    """What came of some requests."""

    completions: list[Completion]
    engine: Engine

    @property
    def preempted(self) -> int:
        """Return how often a sequence was preempted."""
        return sum(subserver.scheduler.n_preempted for subserver in self.engine.subservers)


def serve(
    plan: s.Plan,
    requests: Sequence[Request],
    conditions: Conditions,
    models: Sequence[LanguageModel | Remembered],
    bits: Mapping[str, dict[tuple[int, ...], bytes]] | None = None,
) -> Served:
    """Return what every request wrote; models that are functions run behind paged tokens.

    `bits` holds, by `use`, the logits of every text so far; other bits of the same text are an error.
    """
    plan = under(plan, conditions)
    runners: list[Runner | LanguageModel] = []
    for declared, model in zip(plan.models, models, strict=True):
        if isinstance(model, Remembered):
            runners.append(PagedTokens(model, plan))
        elif bits is not None:
            runners.append(Watched(wrap(plan, model), bits[declared.use]))
        else:
            runners.append(model)
    engine = Engine(
        plan,
        models=runners,
        max_batch_tokens=conditions.chunk,
        windows=conditions.mode,
        deterministic=bits is not None,
        graphs="on" if conditions.graphs else "off",
    )
    for runner in engine.runners:
        forget(runner)
    drive = _Driver(engine, requests, conditions)
    drive.run()
    engine.check_integrity()
    return Served([drive.completions[at] for at in range(len(requests))], engine)


def forget(runner: Runner) -> None:
    """Put into a KV pool what nobody must ever read, as at the start of a process."""
    if isinstance(runner, PagedTokens):
        runner.kv.clear()
    elif isinstance(runner, Watched):
        forget(runner.runner)
    else:
        assert isinstance(runner, ModelRunner), runner
        for tensor in (*runner.cache.keys, *runner.cache.values):
            tensor.fill_(1e3)


class _Driver:
    """Lets requests arrive and things happen in the order that a seed chooses."""

    def __init__(self, engine: Engine, requests: Sequence[Request], conditions: Conditions) -> None:
        self.engine = engine
        self.requests = requests
        self.conditions = conditions
        self.rng = random.Random(conditions.order or 0)
        self.arrivals = list(range(len(requests)))
        if conditions.order is not None:
            self.rng.shuffle(self.arrivals)
        self.running: dict[int, int] = {}  # engine's number -> place
        self.completions: dict[int, Completion] = {}
        self.given_up: set[int] = set()
        self.aside: dict[int, Subserver] = {}  # with threads for grammars, by identity
        # Accidents are spread over the run by counting down to them.
        self.accidents = ["death"] * conditions.deaths + ["abort"] * conditions.aborts
        self.rng.shuffle(self.accidents)
        self.until_accident = self.rng.randint(5, 60)

    def run(self) -> None:
        while self.arrivals or self.running:
            self._admit()
            self._happen()
            self._accident()
            self._collect()
            if self.rng.random() < 0.1:
                self.engine.check_integrity()
        self.engine.run()

    def _admit(self) -> None:
        eager = self.conditions.order is None
        while self.arrivals and len(self.running) < self.conditions.crowd:
            if self.running and not eager and self.rng.random() < 0.7:
                return
            at = self.arrivals.pop(0)
            self.running[self._submit(self.requests[at])] = at

    def _submit(self, request: Request) -> int:
        return self.engine.submit(
            request.prompt, request.sampling, request.params, request.metadata, traced=True
        )

    def _happen(self) -> None:
        if self.conditions.swaps and self.rng.random() < 0.05:
            plan = self.engine.plan
            table = feasible(len(plan.models), plan.windows.max_active, self.rng.randrange(2**32))
            self.engine.book.set_windows(table)
        if self.conditions.order is not None:
            events = self.engine.events()
            self.rng.shuffle(events)
            if any(self.engine.do(event) for event in events[:1]) or self.rng.random() < 0.5:
                return
            if any(self.engine.do(event) for event in events[1:]):
                return
        if self.conditions.late:
            self._go_aside()
        going = self.engine.step() or any(s.scheduler.barred for s in self.engine.subservers)
        assert going, f"nothing can happen and {len(self.running)} requests wait"

    def _go_aside(self) -> None:
        """Give every subserver threads for grammars, those that have just been started included."""
        for subserver in self.engine.subservers:
            if id(subserver) not in self.aside and subserver.masks is not None:
                subserver.masks.go_aside(patience_ms=0)
                self.aside[id(subserver)] = subserver

    def _accident(self) -> None:
        if not self.accidents:
            return
        self.until_accident -= 1
        if self.until_accident > 0:
            return
        self.until_accident = self.rng.randint(5, 60)
        if self.accidents.pop() == "death":
            lost = self.rng.randrange(len(self.engine.subservers))
            forget(self.engine.runners[lost])
            self.engine.restart(lost)
        else:
            doomed = self.rng.choice(self.requests)
            self.given_up.add(self._submit(doomed))
            if len(self.given_up) > 1:
                self.engine.abort(self.given_up.pop())

    def _collect(self) -> None:
        for request, at in list(self.running.items()):
            if self.engine.completions[request].finish is not None:
                self.completions[at] = self.engine.completions.pop(request)
                del self.running[request]
