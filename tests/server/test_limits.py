"""Time limits, priorities, clients that leave, TLS and CORS, over a real server; after each the models hold nothing."""

import asyncio
import contextlib
import json
import select
import signal
import socket
import ssl
import subprocess
import threading
import time

import httpx
import openai
import pytest

from tests.server.serving import HANG_S, serving, wait_until
from tests.server.test_lifecycle import fails_in_one_line, trc
from tokenrouter.server.lifecycle import unsent

ENDLESS = {"prompt": "x", "max_tokens": 7000, "ignore_eos": True, "temperature": 1}
ORIGIN = "https://app.example"


def metric(server, name):
    """Return a metric's values by model; a model that is in a long step is left out."""
    lines = server.get("/metrics").text.splitlines()
    found = [line.split() for line in lines if line.startswith(f"tokenrouter_{name}{{")]
    return {head.split('"')[1]: float(value) for head, value in found}


def holds_nothing(server):
    """Wait until neither front end nor subservers have a request or a page of one."""
    server.idle()
    for name in ("model_running", "model_pending", "kv_cache_usage_ratio"):
        wait_until(lambda name=name: metric(server, name) == {"small": 0, "large": 0})


def errors_of(stream):
    lines = [line.removeprefix("data: ") for line in stream if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line)["error"] for line in lines[:-1] if '"error"' in line]


def timed_out(error, seconds):
    assert (error["type"], error["code"]) == ("timeout", "timeout")
    assert f"within {seconds:g} s" in error["message"]


def test_an_answer_that_takes_longer_than_its_time_is_a_504_and_is_not_asked_again(server):
    answer = server.post("/v1/completions", json={**ENDLESS, "timeout": 0.6, "n": 3})

    assert answer.status_code == 504
    timed_out(answer.json()["error"], 0.6)
    assert answer.headers["x-should-retry"] == "false"
    holds_nothing(server)


def test_openais_client_sees_one_failure_and_asks_once(server):
    asked = []
    http = httpx.Client(event_hooks={"request": [asked.append]}, timeout=HANG_S)
    given = {"model": "ping_pong", "prompt": "x", "max_tokens": 7000}
    with (
        openai.OpenAI(base_url=server.url, api_key="x", max_retries=3, http_client=http) as made,
        pytest.raises(openai.InternalServerError) as caught,
    ):
        made.completions.create(**given, extra_body={"timeout": 0.3, "ignore_eos": True})

    assert (caught.value.status_code, caught.value.code) == (504, "timeout")
    assert len(asked) == 1
    holds_nothing(server)


def test_a_stream_that_takes_longer_ends_with_an_error_event(server):
    with server.stream({**ENDLESS, "n": 4, "stream": True, "timeout": 4}) as lines:
        got = list(lines)

    [error] = errors_of(got)
    timed_out(error, 4)
    assert len(got) > 4
    holds_nothing(server)


def test_an_answer_in_time_is_what_it_would_be_without_a_limit(server):
    body = {"prompt": "The sea", "max_tokens": 30, "temperature": 1, "seed": 4}

    limited = server.post("/v1/completions", json={**body, "timeout": 600}).json()

    assert limited["choices"] == server.post("/v1/completions", json=body).json()["choices"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("timeout", 0), ("timeout", -1), ("timeout", 86_401), ("priority", 1001), ("priority", 0.5)],
)
def test_what_is_no_time_and_no_priority_is_refused(server, field, value):
    answer = server.post("/v1/completions", json={"prompt": "x", field: value})

    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_a_priority_changes_no_token(server):
    body = {"prompt": "The sea", "max_tokens": 30, "temperature": 1, "seed": 4}
    told = [
        server.post("/v1/completions", json={**body, "priority": p}).json()["choices"]
        for p in (0, -3, 1000)
    ]

    assert told[0] == told[1] == told[2]


