"""The page's server: three files, and a question a route. Everything that is asked goes to the desk, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from importlib.resources import files
from typing import Annotated, Any, NamedTuple

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp

from tokenrouter.diagnostics import CODES
from tokenrouter.dsl.pages import page
from tokenrouter.errors import TokenRouterError
from tokenrouter.playground.desk import MOST_CHARS, Desk
from tokenrouter.playground.guard import Guard
from tokenrouter.playground.replies import Words
from tokenrouter.server.errors import ApiError, bad_request, no_such_path
from tokenrouter.server.http import JsonResponse, error_response, read_body

MOST_BYTES = 8 * MOST_CHARS  # of a body: a character is six bytes where JSON escapes it
FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "editor.js": ("editor.js", "text/javascript; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
}


class OfText(msgspec.Struct, frozen=True):
    """A text, and the policy in it that is meant."""

    text: str
    policy: str | None = None


class OfSpot(msgspec.Struct, frozen=True):
    """A text and a place in it."""

    text: str
    line: Annotated[int, msgspec.Meta(ge=0, le=MOST_CHARS)]
    character: Annotated[int, msgspec.Meta(ge=0, le=MOST_CHARS)]


class OfCase(msgspec.Struct, frozen=True):
    """A text, a policy in it, where its rules are tried, and under which values."""

    text: str
    place: str
    given: dict[str, str]
    policy: str | None = None


class _Question(NamedTuple):
    """What is asked, and who answers it."""

    kind: type[OfText | OfSpot | OfCase]
    answer: Callable[[Desk, Any], msgspec.Struct]


QUESTIONS = {
    "begin": _Question(OfText, lambda desk, asked: desk.begin()),
    "look": _Question(OfText, lambda desk, asked: desk.look(asked.text, asked.policy)),
    "plan": _Question(OfText, lambda desk, asked: desk.plan(asked.text, asked.policy)),
    "save": _Question(OfText, lambda desk, asked: desk.save(asked.text)),
    "complete": _Question(
        OfSpot, lambda desk, asked: Words(desk.complete(asked.text, asked.line, asked.character))
    ),
    "fire": _Question(
        OfCase, lambda desk, asked: desk.fire(asked.text, asked.policy, asked.place, asked.given)
    ),
}


def create_app(desk: Desk, names: Iterable[str] = ()) -> ASGIApp:
    """Return the app of one desk; `names` are those by which it may be reached beside addresses."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False)
    turn = asyncio.Lock()

    @app.post("/ask/{what}")
    async def ask(request: Request, what: str) -> Response:
        question = QUESTIONS.get(what)
        if question is None:
            raise HTTPException(404)
        asked = _read(await read_body(request, MOST_BYTES), question.kind)
        async with turn:
            return JsonResponse(await asyncio.to_thread(_answer, question, desk, asked))

    @app.get("/codes/{code}")
    async def code_page(code: str) -> Response:
        if code not in CODES:
            raise HTTPException(404)
        return Response(page(code), media_type="text/plain; charset=utf-8")

    @app.get("/")
    @app.get("/{name}")
    async def file(name: str = "") -> Response:
        if name not in FILES:
            raise HTTPException(404)
        path, kind = FILES[name]
        body = files("tokenrouter.playground").joinpath(path).read_bytes()
        return Response(body, media_type=kind)

    app.exception_handler(ApiError)(_refused)
    app.exception_handler(HTTPException)(_not_routed)
    app.exception_handler(ClientDisconnect)(_gone)
    return Guard(app, names)


def _read(body: bytes, kind: type[OfText | OfSpot | OfCase]) -> OfText | OfSpot | OfCase:
    """Return what is asked; raises ApiError."""
    try:
        asked = msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_request(str(error)) from None
    if len(asked.text) > MOST_CHARS:
        raise bad_request(f"the text has more than {MOST_CHARS} characters")
    return asked


def _answer(question: _Question, desk: Desk, asked: OfText | OfSpot | OfCase) -> msgspec.Struct:
    """Return the answer; raises ApiError."""
    try:
        return question.answer(desk, asked)
    except TokenRouterError as error:
        raise bad_request(str(error)) from None
    except OSError as error:
        raise bad_request(f"the file cannot be written: {error.strerror}") from None


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError), error
    return error_response(error)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), error
    return error_response(no_such_path(request.url.path))


async def _gone(_: Request, __: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it
