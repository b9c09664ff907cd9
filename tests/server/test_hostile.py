"""What no client library would send: broken HTTP, half-open connections, wrong encodings, bodies made to cost time.

Nothing of it is answered with a 5xx, what got far enough to be HTTP gets an error in OpenAI's shape, and whoever
streams meanwhile goes on.
"""

import gzip
import json
import socket
import struct
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from tests.server.serving import HANG_S
from tests.server.test_bad_requests import JSON, goes_on, refused

BODY = b'{"prompt":"x","max_tokens":2}'
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"

__all__ = ["goes_on"]  # after each of these tests, too


@contextmanager
def connected(server):
    where = urlsplit(server.url)
    with socket.create_connection((where.hostname, where.port), timeout=HANG_S) as made:
        yield made


def told(server, sent, close=False):
    """Return what the server answers until it closes the connection."""
    with connected(server) as made:
        made.sendall(sent)
        if close:  # which means that the client has gone
            made.shutdown(socket.SHUT_WR)
        got = b""
        while part := made.recv(65536):
            got += part
        return got


def request(body=BODY, **headers):
    """Return a request as it goes over the wire; `_` in a name stands for `-`."""
    given = {"content_length": str(len(body)), "connection": "close", **headers}
    lines = "".join(f"{k.replace('_', '-')}: {v}\r\n" for k, v in given.items() if v is not None)
    return POST + lines.encode("latin-1") + b"\r\n" + body


