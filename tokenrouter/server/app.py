"""The HTTP surface: routes, and what becomes of every failure."""

from __future__ import annotations

import logging
from collections.abc import Coroutine

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tokenrouter.server.access import current
from tokenrouter.server.aside import aside
from tokenrouter.server.counts import metrics_text
from tokenrouter.server.errors import ApiError, failed, no_such_path, wrong_method
from tokenrouter.server.http import (
    ClientGone,
    Cors,
    JsonResponse,
    KeyCheck,
    error_response,
    event_stream,
    read_body,
    with_client,
)
from tokenrouter.server.openapi import document
from tokenrouter.server.protocol import (
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    GenerationRequest,
    TokenizeRequest,
    read,
)
from tokenrouter.server.replies import Health, ModelList
from tokenrouter.server.service import Service

READ = ["GET", "HEAD"]
GONE = 499  # nobody reads it

_log = logging.getLogger("tokenrouter.server")


def create_app(service: Service) -> FastAPI:
    """Return the app that serves one plan, for those who know the key where there is one."""
    app = FastAPI(
        title="tokenrouter", docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    app.exception_handler(ApiError)(_refused)
    app.exception_handler(HTTPException)(_not_routed)
    _add_layers(app, service)

    @app.api_route("/openapi.json", methods=READ)
    async def openapi() -> Response:
        return JsonResponse(document())

    @app.api_route("/health", methods=READ)
    async def health() -> Response:
        return JsonResponse(Health())

    @app.api_route("/ready", methods=READ)
    async def ready() -> Response:
        readiness = service.readiness
        return JsonResponse(readiness, 200 if readiness.status == "ready" else 503)

    @app.api_route("/metrics", methods=READ)
    async def metrics() -> Response:
        text = await metrics_text(service.plan, service.client, service.counts)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.api_route("/v1/models", methods=READ)
    async def models() -> Response:
        return JsonResponse(ModelList(data=[service.card()]))

    @app.api_route("/v1/models/{name:path}", methods=READ)
    async def model(name: str) -> Response:
        service.check_name(name)
        return JsonResponse(service.card())

    @app.post("/v1/completions")
    async def completions(request: Request) -> Response:
        return await _answer(_generate(service, request, CompletionRequest))

    @app.post("/v1/chat/completions")
    async def chat(request: Request) -> Response:
        return await _answer(_generate(service, request, ChatRequest))

    @app.post("/tokenize")
    async def tokenize(request: Request) -> Response:
        return await _answer(_tokenize(service, request))

    @app.post("/detokenize")
    async def detokenize(request: Request) -> Response:
        return await _answer(_detokenize(service, request))

    return app


def _add_layers(app: FastAPI, service: Service) -> None:
    """Put what looks at every request around the app."""
    if service.api_key is not None:
        app.add_middleware(KeyCheck, key=service.api_key)
    if service.cors_origins:
        # Around the key's check: a browser asks whether it may ask, and does not send the key with that.
        app.add_middleware(
            Cors,
            allow_origins=service.cors_origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError), error
    return error_response(error)


async def _not_routed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException), error
    path = request.url.path
    if error.status_code == 405:
        takes = (error.headers or {}).get("Allow", "POST")
        return error_response(wrong_method(request.method, path, takes))
    return error_response(no_such_path(path))


async def _answer(work: Coroutine[None, None, Response]) -> Response:
    """Return what the work does; whatever goes wrong is an answer too."""
    try:
        return await work
    except ApiError as error:
        return error_response(error)
    except (ClientGone, ClientDisconnect):
        return Response(status_code=GONE)
    except Exception:  # noqa: BLE001 - the last border: the client gets JSON, the log the traceback
        _log.exception("a request failed")
        return error_response(failed("the server failed; its log says how"))


async def _generate(service: Service, http: Request, kind: type[GenerationRequest]) -> Response:
    body = await read_body(http, service.body_limit_bytes)
    request = await aside(len(body), read, body, kind)
    service.check_name(request.model)
    service.check_ready()
    answer = service.answer(request, await service.work(request))
    if (taken := current()) is not None:
        taken.begins(answer)
    if request.stream:
        return await event_stream(http, answer.events(request.includes_usage))
    return JsonResponse(await with_client(http.receive, answer.whole()))


async def _tokenize(service: Service, http: Request) -> Response:
    body = await read_body(http, service.body_limit_bytes)
    request = await aside(len(body), read, body, TokenizeRequest)
    service.check_name(request.model)
    return JsonResponse(await service.tokenize(request))


async def _detokenize(service: Service, http: Request) -> Response:
    body = await read_body(http, service.body_limit_bytes)
    request = await aside(len(body), read, body, DetokenizeRequest)
    service.check_name(request.model)
    return JsonResponse(await aside(len(request.tokens), service.detokenize, request))
