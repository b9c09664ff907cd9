"""Three things that every route needs: a body within its limit, work that ends with its client, and event streams.

Knows nothing of models or tokens.

INVARIANT: when a client has gone, the work it waited for is cancelled at once, whether or not anything was sent.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tokenrouter.server.access import note_error
from tokenrouter.server.errors import ApiError, bad_request, failed, too_large, too_slow, wrong_key

T = TypeVar("T")
Events = AsyncGenerator[bytes, None]

DONE = b"[DONE]"
BODY_WITHIN_S = 60  # a client that only begins a body would keep it and its connection for ever
_log = logging.getLogger("tokenrouter.server")
_encode = msgspec.json.Encoder().encode


class ClientGone(Exception):  # noqa: N818 - nobody is left to whom it would be an error
    """The client closed its connection; there is nobody to answer."""


class JsonResponse(Response):
    """A struct as the body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Encode the struct."""
        return _encode(content)


def error_response(error: ApiError) -> Response:
    """Return the answer that a refusal is."""
    note_error(error.body.error)
    return JsonResponse(error.body, error.status, error.headers)


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """Return the body; refuse one that is too large without reading all of it."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit_bytes:
        raise too_large(limit_bytes)
    # Other types are what a browser may send to loopback from any page without asking.
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise bad_request(f"the content type is `{kind}`; send `application/json`")
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise bad_request(f"the body is encoded as `{encoding}`; send it as it is")
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            async for part in request.stream():
                size += len(part)
                if size > limit_bytes:
                    raise too_large(limit_bytes)
                parts.append(part)
    except TimeoutError:
        raise too_slow(BODY_WITHIN_S) from None
    return b"".join(parts)


async def with_client(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns, or cancel it and raise ClientGone when the client leaves first."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientGone
    finally:
        task.cancel()
        gone.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class KeyCheck:
    """Lets requests through that name the API key; what tells how the process is stays open to all."""

    OPEN = ("/health", "/ready")

    def __init__(self, app: ASGIApp, key: str) -> None:
        self._app = app
        self._wanted = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer that the key is wrong."""
        if scope["type"] == "http" and scope["path"] not in self.OPEN:
            sent = dict(scope["headers"]).get(b"authorization", b"")
            scheme, _, key = sent.partition(b" ")
            # Takes as long for any wrong key.
            if not hmac.compare_digest(key.strip(), self._wanted) or scheme.lower() != b"bearer":
                await error_response(wrong_key())(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Cors(CORSMiddleware):
    """Tells browsers which pages may ask; a refusal has the shape of all others."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Answer a browser that asks whether it may ask."""
        answer = super().preflight_response(request_headers)
        if answer.status_code < 400:
            return answer
        why = f"{bytes(answer.body).decode()}: `--cors-origin` names the pages that may ask, by GET and POST"
        refusal = error_response(bad_request(why, None, "cors"))
        for name, value in answer.headers.items():
            refusal.headers.setdefault(name, value)
        return refusal


class EventStream(Response):
    """Server-sent events. The first event is there already, so a refusal could still be a plain answer."""

    media_type = "text/event-stream"

    def __init__(self, first: bytes, rest: Events) -> None:
        super().__init__()
        self._first = first
        self._rest = rest
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-cache"
        self.headers["x-accel-buffering"] = "no"  # nginx would hold the tokens back

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events while the client is there; close the source in any case."""
        async with aclosing(self._rest):
            try:
                await with_client(receive, self._send_all(send))
            except ClientGone:
                return

    async def _send_all(self, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )
        await _send_event(send, self._first)
        try:
            async for event in self._rest:
                await _send_event(send, event)
        except ApiError as error:
            note_error(error.body.error)
            await _send_event(send, _encode(error.body))
        except Exception:  # noqa: BLE001 - the last border: the status is sent, so the body must say it
            _log.exception("a stream failed")
            body = failed("the server failed; its log says how").body
            note_error(body.error)
            await _send_event(send, _encode(body))
        await _send_event(send, DONE)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_event(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": b"data: %b\n\n" % data, "more_body": True})


async def event_stream(request: Request, events: Events) -> Response:
    """Wait for the first event, and answer with it and all that follow."""
    try:
        first = await with_client(request.receive, anext(events))
    except BaseException:
        await events.aclose()
        raise
    return EventStream(first, events)
