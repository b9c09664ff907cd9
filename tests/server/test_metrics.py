"""What `/metrics` tells, over HTTP and by hand, and that the docs list it."""

import asyncio
import os
import signal
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.server.serving import serving, wait_until
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.client import RESTARTS, Client
from tokenrouter.runtime.errors import StartFailed
from tokenrouter.runtime.messages import RouteState, Token
from tokenrouter.server.counts import Counts
from tokenrouter.server.metrics import METRICS, Exposition, Histogram, table

DOCS = (Path(__file__).parents[2] / "docs/serving.md").read_text(encoding="utf-8")


def samples(text):
    families = text_string_to_metric_families(text)
    return {
        (s.name.removeprefix("tokenrouter_"), *s.labels.values()): s.value
        for f in families
        for s in f.samples
    }


def test_the_documented_table_is_the_one_of_the_code():
    assert table() in DOCS


def test_a_histogram_is_cumulative_and_labels_are_escaped():
    out = Exposition()
    sizes = Histogram((1.0, 2.0))
    sizes.observe(1)
    sizes.observe(2, 3)
    sizes.observe(9)
    out.histogram("batch_size", sizes, 'a "b" \\ c')

    got = samples(out.text())

    name = 'a "b" \\ c'
    assert [got["batch_size_bucket", name, le] for le in ("1", "2", "+Inf")] == [1, 4, 5]
    assert (got["batch_size_sum", name], got["batch_size_count", name]) == (16, 5)


def test_large_counters_keep_all_their_digits_and_flags_are_numbers():
    out = Exposition()
    out.set("tokens_total", 12_345_678, "m", "0")
    out.set("phase_seconds_total", 123456.78125, "m", "gate")
    out.set("model_up", True, "m")

    got = samples(out.text())

    assert got["tokens_total", "m", "0"] == 12_345_678
    assert got["phase_seconds_total", "m", "gate"] == 123456.78125
    assert got["model_up", "m"] == 1


def test_times_are_taken_from_submission_and_between_tokens():
    clock = iter([10.0, 10.5, 11.5, 11.5, 20.0, 23.0])
    counts = Counts(lambda: next(clock))
    token = Token(
        request=1, token=1, model=0, rule=None, logprob=0.0, state=RouteState(owner=0, counts=[])
    )
    watched = counts.watch(7)
    watched.token(token)
    watched.token(msgspec.structs.replace(token, finish="stop"))
    counts.watch(1).ended("aborted")

    assert (counts.first.sum, counts.between.sum, counts.whole.sum) == (0.5, 1.0, 4.5)
    assert counts.outcomes == {"stop": 1, "aborted": 1}
    assert (counts.n_prompt_tokens, counts.tokens) == (8, {(0, None): 2})


def test_choices_that_ended_early_are_counted_by_why(server):
    server.empties()
    before = outcomes(server)
    endless = {"prompt": "the sea", "max_tokens": 400, "ignore_eos": True}

    assert server.post("/v1/completions", json={**endless, "timeout": 0.01, "n": 3}).is_error
    stopped = server.post("/v1/completions", json={**endless, "stop": list("aeiou ")}).json()
    with server.stream({**endless, "max_tokens": 2000, "stream": True}) as lines:
        next(lines)
    assert server.post("/v1/completions", json={**endless, "max_tokens": 2}).is_success

    assert stopped["choices"][0]["finish_reason"] == "stop"
    wanted = {"stop": 1, "length": 1, "aborted": 1, "timeout": 3, "failed": 0}
    wait_until(lambda: {k: v - before[k] for k, v in outcomes(server).items()} == wanted)


def outcomes(server):
    got = samples(server.get("/metrics").text)
    return {key[1]: value for key, value in got.items() if key[0] == "requests_total"}


def test_every_metric_is_told_and_adds_up(plan_path):
    body = {
        "prompt": "The sea is wide. " * 8,
        "max_tokens": 300,
        "ignore_eos": True,
        "temperature": 1,
        "seed": 3,
    }
    with serving(plan_path, "--dtype", "float64") as server:
        replies = [server.post("/v1/completions", json=body).json() for _ in range(2)]
        wait_until(
            lambda: (
                len(samples(server.get("/metrics").text))
                and "tokenrouter_window{" in server.get("/metrics").text
            )
        )
        text = server.get("/metrics").text
        server.signal(signal.SIGTERM)
        assert server.end() == 0
    got = samples(text)
    details = [reply["choices"][0]["route"] for reply in replies]

    untold = {name for name in METRICS if f"# TYPE tokenrouter_{name} " not in text}
    assert untold == {"captured_steps_total", "eager_steps_total"}  # nothing is captured on a CPU
    assert sum(v for k, v in got.items() if k[0] == "tokens_total") == 600
    assert got["requests_total", "length"] == 2
    assert got["time_to_first_token_seconds_count",] == 2
    assert got["inter_token_latency_seconds_count",] == 598
    committed = sum(v for k, v in got.items() if k[0] == "handoffs_total")
    assert committed >= sum(detail["handoffs"] for detail in details) > 0
    for model in ("small", "large"):
        assert (got["kv_cache_usage_ratio", model], got["model_up", model]) == (0, 1)
        assert 0 < got["prefix_cache_hits_total", model] < got["prefix_cache_queries_total", model]


def subserver(server, model):
    """Return the process id of a model's subserver; None where there is none now."""
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text()
    for pid in children.split():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except FileNotFoundError:
            continue
        if b"tokenrouter.runtime.process" in words and words[-3] == str(model).encode():
            return int(pid)
    return None


def test_a_subserver_that_dies_again_and_again_is_given_up_with_a_clear_state(plan_path):
    with serving(plan_path) as server:
        for _ in range(RESTARTS + 1):  # all but the first before they have loaded
            wait_until(lambda: subserver(server, model=0))
            os.kill(subserver(server, model=0), signal.SIGKILL)
            wait_until(lambda: server.get("/ready").json()["status"] != "ready")
        wait_until(lambda: server.get("/ready").json()["status"] == "failed")
        ready = server.get("/ready")
        answer = server.post("/v1/completions", json={"prompt": "x"})

        assert ready.status_code == 503
        assert "within a minute" in ready.json()["reason"]
        assert (
            answer.status_code == 503
            and "start the server again" in answer.json()["error"]["message"]
        )
        assert answer.json()["error"]["code"] == "given_up"
        assert "retry-after" not in answer.headers
        assert answer.headers["x-should-retry"] == "false"
        assert server.get("/health").status_code == 200
        server.signal(signal.SIGTERM)
        assert server.end() == 0


def test_a_pool_that_no_memory_could_hold_is_one_line(plan_path):
    plan = msgspec.json.decode(plan_path.read_bytes(), type=Plan)
    memory = msgspec.structs.replace(plan.memory, capacity_tokens=10**13)
    client = Client(msgspec.structs.replace(plan, memory=memory), base=plan_path.parent)

    with pytest.raises(StartFailed, match=r"out of memory .* tokens; compile") as caught:
        asyncio.run(client.start())

    assert "\n" not in str(caught.value)
