"""One model under a chosen load: a subserver whose batch, context and peers are made up, so that its steps can be timed.

Every request that leaves comes back at once with as many tokens as its peers would have written. What is timed is a whole
step of the subserver: the hand-offs that it takes before, the model, sampling, signals, rules, and the messages that it sends.
Of messages all is timed but the sockets; where models step in turn, these too.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence as Some
from contextlib import nullcontext
from types import TracebackType
from typing import Protocol

import msgspec

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.checks import MessageCheck
from tokenrouter.runtime.load import load_runner, subserver
from tokenrouter.runtime.messages import (
    Abort,
    Active,
    Admit,
    Handoff,
    Sampling,
    encode,
)
from tokenrouter.runtime.row import Runner
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.state import initial, limits
from tokenrouter.runtime.transport import Message, parse_for_subserver

ROOM = 64  # tokens, at least, that a request may write before its batch is made anew
RETURNS = 4  # likewise
FOREVER = 2**30  # tokens of a stay that nobody ends
STRATA = 8  # of the numbers of tokens with which requests come back


class Turn(Protocol):
    """What lets one model step at a time."""

    @property
    def since(self) -> float | None:
        """When a step of another ended that came right before, s."""

    def send(self, receiver: int, message: Message) -> None:
        """Do with a message of a step what the server does, but for its arrival."""

    def __enter__(self) -> None:
        """Wait for one's turn."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        """Let another one step."""


