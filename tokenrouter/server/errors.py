"""Refusals and failures in the shape that OpenAI's clients expect.

    TokenRouterError
    └── ApiError              one request cannot be served
        ├── bad_request       400: the request is wrong; `param` names the field
        ├── wrong_key         401, with WWW-Authenticate
        ├── no_such_model     404
        ├── wrong_method      405, with Allow
        ├── too_slow          408: the body did not come
        ├── too_large         413: the body exceeds a limit
        ├── overloaded        429, with Retry-After
        ├── not_ready         503, with Retry-After: loading, draining, or a model is down
        ├── given_up          503 for good: a model dies again and again
        ├── timed_out         504: the time that the request had is over
        └── failed            500: the request was right and could not be finished

The lines below the class are functions that make one. A failure in the middle of a stream is the same body as one
`data:` event.
"""

from __future__ import annotations

import msgspec

from tokenrouter.errors import TokenRouterError


class ErrorDetail(msgspec.Struct, frozen=True, kw_only=True):
    """What OpenAI's clients read out of a refusal."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body of every answer that is not 2xx."""

    error: ErrorDetail


MOST_CHARS = 600  # of a message; what a client sent, and a message quotes, may be a whole body


class ApiError(TokenRouterError):
    """One request is refused, or failed; the message is one line, whatever it quotes."""

    def __init__(self, status: int, detail: ErrorDetail, retry_after_s: int | None = None) -> None:
        detail = msgspec.structs.replace(
            detail, message=_line(detail.message), param=detail.param and _line(detail.param)
        )
        super().__init__(detail.message)
        self.status = status
        self.body = ErrorBody(error=detail)
        self.headers = {} if retry_after_s is None else {"retry-after": str(retry_after_s)}


def _line(text: str) -> str:
    shown = text if len(text) <= MOST_CHARS else text[: MOST_CHARS - 1] + "…"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in shown)


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """The request is wrong."""
    return ApiError(400, _invalid(message, param, code))


def wrong_key() -> ApiError:
    """The request does not name a key that this server knows."""
    message = "this server needs an API key: send `Authorization: Bearer KEY`"
    error = ApiError(401, _invalid(message, None, "invalid_api_key"))
    error.headers["www-authenticate"] = 'Bearer realm="tokenrouter"'
    return error


def no_such_model(name: str, known: list[str]) -> ApiError:
    """The request names a model that is not served here."""
    there = ", ".join(f"`{each}`" for each in known)
    message = f"the model `{name}` is not served here; there is {there}"
    return ApiError(404, _invalid(message, "model", "model_not_found"))


def no_such_path(path: str) -> ApiError:
    """Nothing is served at this path."""
    return ApiError(404, _invalid(f"nothing is served at `{path}`", None, "not_found"))


def wrong_method(method: str, path: str, takes: str) -> ApiError:
    """The path does not take this method; `takes` lists those that it does."""
    message = f"`{path}` does not take {method}; it takes {takes}"
    error = ApiError(405, _invalid(message, None, "method_not_allowed"))
    error.headers["allow"] = takes
    return error


def too_slow(seconds: float) -> ApiError:
    """The body did not come."""
    message = f"the request body did not come within {seconds:g} s"
    return ApiError(408, _invalid(message, None, "request_timeout"))


def too_large(limit_bytes: int) -> ApiError:
    """The body exceeds the limit."""
    message = f"the request body exceeds the limit of {limit_bytes} bytes"
    return ApiError(413, _invalid(message, None, "request_too_large"))


def overloaded(message: str) -> ApiError:
    """There is no room for another request now."""
    detail = ErrorDetail(message=message, type="rate_limit_error", code="overloaded")
    return ApiError(429, detail, retry_after_s=1)


def not_ready(message: str) -> ApiError:
    """Nothing can be served now, but later it can."""
    detail = ErrorDetail(message=message, type="server_error", code="not_ready")
    return ApiError(503, detail, retry_after_s=1)


def given_up(message: str) -> ApiError:
    """Nothing can be served until somebody starts the server again; clients need not try."""
    error = ApiError(503, ErrorDetail(message=message, type="server_error", code="given_up"))
    return _not_again(error)


def timed_out(seconds: float) -> ApiError:
    """The time that the request had is over."""
    message = f"the request was not finished within {seconds:g} s"
    return _not_again(ApiError(504, ErrorDetail(message=message, type="timeout", code="timeout")))


def _not_again(error: ApiError) -> ApiError:
    """Say what OpenAI's clients look for before they try a 5xx again by themselves."""
    error.headers["x-should-retry"] = "false"
    return error


def failed(message: str) -> ApiError:
    """The request was right and could not be finished."""
    return ApiError(500, ErrorDetail(message=message, type="server_error", code="failed"))


def _invalid(message: str, param: str | None, code: str | None) -> ErrorDetail:
    return ErrorDetail(message=message, type="invalid_request_error", param=param, code=code)
