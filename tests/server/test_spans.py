"""Spans of completions: in memory, from the real app and real subservers, and by OTLP from a real server."""

import asyncio
import contextlib
import http.server
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from tests.server.serving import HANG_S, serving, wait_until
from tests.server.test_lifecycle import trc
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.io import read
from tokenrouter.runtime.client import Client
from tokenrouter.server.access import Access
from tokenrouter.server.app import create_app
from tokenrouter.server.service import Service
from tokenrouter.server.spans import MAX_HANDOFF_EVENTS, Spans

SECRET = "swordfish"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@contextlib.asynccontextmanager
async def traced(plan_path):
    """Give a client of the real app, its models in processes of their own, and the spans that it makes."""
    plan, base = read(plan_path), plan_path.parent
    service = Service(
        name="ping",
        plan=plan,
        tokenizer=TextTokenizer.of(plan, base),
        client=Client(plan, base=base, dtype="float64", threads=1),
    )
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    observer = Spans(provider, [model.name for model in plan.models])
    await service.client.start()
    transport = httpx.ASGITransport(app=Access(create_app(service), [observer]))
    try:
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            yield client, spans
    finally:
        await service.client.close(0)


def test_a_span_tells_what_was_asked_and_what_became_of_it(plan_path):
    body = {
        "messages": [{"role": "user", "content": SECRET}],
        "max_tokens": 300,
        "ignore_eos": True,
        "seed": -1,
        "n": 2,
        "temperature": 1,
    }
    refused = {"prompt": SECRET, "max_tokens": 10**6}
    headers = {"traceparent": PARENT, "x-request-id": "mine"}

    async def ask():
        async with traced(plan_path) as (client, spans):
            whole = await client.post("/v1/chat/completions", json=body, headers=headers)
            streamed = {"prompt": SECRET, "max_tokens": 3, "stream": True, "ignore_eos": True}
            await client.post("/v1/completions", json=streamed)
            await client.post("/v1/completions", json=refused)
            await client.get("/ready")
            await client.get("/v1/completions")
            return whole.json(), spans.get_finished_spans()

    reply, (chat, text, wrong) = asyncio.run(ask())

    assert (chat.name, chat.kind) == ("chat ping", SpanKind.SERVER)
    assert f"{chat.context.trace_id:032x}" == PARENT.split("-")[1]
    assert f"{chat.parent.span_id:016x}" == PARENT.split("-")[2]
    told, usage = dict(chat.attributes), reply["usage"]
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.response.id"] == reply["id"]
    assert told["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == usage["completion_tokens"] == 600
    assert told["gen_ai.response.finish_reasons"] == ("length", "length")
    assert told["gen_ai.request.seed"] == -1  # 64 bits, signed
    assert (told["gen_ai.request.choice.count"], told["gen_ai.request.max_tokens"]) == (2, 300)
    assert (told["http.response.status_code"], told["tokenrouter.request.id"]) == (200, "mine")
    by_model = usage["completion_tokens_details"]["tokens_by_model"]
    assert {m: told[f"tokenrouter.tokens.{m}"] for m in by_model} == by_model
    handoffs = [choice["route"]["handoffs"] for choice in reply["choices"]]
    assert told["tokenrouter.handoffs"] == sum(handoffs) > MAX_HANDOFF_EVENTS
    events = [event for event in chat.events if event.name == "handoff"]
    assert [event.name for event in chat.events].count("first_token") == 1
    assert len(events) == MAX_HANDOFF_EVENTS and len(chat.events) == MAX_HANDOFF_EVENTS + 1
    for choice in range(2):
        mine = [dict(e.attributes) for e in events if e.attributes["tokenrouter.choice"] == choice]
        so_far = [each["tokenrouter.handoffs"] for each in mine]
        assert so_far == sorted(set(so_far)) and mine
        assert all(0 <= each["tokenrouter.position"] < 300 for each in mine)
        assert {each["tokenrouter.model"] for each in mine} <= {"small", "large"}
    assert (text.name, text.parent) == ("text_completion ping", None)
    assert text.attributes["gen_ai.usage.output_tokens"] == 3
    assert (wrong.name, wrong.status.status_code) == ("text_completion", StatusCode.UNSET)
    assert wrong.attributes["error.type"] == "context_length_exceeded"
    assert wrong.attributes["http.response.status_code"] == 400
    assert SECRET not in "".join(span.to_json() for span in (chat, text, wrong))


@pytest.mark.parametrize("sent", ["", "nonsense", "00-0-0-01", PARENT.replace("b7ad", "ü")])
def test_a_parent_that_is_none_begins_a_trace_of_its_own(plan_path, sent):
    async def ask():
        async with traced_without_models() as (client, spans):
            await client.post("/v1/completions", headers={"traceparent": sent.encode()})
            return spans.get_finished_spans()

    [span] = asyncio.run(ask())

    assert span.parent is None


@contextlib.asynccontextmanager
async def traced_without_models():
    """Give a client of an app that refuses everything."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 500, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    transport = httpx.ASGITransport(app=Access(app, [Spans(provider, ["small"])]))
    async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
        yield client, spans


class Collector(http.server.BaseHTTPRequestHandler):
    """What takes spans by OTLP."""

    def do_POST(self):
        data = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((self.path, ExportTraceServiceRequest.FromString(data)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def collector():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    made.got = []
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_a_server_sends_its_spans_by_otlp_the_last_of_them_when_it_ends(
    plan_path, collector, monkeypatch
):
    url = f"http://127.0.0.1:{collector.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    with serving(plan_path, "--otel", "--name", "ping") as server:
        body = {"prompt": "x", "max_tokens": 30, "ignore_eos": True, "seed": -1}
        reply = server.post("/v1/completions", json=body).json()
        server.signal(signal.SIGTERM)
        assert server.end() == 0

    [(path, request)] = collector.got
    [resource] = request.resource_spans
    [span] = resource.scope_spans[0].spans
    assert path == "/v1/traces"
    assert {a.key: a.value.string_value for a in resource.resource.attributes}["service.name"] == (
        "ping"
    )
    told = {a.key: a.value for a in span.attributes}
    assert told["gen_ai.response.id"].string_value == reply["id"]
    assert "handoff" in {event.name for event in span.events}


def test_a_collector_that_is_gone_costs_lines_and_nothing_else(plan_path, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    with serving(plan_path, "--otel") as server:
        assert server.post("/v1/completions", json={"prompt": "x"}).status_code == 200
        server.signal(signal.SIGTERM)
        assert server.end() == 0

    assert any("opentelemetry" in line or "export" in line for line in server.lines)


def without_telemetry(tmp_path):
    """Return an environment in which the library cannot be imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nsys.modules['opentelemetry.sdk'] = None\n"
        "sys.modules['opentelemetry.exporter'] = None\n"
    )
    return {**os.environ, "PYTHONPATH": f"{tmp_path}:{Path(__file__).parents[2]}"}