def raw(server, body):
    """Send a request on a connection of its own, and return the connection."""
    host, port = server.url.split("/")[2].split(":")
    data = json.dumps(body).encode()
    made = socket.create_connection((host, int(port)), timeout=HANG_S)
    head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    made.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    return made


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
@pytest.mark.parametrize("tau", [0.0, 1.0, 10.0])
def test_a_client_that_leaves_frees_its_pages_at_every_model(server, stream, tau):
    body = {**ENDLESS, "n": 3, "stream": stream, "route": {"params": {"tau": tau}}}
    with raw(server, body) as made:
        wait_until(lambda: server.get("/ready").json()["running"] == 3)
        if stream:
            assert made.recv(1000)
        time.sleep(0.3)

    holds_nothing(server)


def test_clients_that_leave_at_any_moment_leave_nothing_behind(server):
    for at in range(24):
        body = {
            **ENDLESS,
            "prompt": "The sea is wide. " * (1 + 20 * (at % 3)),
            "stream": at % 2 == 0,
        }
        with raw(server, body):
            time.sleep(0.013 * (at % 7))

    holds_nothing(server)


def test_a_stream_closed_beside_a_long_prefill_leaves_the_others_alone(server):
    """Request 10 of those that broke other servers."""
    long = {"prompt": "The sea is wide and the ship is small. " * 120, "max_tokens": 2}
    done = {}

    def ask(name, body):
        done[name] = server.post("/v1/completions", json=body).status_code

    with raw(server, {**ENDLESS, "stream": True}) as first:
        prefill = threading.Thread(target=ask, args=("prefill", long))
        prefill.start()
        for _ in range(3):
            assert first.recv(200)
    small = threading.Thread(target=ask, args=("small", {"prompt": "x", "max_tokens": 4}))
    small.start()
    for thread in (small, prefill):
        thread.join(HANG_S)

    assert done == {"prefill": 200, "small": 200}
    holds_nothing(server)


def test_no_origin_may_ask_from_a_browser_by_default(server):
    headers = {"origin": ORIGIN, "access-control-request-method": "POST"}
    asked = httpx.options(server.url + "/completions", headers=headers, timeout=HANG_S)
    told = httpx.get(server.url + "/models", headers={"origin": ORIGIN}, timeout=HANG_S)

    for answer in (asked, told):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert asked.status_code == 405


def certificate(root, name):
    """A certificate that signs itself, and its key."""
    files = root / f"{name}.pem", root / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        [*command, "-out", str(files[0]), "-keyout", str(files[1])], check=True, capture_output=True
    )
    return files


@pytest.fixture(scope="module")
def pems(tmp_path_factory):
    root = tmp_path_factory.mktemp("tls")
    return [certificate(root, name) for name in ("one", "two")]


def test_tls_a_time_limit_for_all_and_origins_over_one_server(plan_path, pems):
    cert, key = pems[0]
    flags = ["--ssl-certfile", str(cert), "--ssl-keyfile", str(key), "--api-key", "sesame"]
    flags += ["--cors-origin", ORIGIN, "--request-timeout", "15"]
    with serving(plan_path, *flags) as server:
        assert server.url.startswith("https://127.0.0.1:")
        http = httpx.Client(verify=ssl.create_default_context(cafile=cert), timeout=HANG_S)
        made = openai.OpenAI(base_url=server.url, api_key="sesame", http_client=http)
        answer = made.completions.create(model="ping_pong", prompt="x", max_tokens=4)
        streamed = made.completions.create(model="ping_pong", prompt="x", max_tokens=4, stream=True)
        chunks = list(streamed)
        with pytest.raises(openai.InternalServerError) as late:
            made.completions.create(
                model="ping_pong",
                prompt="x",
                max_tokens=7000,
                n=64,  # so that no machine writes them all in time
                extra_body={"ignore_eos": True, "timeout": 500},
            )
        asking = {"origin": ORIGIN, "access-control-request-method": "POST"}
        asking["access-control-request-headers"] = "authorization,content-type"
        asked = http.options(server.url + "/completions", headers=asking)
        other = http.options(
            server.url + "/completions", headers={**asking, "origin": "https://other.example"}
        )
        refused = http.get(server.url + "/models", headers={"origin": ORIGIN})
        with pytest.raises(httpx.ConnectError):
            httpx.get(server.url + "/models", timeout=HANG_S)  # by one who does not trust it
        with pytest.raises(httpx.HTTPError):
            httpx.get(server.url.replace("https", "http"), timeout=HANG_S)
        http.close()
        server.signal(signal.SIGTERM)
        assert server.end() == 0

    assert answer.usage.completion_tokens >= 1 and chunks[-1].choices[0].finish_reason
    timed_out(late.value.body, 15)
    assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, ORIGIN)
    assert "authorization" in asked.headers["access-control-allow-headers"].lower()
    assert "access-control-allow-origin" not in other.headers
    assert other.status_code == 400 and "Origin" in other.headers["vary"]
    assert other.json()["error"]["code"] == "cors"
    assert "`--cors-origin`" in other.json()["error"]["message"]
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, ORIGIN)


