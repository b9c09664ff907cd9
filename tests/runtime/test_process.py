"""Real processes, real sockets: what is served equals what the engine writes, whatever dies, leaves or lies."""

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import zmq

from tests.factories import prompts
from tests.runtime import tiny
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.errors import RequestRefused, StartFailed
from tokenrouter.runtime.launch import Processes
from tokenrouter.runtime.messages import (
    Admit,
    Commits,
    Drain,
    Failed,
    Refused,
    RouteState,
    Sampling,
    Token,
    encode,
)
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.transport import FRONT_END, MOST_BYTES, endpoint, framed

LONG = Sampling(max_tokens=60, ignore_eos=True)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    paths = tiny.save(tmp_path_factory.mktemp("tiny"))
    return tiny.real(tiny.PLANS["ping_pong"](prefill=["eager", "lazy"]), paths)


@pytest.fixture(scope="module")
def alone(plan):
    """What the engine writes for a prompt and a sampling."""
    engine = Engine(plan)

    def write(prompt, sampling):
        (completion,) = engine.generate([prompt], sampling)
        return list(zip(completion.ids, completion.models, strict=True))

    return write


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def client(plan, loop):
    """A client that is up, for all tests that leave it as they found it."""
    client = Client(plan)
    loop.run(client.start())
    yield client
    loop.run(client.close(5))


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def read(ticket):
    return [(token.token, token.model) async for token in ticket]


async def settled(client):
    """Every subserver's report, once it holds nothing."""
    end = time.monotonic() + 20
    while True:
        reports = await client.inspect()
        assert not [r.problem for r in reports if r.problem]
        if all(r.running + r.pending == 0 for r in reports):
            assert all(r.free + r.kept == r.pages for r in reports)
            return
        assert time.monotonic() < end, reports
        await asyncio.sleep(0.02)


def test_processes_write_what_the_engine_writes(client, loop, alone):
    seeded = Sampling(max_tokens=20, temperature=0.8, top_p=0.9, seed=3)
    cases = [(p, LONG if at % 2 else seeded) for at, p in enumerate(prompts(8))]

    async def run():
        tickets = [client.submit(p, sampling) for p, sampling in cases]
        written = await asyncio.gather(*map(read, tickets))
        await settled(client)
        return written

    written = loop.run(run())

    assert written == [alone(p, sampling) for p, sampling in cases]
    assert {model for _, model in written[1]} == {0, 1}


@pytest.mark.parametrize("victim", [0, 1])
def test_a_stream_survives_the_death_of_a_subserver_unchanged(client, loop, alone, victim):
    cases = prompts(4)
    endless = Sampling(max_tokens=150, ignore_eos=True)
    epoch = client.status().models[victim].epoch

    async def run():
        tickets = [client.submit(p, endless) for p in cases]
        first = [await anext(aiter(tickets[0])) for _ in range(10)]
        os.kill(client.status().models[victim].pid, signal.SIGKILL)
        await asyncio.sleep(0.2)
        assert not client.ready
        assert client.status().running > 0
        written = await asyncio.gather(*map(read, tickets))
        await settled(client)
        return [[(t.token, t.model) for t in first] + written[0], *written[1:]]

    written = loop.run(run())

    assert written == [alone(p, endless) for p in cases]
    assert client.ready
    assert client.status().models[victim].epoch == epoch + 1


def test_requests_that_are_given_up_at_any_moment_free_their_pages_everywhere(client, loop, alone):
    async def run():
        kept = client.submit(prompts(1)[0], LONG)
        for at, prompt in enumerate(prompts(24, seed=1)):
            ticket = client.submit(prompt, LONG)
            if at % 3:
                await anext(aiter(ticket))
            await asyncio.sleep(0.002 * (at % 5))
            client.abort(ticket.request)
        written = await read(kept)
        await settled(client)
        return written

    assert loop.run(run()) == alone(prompts(1)[0], LONG)


def bad_admission():
    """An admission as a subserver would take it, but that it knows of one epoch only."""
    state = RouteState(owner=0, counts=[0, 0])
    return Admit(request=1, prompt=[5], sampling=Sampling(), params=[], state=state, epochs=[1])


