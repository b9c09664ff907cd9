"""The OpenAPI document, made from the structs that read the requests and write the answers."""

from __future__ import annotations

from typing import Any

import msgspec

from tokenrouter.server.errors import ErrorBody
from tokenrouter.server.fields import describe
from tokenrouter.server.protocol import (
    NEUTRAL,
    NO_EFFECT,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from tokenrouter.server.replies import (
    ChatChunk,
    ChatReply,
    Detokenized,
    Health,
    ModelCard,
    ModelList,
    Readiness,
    TextReply,
    Tokenized,
)
from tokenrouter.version import __version__

STRUCTS = (
    CompletionRequest,
    ChatRequest,
    TokenizeRequest,
    DetokenizeRequest,
    Tokenized,
    Detokenized,
    TextReply,
    ChatReply,
    ChatChunk,
    ModelList,
    ModelCard,
    Health,
    Readiness,
    ErrorBody,
)
REFUSALS = {
    "400": "the request is wrong",
    "401": "the API key is missing or wrong",
    "404": "another model is asked for",
    "405": "the path does not take this method; `Allow` names those that it does",
    "408": "the body did not come in time",
    "413": "the body is too large",
    "429": "too many requests queue",
    "500": "the request could not be finished",
    "503": "nothing can be served now",
    "504": "the time that the request had is over",
}


def document() -> dict[str, Any]:
    """Return the document as JSON values."""
    _, components = msgspec.json.schema_components(
        STRUCTS, ref_template="#/components/schemas/{name}"
    )
    describe(components, NO_EFFECT, tuple(NEUTRAL))
    return {
        "openapi": "3.1.0",
        "info": {"title": "tokenrouter", "version": __version__},
        "paths": {
            "/v1/completions": {
                "post": _asks("Complete a text", CompletionRequest, TextReply, TextReply)
            },
            "/v1/chat/completions": {
                "post": _asks("Answer a chat", ChatRequest, ChatReply, ChatChunk)
            },
            "/v1/models": {"get": _list()},
            "/v1/models/{name}": {"get": _card()},
            "/tokenize": {"post": _turns("The ids of a prompt", TokenizeRequest, Tokenized)},
            "/detokenize": {"post": _turns("The text of ids", DetokenizeRequest, Detokenized)},
            "/health": {"get": _tells("Whether the process answers", Health)},
            "/ready": {"get": _ready()},
            "/metrics": {"get": _metrics()},
        },
        "components": {"schemas": components},
    }


def _asks(summary: str, request: type, whole: type, chunk: type) -> dict[str, Any]:
    told = f"the answer; with `stream`, events whose data are `{chunk.__name__}`, then `[DONE]`"
    reply = _answer(told, whole)
    # OpenAPI 3.1 cannot say what the events of a stream look like: no type is named, since tools read it as each event's.
    events = {"description": f"events whose data are `{chunk.__name__}`, then `[DONE]`"}
    reply["content"]["text/event-stream"] = {"schema": events}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(request)},
        "responses": {
            "200": reply,
            **{status: _answer(why, ErrorBody) for status, why in REFUSALS.items()},
        },
    }


def _turns(summary: str, request: type, reply: type) -> dict[str, Any]:
    refused = ("400", "401", "404", "405", "408", "413")
    refusals = {status: _answer(REFUSALS[status], ErrorBody) for status in refused}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": _json(request)},
        "responses": {"200": _answer("what it becomes", reply), **refusals},
    }


def _tells(summary: str, reply: type) -> dict[str, Any]:
    wrong = {"405": _answer(REFUSALS["405"], ErrorBody)}
    return {"summary": summary, "responses": {"200": _answer("it is told", reply), **wrong}}


def _list() -> dict[str, Any]:
    told = _tells("What is served", ModelList)
    told["responses"]["401"] = _answer(REFUSALS["401"], ErrorBody)
    return told


def _card() -> dict[str, Any]:
    card = _tells("One served policy", ModelCard)
    card["parameters"] = [
        {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
    ]
    card["responses"]["404"] = _answer("another name", ErrorBody)
    card["responses"]["401"] = _answer(REFUSALS["401"], ErrorBody)
    return card


def _ready() -> dict[str, Any]:
    ready = _tells("Whether requests are taken", Readiness)
    ready["responses"]["503"] = _answer("they are not", Readiness)
    return ready


def _metrics() -> dict[str, Any]:
    text = {"text/plain": {"schema": {"type": "string"}}}
    answer = {"description": "what is going on, as Prometheus reads it", "content": text}
    refusals = {status: _answer(REFUSALS[status], ErrorBody) for status in ("401", "405")}
    return {"summary": "What is going on", "responses": {"200": answer, **refusals}}


def _answer(description: str, body: type) -> dict[str, Any]:
    return {"description": description, "content": _json(body)}


def _json(body: type) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{body.__name__}"}}}
