"""What a client hands out: a request's tokens as they come, and how the runtime is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, Protocol

import msgspec

from tokenrouter.runtime.messages import Token

Ending = Literal["aborted", "stop", "timeout"]  # why its client's side ended a request early


class Watch(Protocol):
    """Who is told what becomes of one request; for metrics."""

    def token(self, token: Token) -> None:
        """A token has come, in order."""

    def ended(self, how: Ending | Exception) -> None:
        """No more tokens will come, and why."""


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
    failure: str | None = None  # why nothing can be served any more
    models: list[ModelStatus]


class Ticket:
    """A submitted request: an asynchronous iterator of its tokens, which ends after the one with `finish` set.

    Iterating raises SubserverLost where the request cannot go on, and RequestRefused where a subserver refuses it.
    A ticket that nobody iterates costs nothing but its tokens; `Client.abort` ends it early, and its iterator then
    just ends.
    """

    def __init__(self, request: int, watch: Watch | None = None) -> None:
        self.request = request
        self._watch = watch
        self._queue: asyncio.Queue[Token | Exception | None] = asyncio.Queue()
        self._over = False

    def put(self, item: Token | Exception) -> None:
        """Give the reader a token, or a reason why there are no more."""
        self._queue.put_nowait(item)
        if self._watch is not None:
            if isinstance(item, Token):
                self._watch.token(item)
            else:
                self._watch.ended(item)

    def end(self, how: Ending) -> None:
        """End the tokens without an error."""
        self._queue.put_nowait(None)
        if self._watch is not None:
            self._watch.ended(how)

    def __aiter__(self) -> AsyncIterator[Token]:
        """Return the tokens from the first one that was not yet taken."""
        return self

    async def __anext__(self) -> Token:
        """Return the next token."""
        if self._over:
            raise StopAsyncIteration
        item = await self._queue.get()
        if isinstance(item, Token):
            self._over = item.finish is not None
            return item
        self._over = True
        if item is None:
            raise StopAsyncIteration
        raise item
