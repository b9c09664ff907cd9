"""The server as a process: how it starts, what it says when it cannot, and that nothing is left when it ends."""

import json
import os
import signal
import socket
import subprocess
import threading
from pathlib import Path

import httpx
import pytest

from tests.server.serving import HANG_S, TRC, serving, wait_until


def trc(*args, **kwargs):
    command = [*TRC, *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, **kwargs)


def fails_in_one_line(*args, says):
    """A command ends with 1, and one line on stderr says what is wrong."""
    done = trc(*args)

    assert done.returncode == 1
    assert done.stdout == ""
    [line] = done.stderr.splitlines()
    assert line.startswith(f"trc {args[0]}: ")
    assert says in line


def long_stream(server, got):
    body = {"prompt": "x", "max_tokens": 6000, "ignore_eos": True, "temperature": 1, "stream": True}
    try:
        with server.stream(body) as lines:
            got.extend(line for line in lines if line)
    except httpx.HTTPError as error:
        got.append(repr(error))


@pytest.fixture
def streaming():
    """Return a function that starts a stream which nobody could wait for, and gives what has come of it."""
    threads = []

    def start(server):
        got = []
        threads.append(threading.Thread(target=long_stream, args=(server, got)))
        threads[-1].start()
        wait_until(lambda: len(got) > 2)
        return got

    yield start
    for thread in threads:
        thread.join(HANG_S)
        assert not thread.is_alive()


def test_sigterm_lets_a_short_answer_finish_and_leaves_no_process(plan_path):
    body = {"prompt": "x", "max_tokens": 1000, "ignore_eos": True, "stream": True}
    with serving(plan_path, "--drain", "100") as server:
        with server.stream(body) as lines:
            next(lines)
            server.signal(signal.SIGTERM)
            wait_until(lambda: server.get("/ready").json()["status"] == "draining")
            late = server.post("/v1/completions", json={"prompt": "x"})
            got = [line for line in lines if line]

        assert got[-1] == "data: [DONE]" and '"finish_reason":null' not in got[-2]
        assert (late.status_code, late.headers["retry-after"]) == (503, "1")
        assert server.end() == 0


def test_what_outlives_the_deadline_ends_with_an_error_event(plan_path, streaming):
    with serving(plan_path, "--drain", "0.5") as server:
        got = streaming(server)
        server.signal(signal.SIGINT)

        assert server.end() == 0
    assert got[-1] == "data: [DONE]"
    error = json.loads(got[-2].removeprefix("data: "))["error"]
    assert (error["type"], error["code"]) == ("server_error", "not_ready")
    assert "shutting down" in error["message"]


def test_an_unstreamed_answer_that_outlives_the_deadline_is_a_503(plan_path):
    answers = []
    body = {"prompt": "x", "max_tokens": 8000, "ignore_eos": True, "temperature": 1}
    with serving(plan_path, "--drain", "0.2") as server:
        thread = threading.Thread(
            target=lambda: answers.append(server.post("/v1/completions", json=body))
        )
        thread.start()
        wait_until(lambda: server.get("/ready").json()["running"] == 1)
        server.signal(signal.SIGTERM)
        thread.join(HANG_S)
        assert server.end() == 0

    [answer] = answers
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert "shutting down" in answer.json()["error"]["message"]


def test_a_second_interrupt_ends_at_once(plan_path, streaming):
    with serving(plan_path, "--drain", "10000") as server:
        streaming(server)
        server.signal(signal.SIGINT)
        wait_until(lambda: server.get("/ready").json()["status"] == "draining")
        server.signal(signal.SIGINT)

        assert server.end() == 130


def test_an_interrupt_while_loading_leaves_no_process(plan_path):
    with serving(plan_path, wait=False) as server:
        wait_until(lambda: server.lines)
        server.signal(signal.SIGINT)

        assert server.end() == 0
    assert not any("Traceback" in line for line in server.lines)


