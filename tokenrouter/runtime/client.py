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

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec

from tokenrouter.plan.structs import Plan, Value
from tokenrouter.runtime.messages import Sampling, Token


class ModelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One subserver as the front end last heard of it."""

    name: str
    ready: bool
    epoch: int  # starts at 1, one more with each restart
    pid: int | None
    capacity_tokens: int


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The runtime at a glance."""

    ready: bool
    running: int  # admitted requests, the N of the windows
    waiting: int  # requests that no subserver knows of yet
    models: list[ModelStatus]


class Ticket:
    """A submitted request: an asynchronous iterator of its tokens, which ends after the one with `finish` set.

    Iterating raises SubserverLost where the request cannot go on, and RequestRefused where a subserver refuses it.
    A ticket that nobody iterates costs nothing but its tokens; `Client.abort` ends it early, and its iterator then
    just ends.
    """

    request: int

    def __aiter__(self) -> AsyncIterator[Token]:
        """Return the tokens from the first one that was not yet taken."""
        raise NotImplementedError


class Client:
    """The subservers of one plan, and the requests that they serve."""

    def __init__(
        self,
        plan: Plan,
        *,
        base: Path | None = None,  # relative `Model.use` paths are looked up from here
        dtype: str | None = None,  # instead of the plan's
        deterministic: bool = False,
        threads: int | None = None,  # for each subserver; a share of the cores where None
        max_waiting: int = 1024,  # requests beyond the admitted ones before `submit` refuses
    ) -> None:
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether every subserver is up."""
        raise NotImplementedError

    @property
    def longest(self) -> int:
        """The most tokens of prompt and output together that a request may ask for."""
        raise NotImplementedError

    async def start(self, progress: Callable[[str], None] | None = None) -> None:
        """Start the subservers and return when all are ready; raises StartFailed, and then no process is left."""
        raise NotImplementedError

    def submit(
        self,
        prompt: list[int],
        sampling: Sampling,
        params: dict[str, float | bool] | None = None,
        metadata: dict[str, Value] | None = None,
        *,
        traced: bool = False,
    ) -> Ticket:
        """Admit or queue a request, from the event loop's thread; raises RequestRefused.

        `params` sets dials of the policy by name; an unknown name or a value outside its bounds is refused.
        """
        raise NotImplementedError

    def abort(self, request: int) -> None:
        """End a request early, wherever it is; one that is over already is no error."""
        raise NotImplementedError

    def status(self) -> Status:
        """Return what is running and waiting, and how each subserver is."""
        raise NotImplementedError

    async def close(self, deadline_s: float = 30.0) -> None:
        """Refuse new requests, let the running ones finish until the deadline, end the rest, end every process."""
        raise NotImplementedError
