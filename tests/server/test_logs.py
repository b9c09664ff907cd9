"""What a server logs, over HTTP: an id on every answer, one line a request, one format for all processes, and no prompts."""

import contextlib
import json
import logging
import os
import re
import signal
import threading

import httpx
import pytest

from tests.server.serving import HANG_S, serving, wait_until
from tests.server.test_lifecycle import trc
from tests.server.test_metrics import subserver
from tokenrouter.runtime.logs import Lines, message_of, relay, told
from tokenrouter.server.access import MAX_ID_CHARS, request_id

SECRET = "the password is swordfish"
KEY = {"authorization": "Bearer k"}
NEW_ID = re.compile(r"[0-9a-f]{32}")


def record(message, *args, level=logging.INFO, **fields):
    made = logging.LogRecord("tokenrouter", level, "f.py", 1, message, args, None)
    made.fields = fields
    return made


def told_of(server, id_):
    """Return the line at the end of a request, once it is there."""
    found = []

    def there():
        lines = [json.loads(line) for line in list(server.lines)]
        found[:] = [x for x in lines if x.get("request_id") == id_ and x["message"] == "request"]
        return found

    wait_until(there)
    [line] = found
    return line


@pytest.fixture(scope="module")
def logged(plan_path):
    """A server that logs everything there is to log, as JSON."""
    args = ("--log-format", "json", "--log-level", "debug", "--api-key", "k")
    with serving(plan_path, "--dtype", "float64", *args) as running:
        yield running
        running.signal(signal.SIGTERM)
        assert running.end() == 0
    lines = [json.loads(line) for line in running.lines]  # nothing else was written
    assert {(line["process"], line["message"]) for line in lines} >= {
        (process, message) for process in ("small", "large") for message in ("loaded", "ended")
    }
    assert not any(SECRET in line or "swordfish" in line for line in running.lines)


def test_a_completion_ends_in_one_line_that_tells_what_it_took(logged):
    body = {"prompt": SECRET, "max_tokens": 40, "ignore_eos": True, "temperature": 1, "seed": 3}

    answer = logged.post(
        "/v1/completions", json=body, headers={**KEY, "x-request-id": "Mine-1.a:b/c"}
    )

    assert answer.headers["x-request-id"] == "Mine-1.a:b/c"
    line, reply = told_of(logged, "Mine-1.a:b/c"), answer.json()
    route = reply["choices"][0]["route"]
    assert (line["level"], line["process"], line["status"]) == ("info", "server", 200)
    assert (line["method"], line["path"]) == ("POST", "/v1/completions")
    assert (line["answer"], line["finish"]) == (reply["id"], ["length"])
    assert line["tokens_by_model"] == route["tokens_by_model"]
    assert (line["completion_tokens"], line["handoffs"]) == (40, route["handoffs"])
    assert line["prompt_tokens"] == reply["usage"]["prompt_tokens"] and route["handoffs"] > 0
    assert 0 < line["first_token_ms"] < line["ms"]


def test_a_stream_has_its_id_from_the_start_and_its_line_at_the_end(logged):
    body = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 5, "stream": True}
    headers = {**KEY, "x-request-id": "s1"}

    answer = logged.post("/v1/chat/completions", json=body, headers=headers)

    assert answer.headers["x-request-id"] == "s1" and answer.text.endswith("[DONE]\n\n")
    line = told_of(logged, "s1")
    assert (line["status"], line["path"]) == (200, "/v1/chat/completions")
    assert 1 <= line["completion_tokens"] <= 5 and line["finish"][0] in ("stop", "length")