def test_health_is_told_while_models_load_and_all_else_only_to_those_who_know_the_key(plan_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with serving(plan_path, "--port", str(port), "--api-key", "sesame", wait=False) as server:
        server.url = f"http://127.0.0.1:{port}/v1"
        wait_until(lambda: server.lines)

        assert server.get("/health").status_code == 200
        ready = server.get("/ready")
        assert (ready.status_code, ready.json()["status"]) == (503, "not ready")
        right = ("Bearer sesame", "bearer sesame", "BEARER  sesame")
        wrong = ("Bearer sesam", "Bearer sesamee", "sesame", "Basic sesame", "Bearer", "")
        for sent, status in [*((s, 503) for s in right), *((s, 401) for s in wrong)]:
            headers = {"authorization": sent}
            answer = server.post("/v1/completions", json={"prompt": "x"}, headers=headers)
            assert (answer.status_code, "error" in answer.json()) == (status, True), sent
            told = answer.headers.get("www-authenticate", "")
            assert told.startswith("Bearer ") == (status == 401)
        assert server.get("/v1/models").status_code == 401
        server.signal(signal.SIGTERM)
        assert server.end() == 0


def test_a_port_in_use_fails_before_any_model_loads(plan_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        fails_in_one_line(
            "serve", plan_path, "--port", port, says=f"port {port} on 127.0.0.1 is in use"
        )


def test_an_address_of_another_machine_is_refused(plan_path):
    fails_in_one_line(
        "serve", plan_path, "--host", "203.0.113.1", says="no address of this machine"
    )


@pytest.mark.parametrize("verb", [("serve",), ("run", "--prompt", "x")], ids=lambda verb: verb[0])
def test_a_plan_that_is_missing_broken_or_of_another_version(tmp_path, plan_path, verb):
    broken, newer = tmp_path / "broken.json", tmp_path / "newer.json"
    broken.write_text("{")
    plan = json.loads(plan_path.read_text())
    newer.write_text(json.dumps(plan | {"plan_version": 99, "min_reader": 99}))

    fails_in_one_line(*verb, tmp_path / "none.json", says="no such plan")
    fails_in_one_line(*verb, broken, says="not JSON")
    fails_in_one_line(*verb, newer, says="plan version 99")


@pytest.mark.parametrize("verb", [("serve", "--port", "0"), ("run", "--prompt", "x")], ids=str)
def test_a_model_directory_without_weights(tmp_path, bench, plan_path, verb):
    for name in ("small", "large"):
        (tmp_path / name).mkdir()
        for file in (bench / name).iterdir():
            if not (name == "large" and file.suffix == ".safetensors"):
                (tmp_path / name / file.name).write_bytes(file.read_bytes())
    plan = tmp_path / "plan.json"
    plan.write_text(plan_path.read_text())

    done = trc(*verb[:1], plan, *verb[1:])

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"trc {verb[0]}: ") and "large" in last and "weights" in last


@pytest.mark.parametrize(
    "args",
    [("--port", "65536"), ("--port", "-1"), ("--drain", "nan"), ("--max-waiting", "0")],
    ids=" ".join,
)
def test_an_option_out_of_range_is_wrong_usage(plan_path, args):
    done = trc("serve", plan_path, *args)

    assert done.returncode == 2
    assert args[0] in done.stderr.splitlines()[-1]


def test_an_empty_key_is_wrong_usage_wherever_it_is_told(plan_path, monkeypatch):
    given = trc("serve", plan_path, "--port", "0", "--api-key", "")
    monkeypatch.setenv("TOKENROUTER_API_KEY", "")
    told = trc("serve", plan_path, "--port", "0")

    for done, name in ((given, "--api-key"), (told, "$TOKENROUTER_API_KEY")):
        assert (done.returncode, done.stdout) == (2, "")
        assert name in done.stderr.splitlines()[-1] and "is empty" in done.stderr


def children(server):
    """Return the process ids of the server's children."""
    path = f"/proc/{server.process.pid}/task/{server.process.pid}/children"
    return [int(pid) for pid in Path(path).read_text().split()]


def subservers(server):
    """Return those that serve a model."""
    return [pid for pid in children(server) if b"runtime.process" in proc(pid, "cmdline")]


def proc(pid, what):
    return Path(f"/proc/{pid}/{what}").read_bytes()


def test_a_stream_survives_the_death_of_every_subserver(plan_path):
    body = {"prompt": "The sea", "max_tokens": 600, "temperature": 1, "seed": 7, "ignore_eos": True}

    def text(lines):
        chunks = [json.loads(line[6:]) for line in lines if line and line != "data: [DONE]"]
        return "".join(chunk["choices"][0]["text"] for chunk in chunks)

    with serving(plan_path, "--dtype", "float64") as server:
        undisturbed = server.post("/v1/completions", json=body).json()["choices"][0]["text"]
        with server.stream({**body, "stream": True}) as lines:
            got = [next(lines) for _ in range(5)]
            for pid in subservers(server):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda: server.get("/ready").status_code == 503)
            got += lines
        server.idle()

        assert text(got) == undisturbed
        assert server.get("/ready").status_code == 200
        server.signal(signal.SIGTERM)
        assert server.end() == 0


def test_no_process_of_a_server_is_told_its_key(plan_path, monkeypatch):
    monkeypatch.setenv("TOKENROUTER_API_KEY", "swordfish")
    with serving(plan_path) as server:
        assert server.get("/v1/models").status_code == 401
        models = subservers(server)
        assert len(models) == 2

        told = [proc(pid, "environ") + proc(pid, "cmdline") for pid in children(server)]
        directory = Path(proc(models[0], "cmdline").split(b"\0")[4].decode())
        told += [file.read_bytes() for file in directory.iterdir() if file.is_file()]

        assert b"PATH=" in told[0]
        assert not any(b"swordfish" in each for each in told)
        server.signal(signal.SIGTERM)
        assert server.end() == 0
    assert not directory.exists()


def test_no_subserver_outlives_a_server_that_is_killed(plan_path, streaming):
    with serving(plan_path) as server:
        streaming(server)
        models = subservers(server)
        assert len(models) == 2
        directory = Path(proc(models[0], "cmdline").split(b"\0")[4].decode())
        assert directory.is_dir()
        server.signal(signal.SIGKILL)

        assert server.end() == -signal.SIGKILL
        wait_until(lambda: not directory.exists())