def parted(answer):
    """Return the status, the headers as one text and the body of an answer with a known length."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head[9:12]), head.decode().lower(), body


@pytest.mark.parametrize(
    "headers",
    [
        {"content_length": "-5"},
        {"content_length": "abc"},
        {"content_length": "9" * 30},
        {"Content_length": "5", "content_length": "6"},
        {"transfer_encoding": "gzip, chunked", "content_length": None},
        {"x_a": "a\0b"},
        {"host": "y"},
    ],
    ids=str,
)
def test_what_is_no_http_gets_a_bare_400(server, headers):
    assert parted(told(server, request(**headers)))[0] == 400


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
        b"\r\n\r\n\r\n",
        b"POST /v1/comp",
        request(b"zz\r\nxx\r\n0\r\n\r\n", content_length=None, transfer_encoding="chunked"),
        request(content_length="500"),
        POST + b"content-length: 29\r\n\r\n{",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["tls", "empty", "half a head", "chunk", "too short", "half a body", "http/9", "http/2"],
)
def test_whatever_comes_is_never_a_failure_of_the_server(server, sent):
    answer = told(server, sent, close=True)

    assert answer == b"" or 400 <= parted(answer)[0] < 500


@pytest.mark.parametrize(
    "headers",
    [
        {"expect": "magic"},
        {"x_a": "\xff\xfe"},
        {"authorization": "\xff"},
        {"upgrade": "h2c", "connection": "upgrade, close"},
        {"content_type_": "x", "x_a": "a" * 20_000},
        {f"x_{at}": "a" for at in range(500)},
    ],
    ids=lambda headers: str(headers)[:30],
)
def test_headers_that_mean_nothing_here_change_nothing(server, headers):
    assert parted(told(server, request(**headers)))[0] == 200


def test_requests_sent_ahead_of_their_answers_are_answered_in_turn(server):
    wrong = request(b"[]", connection="keep-alive")
    right = request(connection="keep-alive")

    answer = told(server, right + wrong + right + request())

    statuses = [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [200, 400, 200, 200]


def test_many_connections_that_send_half_a_request_keep_nobody_out(server):
    halves = []
    try:
        for at in range(200):
            where = urlsplit(server.url)
            made = socket.create_connection((where.hostname, where.port), timeout=HANG_S)
            halves.append(made)
            made.sendall(b"GET /hea" if at % 2 else POST + b"content-length: 29\r\n\r\n{")
        refused(server.post("/v1/completions", content=b"[]", headers=JSON))
        assert parted(told(server, request()))[0] == 200
    finally:
        for made in halves:
            made.close()


def test_connections_that_are_reset_leave_no_request_behind(server):
    for _ in range(30):
        with connected(server) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            made.sendall(request(b'{"prompt":"x","max_tokens":3000,"ignore_eos":true}'))
    server.idle()


def test_a_body_that_comes_byte_by_byte_is_read(server):
    with connected(server) as made:
        for byte in request():
            made.sendall(bytes([byte]))
        assert made.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_another_method_is_told_which_ones_the_path_takes(server, method):
    head = f"{method} /v1/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
    preflight = "origin: http://x\r\naccess-control-request-method: POST\r\n\r\n"

    status, headers, body = parted(told(server, (head + preflight).encode()))

    assert status == 405 and "\nallow: post" in headers
    assert "access-control" not in headers
    assert json.loads(body)["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/metrics", "/openapi.json"])
def test_the_head_of_what_can_be_read_can_be_asked_for(server, path):
    head = f"HEAD {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"

    status, _, body = parted(told(server, head.encode()))

    assert (status, body) == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/completions/",
        "/health/",
        "/V1/completions",
        "//",
        "/v1//models",
        "/..",
        "/%ff%0a",
        "/v1/models/",
        "/v1/models/ping_pong/",
        "/v1/models/%2e%2e",
        "/v1/models/a%0ab",
    ],
)
def test_a_path_that_is_almost_right_is_not_found_and_redirects_nowhere(server, path):
    answer = server.post(path, content=BODY, headers=JSON)

    is_model = path.startswith("/v1/models/") and "%0a" not in path  # which can only be read
    refused(answer, 405 if is_model else 404)


@pytest.mark.parametrize(
    "kind",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json, text/plain",
        "",
        "multipart/form-data; boundary=x",
        "application/jsonx",
        "*/*",
        "application/vnd.api+json",
    ],
)
def test_another_content_type_is_refused_by_its_name(server, kind):
    error = refused(server.post("/v1/completions", content=BODY, headers={"content-type": kind}))

    assert f"`{kind.partition(';')[0]}`" in error["message"]


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate", "gzip, gzip"])
def test_a_body_that_is_packed_is_refused_by_how(server, coding):
    headers = JSON | {"content-encoding": coding}
    body = gzip.compress(b" " * 1_000_000)

    error = refused(server.post("/v1/completions", content=body, headers=headers))

    assert f"`{coding}`" in error["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbf" + BODY,
        BODY.decode().encode("utf-16"),
        b'{"prompt":"\xe9"}',
        b'{"prompt":"\xed\xa0\xbd\xed\xb1\x8b"}',
        b'{"prompt":"\xc0\xaf"}',
        b'{"prompt":"\xf4\x90\x80\x80"}',
        b'{"prompt":"a\x00b"}',
        b'{"prompt":"\\udc4b\\ud83d"}',
        b'{"prompt":"x","stop":"\\ud83d"}',
        b'{"prompt":"x","\\ud83d":1}',
        b'{"prompt":"x","route":{"metadata":{"a":"\\ud83d"}}}',
        b'{"prompt":"x",}',
        b"{'prompt':'x'}",
        b'{"prompt":"x"}{"prompt":"y"}',
        b'{"prompt":"x","seed":0x10}',
        b'{"prompt":"x","seed":01}',
        b'{"prompt":"x","seed":+1}',
        b'{"prompt":"x","n":1.0}',
        b'{"prompt":"x","n":"1"}',
        b'{"prompt":"x","max_tokens":1e400}',
        b'{"prompt":"x","seed":' + b"9" * 10_000 + b"}",
        b'{"prompt":"x","route":{"params":{"tau":' + b"9" * 400 + b"}}}",
        b'{"prompt":"x","route":{"params":{"tau":null}}}',
        b'{"prompt":"x","route":{"params":{"tau":"1"}}}',
        b'{"prompt":"x","route":[]}',
        b'{"prompt":"x","route":{"trace":1}}',
        b'{"prompt":"x","route":{"metadata":{"a":[1]}}}',
        b'{"prompt":{"text":"x"}}',
        b'{"prompt":"x","stream":1}',
        b'{"prompt":"x","stop":{"a":1}}',
        b'{"prompt":"x","stop":[1]}',
        b'{"prompt":"x","stop_token_ids":["1"]}',
        b'{"prompt":"x","stop_token_ids":[1.5]}',
        b'{"prompt":"x","response_format":"json"}',
        b'{"prompt":"x","regex":5}',
        b'{"prompt":"x","model":5}',
    ],
    ids=range(36),
)  # fmt: skip
def test_a_body_that_is_no_such_request(server, body):
    refused(server.post("/v1/completions", content=body, headers=JSON))


@pytest.mark.parametrize("sent", ["a\nb", "k" * 100_000, "\u2028", "\x7f\x1b[31m"], ids=ascii)
@pytest.mark.parametrize("where", ["key", "nested", "param", "model", "role", "part"])
def test_what_a_refusal_quotes_stays_one_line_of_bounded_length(server, where, sent):
    sent = sent[:300] if where == "model" else sent
    turn = {"role": "user", "content": "x"}
    path, body = {
        "key": ("/v1/completions", {"prompt": "x", sent: 1}),
        "nested": ("/v1/completions", {"prompt": "x", "route": {sent: 1}}),
        "param": ("/v1/completions", {"prompt": "x", "route": {"params": {sent: 1}}}),
        "model": ("/v1/completions", {"prompt": "x", "model": sent}),
        "role": ("/v1/chat/completions", {"messages": [turn | {"role": sent}]}),
        "part": ("/v1/chat/completions", {"messages": [turn | {"content": [{"type": sent}]}]}),
    }[where]

    error = refused(server.post(path, json=body), 404 if where == "model" else 400)

    for text in (error["message"], error["param"] or ""):
        assert len(text) < 4000 and text.isprintable()


@pytest.mark.parametrize("depth", [126, 300, *range(930, 1000, 3), 5000])
def test_a_schema_of_any_depth_is_refused(server, depth):
    schema = '{"items":' * depth + "{}" + "}" * depth
    wanted = f'{{"type":"json_schema","json_schema":{{"schema":{schema}}}}}'
    body = f'{{"prompt":"x","response_format":{wanted}}}'

    refused(server.post("/v1/completions", content=body, headers=JSON))


@pytest.mark.parametrize(
    "text",
    [
        "(" * 9000 + "a" + ")" * 9000,
        "a" + "*" * 9000,
        "[" * 9000,
        "(a{99}){99}{99}",
        "(a|" * 9000,
        "\\p{Nonsense}",
        "\\1",
        "(?<=a)b",
        "a{5,2}",
    ],
    ids=lambda text: text[:12],
)
@pytest.mark.parametrize("field", ["regex", "grammar"])
def test_a_grammar_made_to_overflow_is_refused(server, field, text):
    spelled = text if field == "regex" else f"start: {text}"

    refused(server.post("/v1/completions", json={"prompt": "x", field: spelled}))


MANY = 1 << 20
COSTLY = {
    "stop strings": ("/v1/completions", {"prompt": "x", "stop": ["ab"] * 500_000}),
    "text": ("/v1/completions", {"prompt": "sea " * (MANY - 100)}),
    "one word": ("/v1/completions", {"prompt": "a" * (4 * MANY - 100)}),
    "ids": ("/v1/completions", {"prompt": [5] * (MANY - 100)}),
    "prompts": ("/v1/completions", {"prompt": ["sea " * 9000] * 100}),
    "params": ("/v1/completions", {"prompt": "x", "route": {"params": {f"p{i}": 1 for i in range(200_000)}}}),
    "a long turn": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "sea " * (MANY - 100)}]}),
    "turns": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}] * 90_000}),
}  # fmt: skip


@pytest.mark.parametrize("what", COSTLY)
def test_a_costly_body_is_refused_while_another_client_streams(server, what):
    path, body = COSTLY[what]
    sent = json.dumps(body).encode()
    refusals, before = [], threading.Event()

    def send():
        before.wait(HANG_S)
        refusals.append(refused(server.post(path, content=sent, headers=JSON)))

    thread = threading.Thread(target=send)
    thread.start()
    body = {"prompt": "x", "max_tokens": 6000, "ignore_eos": True, "stream": True}
    during = 0
    with server.stream(body) as lines:
        next(lines)
        before.set()
        while thread.is_alive():
            during += bool(next(lines))
    thread.join()
    server.idle()
    assert during > 0 and refusals