class Alone(nullcontext[None]):
    """The turn of a model that steps whenever it likes."""

    since = None

    def send(self, receiver: int, message: Message) -> None:
        """Make bytes of a message."""
        encode(message)


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
        self.check = MessageCheck(plan)
        self._taking_ms = 0.0  # what the hand-offs took that the next step finds
        self.subserver = subserver(
            plan, model, self.runner, self._send, _now_ms, settings=self.settings
        )
        self.batch = self.context = self.last = 0
        self.room = ROOM
        self.unread: Some[int] = (
            1,
        )  # tokens of others with which requests come back, each as often
        self.sampling = Sampling()
        self.turn: Turn = Alone()  # with other models' steps
        self.followed = False  # whether the latest step came right after another model's
        self.random = random.Random(0)
        self._deck: list[int] = []
        self._written_out = False  # whether a request is near the most that it may write

    def _send(self, to: int, message: Message) -> None:
        self.turn.send(to, message)
        if isinstance(message, Handoff):
            self.left.append(message)

    def fits(self, batch: int, context: int, unread: Some[int] = (1,)) -> bool:
        """Return whether the pool and the model's context hold such a batch."""
        pool = self.subserver.scheduler.pool.total
        size = self.plan.memory.page_size
        longest = limits(self.plan).context
        whole = context + _room(unread)
        return batch * -(-whole // size) <= pool and whole < longest

    def load(
        self,
        batch: int,
        context: int,
        unread: Some[int] = (1,),
        sampling: Sampling = Sampling(),  # noqa: B008 - it is frozen
    ) -> None:
        """Replace all requests by `batch` others that have read `context` tokens each, and come back with some of `unread`."""
        if unread != self.unread:
            self._deck.clear()
        self.unread, self.sampling, self.room = unread, sampling, _room(unread)
        self.batch, self.context, self._written_out = batch, context, False
        self._clear()
        self._fill()

    def _clear(self) -> None:
        """End all requests."""
        self.left.clear()
        for request in list(self.subserver.scheduler.sequences):
            self.subserver.receive(Abort(request=request))

    def _fill(self) -> None:
        """Admit requests until the batch is full, and read their prompts."""
        self.subserver.receive(Active(n=self.batch))
        scheduler = self.subserver.scheduler
        while len(scheduler.sequences) < self.batch:
            self.last += 1
            self.subserver.receive(self._admit(self.last))
        # Those that leave meanwhile come back when all are there.
        while any(s.owned and s.cached < s.n_prompt for s in scheduler.sequences.values()):
            with self.turn:
                self.subserver.step()
        self._return()

    def _admit(self, request: int) -> Admit:
        n = len(self.plan.models)
        state = initial(self.plan, self.model)
        if not self.plan.programs[self.model].rules:  # it only lends
            home = next(at for at in range(n) if at != self.model)
            state = msgspec.structs.replace(state, home=home, remaining=FOREVER)
        sampling = msgspec.structs.replace(
            self.sampling, max_tokens=self.room, ignore_eos=True, seed=request
        )
        # A batch made anew has the same prompts, which are known: nobody waits for them to be read.
        known = random.Random(request % self.batch)
        return Admit(
            request=request,
            prompt=[known.randrange(self.plan.tokenizer.size) for _ in range(self.context)],
            sampling=sampling,
            params=[float(param.value) for param in self.plan.params],
            state=state,
            epochs=[1] * n,
        )

    def read(self, context: int) -> float:
        """Read a prompt that is not known yet, from admission to the first candidate, and return what it took, ms."""
        self._clear()
        self.last += 1
        self.batch, self.context = 1, context
        unknown = [self.random.randrange(self.plan.tokenizer.size) for _ in range(context)]
        admit = msgspec.structs.replace(self._admit(self.last), prompt=unknown)
        self.subserver.receive(Active(n=1))
        begin = time.perf_counter()
        self.subserver.receive(admit)
        sequence = self.subserver.scheduler.sequences[self.last]
        while sequence.owned and sequence.cached < context:
            with self.turn:
                assert self.subserver.step(), "a prompt was not due"
        took = 1000 * (time.perf_counter() - begin)
        self._clear()
        return took

    def step(self) -> float:
        """Run one step of the whole batch and return what it took, ms: from the end of another's that came right before, else from now on."""
        sequences = self.subserver.scheduler.sequences
        if self._written_out:
            self.load(self.batch, self.context, self.unread, self.sampling)
        elif len(sequences) < self.batch:
            self._fill()
        begin = time.monotonic()
        with self.turn:
            ran = self.subserver.step()
        since = self.turn.since
        self.followed = since is not None
        # Who was not in line yet when the other ended would count its own delay.
        took = 1000 * (time.monotonic() - max(begin, since or 0.0)) + self._taking_ms
        self._taking_ms = 0.0
        assert ran, "a full batch was not due"
        longest = max((sequence.n_output for sequence in sequences.values()), default=0)
        # Found before any comes back with tokens that no step would read.
        self._written_out = longest + max(self.unread) + 2 >= self.room
        if not self._written_out:
            self._return()
        return took

    def _return(self) -> None:
        """Let the requests that left come back, each with tokens of its peers."""
        left, self.left = self.left, []
        back: list[bytes] = []
        for handoff in left:
            if handoff.request not in self.subserver.scheduler.sequences:
                # A request without pages to come back to is forgotten by the sender; another takes its place.
                continue
            unread = self._drawn()
            end = handoff.start + len(handoff.tokens)
            state = msgspec.structs.replace(
                handoff.state,
                owner=self.model,
                position=handoff.state.position + unread,
                since_switch=0,
                tried=0,
                home=None,
                remaining=0,
                until=None,
            )
            tokens = [self.random.randrange(self.plan.tokenizer.size) for _ in range(unread)]
            again = Handoff(
                request=handoff.request,
                epoch=self.subserver.epoch,
                start=end,
                tokens=tokens,
                seen=[end + unread] * len(handoff.seen),
                state=state,
            )
            back.append(encode(again))
        begin = time.perf_counter()
        for data in back:
            message = parse_for_subserver(data, self.check, self.model)
            assert message is not None, "a made-up hand-off is none"
            self.subserver.receive(message)
        self._taking_ms = 1000 * (time.perf_counter() - begin)

    def _drawn(self) -> int:
        """Return with how many tokens a request comes back: each number of `unread` once before any comes again."""
        if not self._deck:
            self._deck = dealt(self.unread, self.random)
        return self._deck.pop()


def dealt(values: Some[int], rng: random.Random) -> list[int]:
    """Return the values in an order in which few in a row stand for all: of each eighth of them one, then of each another.

    A few steps of large batches are all that is timed; where some bring twice as many tokens as others, luck would decide.
    """
    ordered, n = sorted(values), min(STRATA, len(values))
    strata = [ordered[len(ordered) * at // n : len(ordered) * (at + 1) // n] for at in range(n)]
    for stratum in strata:
        rng.shuffle(stratum)
    out: list[int] = []
    while any(strata):
        round_ = [stratum.pop() for stratum in strata if stratum]
        rng.shuffle(round_)
        out += round_
    return out


def _room(unread: Some[int]) -> int:
    """Return how many tokens a request may write."""
    return max(ROOM, RETURNS * (1 + sum(unread) // len(unread)) + 2 * max(unread))


def _now_ms() -> float:
    return time.monotonic() * 1000.0