REFUSALS = {
    "wrong key": ("POST", "/v1/completions", {}, {}, 401, "invalid_api_key"),
    "no such path": ("GET", "/v1/nothing\n2026 forged", None, KEY, 404, "not_found"),
    "wrong method": ("GET", "/v1/completions", None, KEY, 405, "method_not_allowed"),
    "wrong field": (
        "POST",
        "/v1/completions",
        {"promt": SECRET},
        KEY,
        400,
        "invalid_request_error",
    ),
    "wrong model": (
        "POST",
        "/v1/completions",
        {"model": SECRET, "prompt": SECRET},
        KEY,
        404,
        "model_not_found",
    ),
    "too long": (
        "POST",
        "/v1/completions",
        {"prompt": SECRET, "max_tokens": 10**6},
        KEY,
        400,
        "context_length_exceeded",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_has_an_id_and_a_line_that_says_why(logged, name):
    method, path, body, headers, status, code = REFUSALS[name]
    root = logged.url.removesuffix("/v1")
    id_ = "refused-" + name.replace(" ", "-")

    answer = httpx.request(
        method,
        root + path.replace("\n", "%0a").replace(" ", "%20"),
        json=body,
        headers={**headers, "x-request-id": id_},
        timeout=HANG_S,
    )

    assert (answer.status_code, answer.headers["x-request-id"]) == (status, id_)
    line = told_of(logged, id_)
    assert (line["status"], line["error"], line["path"]) == (status, code, path)


@pytest.mark.parametrize("sent", [None, "", "a b", "x" * (MAX_ID_CHARS + 1), "ä", 'a"b'], ids=repr)
def test_an_id_that_is_none_is_replaced_by_a_new_one(logged, sent):
    headers = dict(KEY) if sent is None else {**KEY, "x-request-id": sent.encode()}

    answer = httpx.get(logged.url + "/models", headers=headers, timeout=HANG_S)

    assert answer.status_code == 200
    assert NEW_ID.fullmatch(answer.headers["x-request-id"])
    assert told_of(logged, answer.headers["x-request-id"])["path"] == "/v1/models"


def test_the_longest_id_and_every_character_of_one_are_kept():
    for good in ("x" * MAX_ID_CHARS, "AZaz09._:/+=@-"):
        assert request_id(good.encode()) == good
    assert request_id(b"a") == "a" != request_id(b"a\n")


def test_two_requests_under_no_id_get_different_ones_and_probes_are_told_at_debug(logged):
    first, second = (logged.get("/health").headers["x-request-id"] for _ in range(2))

    assert first != second
    assert told_of(logged, first)["level"] == "debug"


def test_a_client_that_leaves_a_stream_is_told_as_gone(logged):
    body = {"prompt": "x", "max_tokens": 6000, "ignore_eos": True, "temperature": 1, "stream": True}
    headers = {**KEY, "x-request-id": "left"}
    url = logged.url + "/completions"
    with httpx.stream("POST", url, json=body, headers=headers, timeout=HANG_S) as answer:
        next(answer.iter_lines())

    line = told_of(logged, "left")

    assert line["gone"] is True and line["finish"] == [None]
    assert 0 < line["completion_tokens"] < 6000


def test_a_subserver_that_is_killed_is_told_in_the_same_format(logged):
    epochs = sum('"loaded"' in line and '"small"' in line for line in list(logged.lines))
    os.kill(subserver(logged, model=0), signal.SIGKILL)

    wait_until(lambda: sum('"loaded"' in x and '"small"' in x for x in list(logged.lines)) > epochs)

    [line] = [x for x in map(json.loads, list(logged.lines)) if "starting it again" in x["message"]]
    assert (line["level"], line["process"]) == ("warning", "server")
    assert "signal 9" in line["message"]
    wait_until(lambda: logged.get("/ready").status_code == 200)


def test_the_end_of_a_drain_is_a_warning_streamed_or_not(plan_path):
    body = {"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "temperature": 1}
    with serving(plan_path, "--log-format", "json", "--drain", "0") as server:
        asks = {
            id_: {"json": body | {"stream": id_ == "streamed"}, "headers": {"x-request-id": id_}}
            for id_ in ("streamed", "whole")
        }
        whole = threading.Thread(
            target=lambda: server.post("/v1/completions", **asks["whole"]), daemon=True
        )
        whole.start()
        url = server.url + "/completions"
        with httpx.stream("POST", url, timeout=HANG_S, **asks["streamed"]) as answer:
            events = answer.iter_lines()
            next(events)
            wait_until(lambda: server.get("/ready").json()["running"] == 2)
            server.signal(signal.SIGTERM)
            for _ in events:
                pass
        whole.join(HANG_S)
        lines = [told_of(server, id_) for id_ in asks]
        assert server.end() == 0

    assert [(line["status"], line["error"]) for line in lines] == [
        (200, "not_ready"),
        (503, "not_ready"),
    ]
    assert [line["level"] for line in lines] == ["warning"] * 2


def test_text_lines_are_the_same_in_words(plan_path):
    with serving(plan_path, "--log-level", "info") as server:
        server.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, "ignore_eos": True})
        server.get("/health")
        wait_until(lambda: any(" request " in line for line in server.lines))
        server.signal(signal.SIGTERM)
        assert server.end() == 0

    when = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    [line] = [line for line in server.lines if " request " in line]
    assert re.match(rf"{when} info server request request_id=\w+ method=POST path=/v1/comp", line)
    assert 'finish=["length"]' in line.replace("\\", "")
    assert any(re.match(rf"{when} info large loaded epoch=1 ms=", line) for line in server.lines)


def test_a_start_that_fails_is_a_json_line_where_lines_are_json(tmp_path):
    done = trc("serve", tmp_path / "none.json", "--log-format", "json")

    [line] = done.stderr.splitlines()
    assert done.returncode == 1
    assert "no such plan" in json.loads(line)["message"] and json.loads(line)["level"] == "error"


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_record_is_one_line_whatever_a_client_put_into_it(form):
    made = record("bad\nname %s", "\x1b[2J\r", path='/a b\n2026 forged="1"', ids=[1, "\n"])

    line = Lines(form, "server").format(made)

    assert len(line.splitlines()) == 1 and line.isprintable()
    if form == "json":
        assert json.loads(line)["path"] == '/a b\n2026 forged="1"'
    else:
        assert 'path="/a b\\n2026 forged=\\"1\\""' in line


def test_a_traceback_is_a_field_of_json_and_follows_a_line_of_text():
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        made = record("it failed")
        made.exc_info = (type(error), error, error.__traceback__)

    assert "ValueError: a\nb" in json.loads(Lines("json", "s").format(made))["traceback"]
    head, *rest = Lines("text", "s").format(made).splitlines()
    assert head.endswith("info s it failed") and rest[-2:] == ["ValueError: a", "b"]


def test_what_a_subserver_logged_is_passed_on_and_what_a_library_printed_is_wrapped(capsys, caplog):
    logged = Lines("json", "small", mark="\x1e").format(record("loaded", epoch=2))

    relay("small", logged)
    relay("small", "terminate called")
    relay("small", "")

    assert json.loads(capsys.readouterr().err)["epoch"] == 2
    [wrapped] = caplog.records
    assert (wrapped.message, wrapped.fields) == ("terminate called", {"process": "small"})
    assert (message_of(logged), message_of("plain\n")) == ("loaded", "plain")
    assert told(a=1) == {"fields": {"a": 1}}


def test_a_line_that_nobody_reads_any_more_stops_nothing(monkeypatch):
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w", buffering=1) as closed:
        monkeypatch.setattr("sys.stderr", closed)
        relay("small", "\x1eloaded")
        with pytest.raises(BrokenPipeError):
            closed.write("the pipe is closed indeed\n")
        monkeypatch.undo()
        with contextlib.suppress(BrokenPipeError):
            closed.close()


def test_every_line_of_a_server_is_in_the_format_that_was_chosen(plan_path):
    form = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z (info|warning) (server|small|large) \S.*")
    with serving(plan_path) as server:
        server.post("/v1/completions", json={"prompt": "x", "max_tokens": 2})
        server.signal(signal.SIGTERM)
        assert server.end() == 0

    assert all(form.fullmatch(line.rstrip("\n")) for line in server.lines), server.lines
    said = "".join(server.lines)
    for words in ("small: loading", "large: ready after", "draining for up to", "POST"):
        assert words in said