def test_where_the_extra_is_missing_one_line_says_how_to_get_it(plan_path, tmp_path):
    done = trc("serve", plan_path, "--otel", env=without_telemetry(tmp_path))

    [line] = done.stderr.splitlines()
    assert done.returncode == 2 and line.endswith("pip install 'tokenrouter[otel]'")


def test_nobody_who_has_not_asked_for_spans_imports_the_library():
    code = (
        "import sys, tokenrouter.server.app, tokenrouter.server.lifecycle, tokenrouter.commands.serve\n"
        "print([m for m in sys.modules if m.startswith('opentelemetry.sdk')])"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S
    )

    assert done.stdout.strip() == "[]"


def test_a_stream_whose_client_leaves_has_a_span_that_says_so(plan_path, collector, monkeypatch):
    url = f"http://127.0.0.1:{collector.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    body = {"prompt": "x", "max_tokens": 6000, "ignore_eos": True, "stream": True}
    with serving(plan_path, "--otel") as server:
        with server.stream(body) as lines:
            next(lines)
        wait_until(lambda: collector.got)
        server.signal(signal.SIGTERM)
        assert server.end() == 0

    [span] = collector.got[0][1].resource_spans[0].scope_spans[0].spans
    told = {a.key: a.value for a in span.attributes}
    assert told["error.type"].string_value == "client_gone"
    [reason] = told["gen_ai.response.finish_reasons"].array_value.values
    assert reason.string_value == "cut"