def receive(connection, until):
    """Return what comes until it ends so, or the connection does."""
    got = b""
    while not got.endswith(until) and (part := connection.recv(1 << 16)):
        got += part
    return got


def test_the_end_waits_for_clients_that_still_read_and_for_no_idle_connection(plan_path, pems):
    cert, key = pems[0]
    flags = ["--ssl-certfile", str(cert), "--ssl-keyfile", str(key), "--log-format", "json"]
    trust = ssl.create_default_context(cafile=cert)
    body = json.dumps({"prompt": "x y " * 500_000, "return_token_strs": True}).encode()
    head = "POST /tokenize HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with serving(plan_path, *flags) as server, contextlib.ExitStack() as open_:
        address = ("127.0.0.1", httpx.URL(server.url).port)

        def connect():
            plain = socket.socket()
            plain.settimeout(HANG_S)
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            plain.connect(address)
            return open_.enter_context(trust.wrap_socket(plain, server_hostname=address[0]))

        idle, slow = connect(), connect()
        idle.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert receive(idle, b"}").startswith(b"HTTP/1.1 200")
        slow.sendall(head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body)
        answered = slow.recv(100)  # far from all of it
        server.signal(signal.SIGTERM)
        wait_until(lambda: not listens(address))
        time.sleep(0.3)  # so that a connection that is cut too early has been
        answered += receive(slow, b"}")
        status = server.end()

    head, _, rest = answered.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200")
    assert f"content-length: {len(rest)}" in head.decode()
    assert status == 0
    lines = [json.loads(line) for line in server.lines]
    assert [line for line in lines if line["level"] in ("warning", "error")] == []


def test_what_waits_below_tls_counts_as_unsent(pems):
    cert, key = pems[0]
    mine = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    mine.load_cert_chain(cert, key)
    data = b"x" * 60_000  # less than what makes the upper layer wait

    def connect(address):
        plain = socket.socket()
        plain.settimeout(HANG_S)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.connect(address)
        trust = ssl.create_default_context(cafile=cert)
        return trust.wrap_socket(plain, server_hostname=address[0])

    async def talk():
        made = asyncio.get_running_loop().create_future()

        class Writer(asyncio.Protocol):
            def connection_made(self, transport):
                plain = transport.get_extra_info("socket")
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
                transport.write(data)
                made.set_result(transport)

        loop = asyncio.get_running_loop()
        server = await loop.create_server(Writer, "127.0.0.1", 0, ssl=mine)
        client = await asyncio.to_thread(connect, server.sockets[0].getsockname())
        transport = await made
        assert unsent(transport) > transport.get_write_buffer_size() == 0
        left = len(data)
        while left:
            left -= len(await asyncio.to_thread(client.recv, 1 << 16))
        assert unsent(transport) == 0
        transport.abort()
        client.close()
        server.close()
        await server.wait_closed()

    asyncio.run(talk())


def listens(address):
    try:
        socket.create_connection(address, timeout=HANG_S).close()
    except OSError:
        return False
    return True


