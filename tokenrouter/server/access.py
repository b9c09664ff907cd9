"""Each HTTP request under an id of its own: on every response, in every line logged meanwhile, and in one line at its end.

`Access` is the outermost layer, so that refusals by any layer below have an id and a line too. It never logs what a client
wrote beside the method and the path: no prompt, no answer, no message that could quote them.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenrouter.runtime.logs import Fields, told
from tokenrouter.runtime.messages import Token
from tokenrouter.server.answer import Answer
from tokenrouter.server.errors import ErrorDetail

HEADER = b"x-request-id"
MAX_ID_CHARS = 128
PROBES = ("/health", "/ready", "/metrics")
NOT_NOW = ("not_ready", "given_up")  # also in the middle of a stream, whose status is 200

_ID = re.compile(rf"[A-Za-z0-9._:/+=@-]{{1,{MAX_ID_CHARS}}}")
_log = logging.getLogger("tokenrouter.server")


@dataclass(eq=False, slots=True)
class Taken:
    """One request on its way, and what became of it."""

    id: str
    method: str
    path: str
    client: str
    headers: dict[bytes, bytes]
    begun: float = field(default_factory=time.monotonic)
    status: int = 0  # 0 until the response has begun
    gone: bool = False  # whether the client left before the end
    error: ErrorDetail | None = None
    answer: Answer | None = None  # of completions, once they are admitted
    first_token: float | None = None
    observers: Sequence[Observer] = ()
    _handoffs: dict[int, int] = field(default_factory=dict)  # so far, by choice

    def begins(self, answer: Answer) -> None:
        """Note which answer the request gets, and watch its tokens."""
        self.answer = answer
        answer.generation.on_token = self.token
        for observer in self.observers:
            observer.answered(self, answer)

    def token(self, choice: int, token: Token) -> None:
        """Note a committed token."""
        if self.first_token is None:
            self.first_token = time.monotonic()
            for observer in self.observers:
                observer.first_token(self)
        before = self._handoffs.get(choice, 0)
        if token.state.switches > before:
            self._handoffs[choice] = token.state.switches
            for observer in self.observers:
                observer.handed_off(self, choice, token)

    def fields(self) -> Fields:
        """Return what the line at the end tells."""
        out: Fields = {
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "ms": round(1e3 * (time.monotonic() - self.begun), 2),
            "client": self.client,
        }
        if self.error is not None:
            out["error"] = self.error.code or self.error.type
            if self.error.param is not None:
                out["param"] = self.error.param
        if self.gone:
            out["gone"] = True
        if self.answer is not None:
            out |= self._of_answer(self.answer)
        return out

    def _of_answer(self, answer: Answer) -> Fields:
        usage, transcripts = answer.usage(), answer.generation.transcripts
        first = self.first_token
        return {
            "answer": answer.id,
            "first_token_ms": None if first is None else round(1e3 * (first - self.begun), 2),
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "tokens_by_model": usage.completion_tokens_details.tokens_by_model,
            "handoffs": sum(transcript.handoffs for transcript in transcripts),
            "finish": answer.finish_reasons(),
        }


class Observer(Protocol):
    """Who else is told of requests; for spans."""

    def begun(self, taken: Taken) -> None:
        """A request has come."""

    def answered(self, taken: Taken, answer: Answer) -> None:
        """It was admitted."""

    def first_token(self, taken: Taken) -> None:
        """Its first token has come."""

    def handed_off(self, taken: Taken, choice: int, token: Token) -> None:
        """Before this token the request went from one model to another."""

    def ended(self, taken: Taken) -> None:
        """Its response is sent, or its client has left."""


_current: ContextVar[Taken | None] = ContextVar("request", default=None)


def current() -> Taken | None:
    """Return the request that this task works for."""
    return _current.get()


def context() -> Fields:
    """Return what every line says that is logged for a request."""
    taken = _current.get()
    return {} if taken is None else {"request_id": taken.id}


def note_error(error: ErrorDetail) -> None:
    """Note how the current request is refused, or failed."""
    taken = _current.get()
    if taken is not None:
        taken.error = error


class Access:
    """Gives each request its id, and logs its end."""

    def __init__(self, app: ASGIApp, observers: Sequence[Observer] = ()) -> None:
        self._app = app
        self._observers = observers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        taken = self._take(scope)
        finished = False

        async def sent(message: Message) -> None:
            nonlocal finished
            if message["type"] == "http.response.start":
                taken.status = message["status"]
                message = {**message, "headers": [*message["headers"], (HEADER, taken.id.encode())]}
            elif message["type"] == "http.response.body":
                finished = not message.get("more_body", False)
            await send(message)

        async def received() -> Message:
            message = await receive()
            if message["type"] == "http.disconnect" and not finished:
                taken.gone = True
            return message

        before = _current.set(taken)
        try:
            for observer in self._observers:
                observer.begun(taken)
            await self._app(scope, received, sent)
        finally:
            _tell(taken)
            for observer in self._observers:
                observer.ended(taken)
            _current.reset(before)

    def _take(self, scope: Scope) -> Taken:
        headers = dict(scope["headers"])
        client = scope.get("client")
        return Taken(
            id=request_id(headers.get(HEADER, b"")),
            method=scope["method"],
            path=scope["path"],
            client=client[0] if client else "",
            headers=headers,
            observers=self._observers,
        )


def request_id(sent: bytes) -> str:
    """Return the id that a client has sent where it is one, else a new one."""
    text = sent.decode("latin-1")
    return text if _ID.fullmatch(text) else secrets.token_hex(16)


def _tell(taken: Taken) -> None:
    """Log the end of a request: at debug for probes, which come all the time."""
    if taken.path in PROBES and taken.status in (200, 503):
        level = logging.DEBUG
    elif taken.error is not None and taken.error.type == "server_error":
        level = logging.WARNING if taken.error.code in NOT_NOW else logging.ERROR
    else:
        level = logging.WARNING if taken.status == 429 else logging.INFO
    _log.log(level, "request", extra=told(**taken.fields()))