def test_what_is_no_message_is_thrown_away_with_a_line(client, loop, alone, tmp_path, caplog):
    mark = tmp_path / "unpickled"
    pickled = b"cos\nmkdir\n(S'" + str(mark).encode() + b"'\ntR."
    key = client._processes.key
    state = RouteState(owner=7, position=1, counts=[1, 0])
    token = Token(request=1, token=1, model=0, rule=0, logprob=0.0, state=state)
    junk = [
        pickled,
        b"",
        b"\xc1",
        encode(Drain()),  # by somebody who does not know the key
        encode(Failed(model=0, epoch=1, reason="x")),
        bytes(MOST_BYTES + 1),
        key,
        key + pickled,
        framed(key, [pickled]),
        framed(key, [b""]),
        key + random.Random(1).randbytes(500),
        framed(key, [msgspec.msgpack.encode({"type": "Admit"})]),
        framed(key, [encode(bad_admission())]),
        framed(key, [encode(Commits(model=5, epoch=1, tokens=[]))]),
        framed(key, [encode(Commits(model=0, epoch=1, tokens=[token]))]),
        framed(key, [encode(Refused(request=1, model=9, reason="x"))]),
    ]

    async def run():
        context = zmq.Context()
        for address in (FRONT_END, 0, 1):
            socket = context.socket(zmq.PUSH)
            socket.connect(endpoint(client._processes.directory, address))
            for data in junk:
                await asyncio.to_thread(socket.send, data)
            await asyncio.to_thread(socket.close, 30_000)
        await asyncio.to_thread(context.term)
        written = await read(client.submit(prompts(1)[0], LONG))
        await settled(client)
        return written, [client._processes.log(model).read_text() for model in range(2)]

    pids = [model.pid for model in client.status().models]
    with caplog.at_level(logging.WARNING, logger="tokenrouter"):
        written, logs = loop.run(run())

    assert written == alone(prompts(1)[0], LONG)
    assert not mark.exists()
    assert [text.count("no message") for text in [*logs, caplog.text]] == [len(junk)] * 3
    assert [model.pid for model in client.status().models] == pids


PARENT = """
import asyncio, sys, msgspec
from pathlib import Path
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.client import Client

async def main():
    client = Client(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Plan))
    await client.start()
    print(*[m.pid for m in client.status().models], client._processes.directory, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_no_subserver_outlives_its_front_end(plan, tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(msgspec.json.encode(plan))
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(path)], stdout=subprocess.PIPE
    ) as parent:
        *pids, directory = parent.stdout.readline().split()
        parent.kill()
    end = time.monotonic() + 5
    while any(running(int(pid)) for pid in pids) and time.monotonic() < end:
        time.sleep(0.02)

    assert not [pid for pid in pids if running(int(pid))]
    while Path(directory.decode()).exists():
        assert time.monotonic() < end + 55, "its directory stays"
        time.sleep(0.02)


def running(pid):
    """Whether a process that is not our child still runs; an orphan may stay a zombie for a while."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_file_in_the_users_folder_is_no_module_of_ours(plan, tmp_path, monkeypatch):
    (tmp_path / "msgspec.py").write_text(
        "raise SystemExit('a stranger was run')\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)

    async def run():
        client = Client(plan)
        await client.start()
        await client.close(0)

    asyncio.run(run())


def test_a_model_that_is_not_there_is_one_line_and_no_process(plan, tmp_path):
    models = [plan.models[0], msgspec.structs.replace(plan.models[1], use=str(tmp_path / "gone"))]
    client = Client(msgspec.structs.replace(plan, models=models))

    with pytest.raises(StartFailed) as caught:
        asyncio.run(client.start())

    assert "m1" in str(caught.value) and "gone" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not any(model.pid for model in client.status().models)


def test_closing_while_it_starts_leaves_no_process(plan):
    async def run():
        client = Client(plan)
        starting = asyncio.ensure_future(client.start())
        while not all(model.pid for model in client.status().models):
            await asyncio.sleep(0.01)
        pids = [model.pid for model in client.status().models]
        await client.close(0)
        with pytest.raises(StartFailed):
            await starting
        return pids

    assert not [pid for pid in asyncio.run(run()) if alive(pid)]


def test_closing_ends_what_runs_with_an_error_and_leaves_nothing_behind(plan):
    async def run():
        client = Client(plan)
        await client.start()
        pids = [model.pid for model in client.status().models]
        directory = client._processes.directory
        ticket = client.submit([5, 6, 7], Sampling(max_tokens=200, ignore_eos=True))
        await anext(aiter(ticket))
        await client.close(0)
        with pytest.raises(RequestRefused, match="time to finish is over") as caught:
            await read(ticket)
        assert caught.value.kind == "closing"
        with pytest.raises(RequestRefused):
            client.submit([5], LONG)
        return pids, directory

    pids, directory = asyncio.run(run())

    assert not [pid for pid in pids if alive(pid)]
    assert not directory.exists()


def test_a_subserver_that_cannot_be_started_for_now_is_started_later(plan, monkeypatch, caplog):
    processes = Processes(plan, Settings())
    real = subprocess.Popen

    def full(*args, **kwargs):
        raise OSError(24, "Too many open files")

    try:
        monkeypatch.setattr(subprocess, "Popen", full)
        processes.start(0)
        assert processes.ended() == {}
        assert processes.pid(0) is None
        assert processes.epochs[0] == 1
        monkeypatch.setattr(subprocess, "Popen", real)
        assert processes.ended() == {}
        assert running(processes.pid(0))
        processes.kill(0)
    finally:
        processes.close(10)

    told = [r.message for r in caplog.records if "cannot be started" in r.message]
    assert len(told) == 1, told
    assert "Too many open files" in told[0]
