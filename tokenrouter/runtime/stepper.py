"""One model under a chosen load: a subserver whose batch, context and peers are made up, so that its steps can be timed.

Every request that leaves comes back at once with as many tokens as its peers would have written. What is timed is a whole
step of the subserver: the model, sampling, signals, rules and messages.
"""

from __future__ import annotations

import random
import time

import msgspec

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.load import load_runner, subserver
from tokenrouter.runtime.messages import (
    Abort,
    Active,
    Admit,
    Handoff,
    Sampling,
    ToFrontEnd,
    ToSubserver,
)
from tokenrouter.runtime.row import Runner
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.state import initial, limits

ROOM = 64  # tokens, at least, that a request may write before its batch is made anew
RETURNS = 4  # likewise
FOREVER = 2**30  # tokens of a stay that nobody ends


class Stepper:
    """A subserver of one model, and the requests that it was given."""

    def __init__(
        self, plan: Plan, model: int, settings: Settings, runner: Runner | None = None
    ) -> None:
        self.plan = plan
        self.model = model
        self.settings = msgspec.structs.replace(settings, windows="off")
        self.runner = runner or load_runner(plan, model, settings)
        self.left: list[Handoff] = []
        self.subserver = subserver(
            plan, model, self.runner, self._send, _now_ms, settings=self.settings
        )
        self.batch = self.context = self.steps = self.last = 0
        self.unread, self.room = 1, ROOM
        self.random = random.Random(0)

    def _send(self, to: int, message: ToSubserver | ToFrontEnd) -> None:
        if isinstance(message, Handoff):
            self.left.append(message)

    def fits(self, batch: int, context: int, unread: int = 1) -> bool:
        """Return whether the pool and the model's context hold such a batch."""
        pool = self.subserver.scheduler.pool.total
        size = self.plan.memory.page_size
        longest = limits(self.plan).context
        whole = context + _room(unread)
        return batch * -(-whole // size) <= pool and whole < longest

    def load(self, batch: int, context: int, unread: int = 1) -> None:
        """Replace all requests by `batch` others that have read `context` tokens each, and come back with `unread`."""
        self.unread, self.room = unread, _room(unread)
        self.batch, self.context, self.steps = batch, context, 0
        for request in list(self.subserver.scheduler.sequences):
            self.subserver.receive(Abort(request=request))
        self._fill()

    def _fill(self) -> None:
        """Admit requests until the batch is full, and read their prompts."""
        self.subserver.receive(Active(n=self.batch))
        scheduler = self.subserver.scheduler
        while len(scheduler.sequences) < self.batch:
            self.last += 1
            self.subserver.receive(self._admit(self.last))
        while scheduler.held():  # those that leave meanwhile come back when all are there
            self.subserver.step()
        self._return()

    def _admit(self, request: int) -> Admit:
        n = len(self.plan.models)
        state = initial(self.plan, self.model)
        if not self.plan.programs[self.model].rules:  # it only lends
            home = next(at for at in range(n) if at != self.model)
            state = msgspec.structs.replace(state, home=home, remaining=FOREVER)
        size = self.plan.tokenizer.size
        return Admit(
            request=request,
            prompt=[self.random.randrange(size) for _ in range(self.context)],
            sampling=Sampling(max_tokens=self.room, ignore_eos=True, seed=request),
            params=[float(param.value) for param in self.plan.params],
            state=state,
            epochs=[1] * n,
        )

    def step(self) -> float:
        """Run one step of the whole batch and return what it took, ms."""
        self.steps += 1
        if self.steps >= self.room // (1 + self.unread):
            self.load(self.batch, self.context, self.unread)
        elif len(self.subserver.scheduler.sequences) < self.batch:
            self._fill()
        begin = time.perf_counter()
        ran = self.subserver.step()
        took = 1000 * (time.perf_counter() - begin)
        assert ran, "a full batch was not due"
        self._return()
        return took

    def _return(self) -> None:
        """Let the requests that left come back, each with tokens of its peers."""
        left, self.left = self.left, []
        for handoff in left:
            if handoff.request not in self.subserver.scheduler.sequences:
                # A request without pages to come back to is forgotten by the sender; another takes its place.
                continue
            end = handoff.start + len(handoff.tokens)
            state = msgspec.structs.replace(
                handoff.state,
                owner=self.model,
                position=handoff.state.position + self.unread,
                since_switch=0,
                tried=0,
                home=None,
                remaining=0,
                until=None,
            )
            self.subserver.receive(
                Handoff(
                    request=handoff.request,
                    epoch=self.subserver.epoch,
                    start=end,
                    tokens=[
                        self.random.randrange(self.plan.tokenizer.size) for _ in range(self.unread)
                    ],
                    seen=[end + self.unread] * len(handoff.seen),
                    state=state,
                )
            )


def _room(unread: int) -> int:
    """Return how many tokens a request may write."""
    return max(ROOM, RETURNS * (1 + unread))


def _now_ms() -> float:
    return time.monotonic() * 1000.0