def test_certificates_that_cannot_be_used_are_one_line_before_any_model_loads(
    plan_path, pems, tmp_path
):
    (cert, key), (_, other) = pems
    text = tmp_path / "no.pem"
    text.write_text("this is no certificate")
    locked = tmp_path / "locked.key"
    command = ["openssl", "rsa", "-aes128", "-passout", "pass:sesame", "-in", str(key)]
    subprocess.run([*command, "-out", str(locked)], check=True, capture_output=True)

    def fails(cert, key, says):
        flags = ["--port", "0", "--ssl-certfile", cert, "--ssl-keyfile", key]
        fails_in_one_line("serve", plan_path, *flags, says=says)

    fails(tmp_path / "none", key, "none`, named by `--ssl-certfile`")
    fails(cert, tmp_path / "none", "none`, named by `--ssl-keyfile`")
    fails(cert, other, "does not belong to the certificate")
    fails(text, key, "hold no certificate and key in PEM")
    fails(cert, locked, "without a password")


@pytest.mark.parametrize(
    "args",
    [
        ("--ssl-keyfile", "key.pem"),
        ("--cors-origin", "example.com"),
        ("--cors-origin", "https://example.com/path"),
        ("--request-timeout", "0"),
        ("--request-timeout", "-1"),
    ],
    ids=" ".join,
)
def test_options_that_make_no_sense_are_wrong_usage(plan_path, args):
    done = trc("serve", plan_path, "--port", "0", *args)

    assert done.returncode == 2
    assert args[0] in done.stderr.splitlines()[-1]


def test_metrics_are_in_the_document(server):
    document = server.get("/openapi.json").json()

    assert "text/plain" in document["paths"]["/metrics"]["get"]["responses"]["200"]["content"]
    assert "504" in document["paths"]["/v1/completions"]["post"]["responses"]


@pytest.fixture
def full(plan_path):
    """A server with one place left of those for running requests and two for waiting ones; its number of places; a stream."""
    places = json.loads(plan_path.read_text())["windows"]["max_active"]
    with serving(plan_path, "--max-waiting", "2") as running:
        with running.stream({**ENDLESS, "stream": True, "n": places - 1}) as lines:
            next(lines)
            yield running, places
        holds_nothing(running)
        running.signal(signal.SIGTERM)
        assert running.end() == 0


def test_a_full_server_says_when_to_ask_again_and_what_it_will_never_hold(full):
    server, places = full
    with server.stream({**ENDLESS, "stream": True, "n": 3}) as lines:
        next(lines)
        wait_until(lambda: server.get("/ready").json()["waiting"] == 2)

        now = server.post("/v1/completions", json={"prompt": "x"})
        never = server.post("/v1/completions", json={"prompt": "x", "n": places + 3})

        assert (now.status_code, now.headers["retry-after"]) == (429, "1")
        assert now.json()["error"]["code"] == "overloaded"
        assert (never.status_code, never.json()["error"]["param"]) == (400, "n")
        assert f"{places + 2} at most" in never.json()["error"]["message"]
    wait_until(lambda: server.get("/ready").json()["waiting"] == 0)
    small = server.post("/v1/completions", json={"prompt": "x", "max_tokens": 2})
    assert small.status_code == 200


def test_of_two_that_wait_the_one_of_lower_priority_number_goes_first(full):
    server, _ = full
    with contextlib.ExitStack() as later:
        with server.stream({**ENDLESS, "stream": True}) as lines:
            next(lines)
            first = later.enter_context(raw(server, ENDLESS))
            wait_until(lambda: server.get("/ready").json()["waiting"] == 1)
            body = {**ENDLESS, "stream": True, "priority": -1}
            sooner = threading.Thread(
                target=lambda: later.enter_context(server.stream(body)), daemon=True
            )
            sooner.start()
            wait_until(lambda: server.get("/ready").json()["waiting"] == 2)
        sooner.join(HANG_S)  # its first event is there

        assert not sooner.is_alive()
        assert server.get("/ready").json()["waiting"] == 1
        assert not select.select([first], [], [], 0)[0]  # no answer yet
