"""Few cores and several models: how many threads each has, and that one at a time is in its model where they share them."""

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from tests.factories import prompts
from tests.runtime import tiny
from tokenrouter.plan.structs import System
from tokenrouter.runtime import turns as turns_
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.gate import Gate
from tokenrouter.runtime.gatekeeper import Gatekeeper
from tokenrouter.runtime.messages import Active, Flush, Gated, Handoff, RouteState, Sampling
from tokenrouter.runtime.meter import Meter
from tokenrouter.runtime.sequence import Sequence
from tokenrouter.runtime.settings import Boot, Settings
from tokenrouter.runtime.stepping import InLine
from tokenrouter.runtime.timing import Listener
from tokenrouter.runtime.transport import FRONT_END, Sockets, endpoint
from tokenrouter.runtime.turns import FILE, Turns, in_turn, share_of_cores, shared


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    return tiny.real(tiny.PLANS["ping_pong"](), tiny.save(tmp_path_factory.mktemp("tiny")))


@pytest.mark.parametrize(
    ("cores", "models", "threads"),
    [(2, 1, 2), (2, 2, 2), (2, 3, 2), (3, 2, 3), (4, 2, 2), (8, 3, 2), (8, 5, 8), (1, 2, 1)],
)
def test_a_model_has_its_share_of_the_cores_or_all_of_them_where_that_is_one(
    monkeypatch, cores, models, threads
):
    monkeypatch.setattr(turns_, "cores", lambda: cores)

    assert share_of_cores(models) == threads


@pytest.mark.parametrize(
    ("cores", "models", "threads", "taken"),
    [
        (2, 2, 2, True),
        (2, 2, 1, False),
        (2, 1, 2, False),
        (2, 3, 1, False),
        (2, 3, 2, True),
        (4, 2, 2, False),
        (4, 2, 3, True),
        (1, 2, 1, False),
        (2, 2, None, False),
    ],
)
def test_turns_are_taken_where_the_threads_of_all_are_more_than_the_cores(
    monkeypatch, cores, models, threads, taken
):
    monkeypatch.setattr(turns_, "cores", lambda: cores)

    assert shared(threads, models) == taken


def test_models_on_gpus_or_of_several_ranks_do_not_step_in_turn(plan, monkeypatch):
    monkeypatch.setattr(turns_, "cores", lambda: 2)
    first, second = plan.models
    split = msgspec.structs.replace(
        plan, models=[first, msgspec.structs.replace(second, tensor_parallel=2)]
    )
    alone = msgspec.structs.replace(plan, models=[first])

    assert in_turn(plan, Settings(threads=2))
    assert not in_turn(plan, Settings(threads=1))
    assert not in_turn(plan, Settings())
    assert not in_turn(plan, Settings(threads=2, device="cuda"))
    assert not in_turn(split, Settings(threads=2))
    assert not in_turn(alone, Settings(threads=2))


def waits(pid):
    """Return whether a process waits for a lock."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("->" in line and f" {pid} " in line for line in lines)


def until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


HOLDER = """
import sys, time
from pathlib import Path
from tokenrouter.runtime.turns import Turns
with Turns(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""
TAKER = """
import sys
from pathlib import Path
from tokenrouter.runtime.turns import Turns
turn = Turns(Path(sys.argv[1]))
for _ in range(2):
    with turn:
        print("held", flush=True)
"""


def started(code, path):
    return subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE)


def test_another_waits_until_the_turn_is_over_also_where_its_holder_is_killed(tmp_path):
    holder = started(HOLDER, tmp_path / FILE)
    assert holder.stdout.readline() == b"held\n"
    taker = started(TAKER, tmp_path / FILE)
    until(lambda: waits(taker.pid))

    holder.send_signal(signal.SIGKILL)

    assert taker.communicate(timeout=60)[0] == b"held\nheld\n"
    holder.communicate()


def test_who_waits_is_next_before_the_one_that_has_just_had_its_turn(tmp_path):
    turn = Turns(tmp_path / FILE)
    for _ in range(5):
        with turn:
            taker = started(TAKER, tmp_path / FILE)
            until(lambda pid=taker.pid: waits(pid))
        with turn:
            assert select.select([taker.stdout], [], [], 0)[0], "it was overtaken"
        taker.communicate()


def test_subservers_step_in_turn_where_they_share_the_cores(plan):
    asked = prompts(3, seed=3)
    sampling = Sampling(max_tokens=12, ignore_eos=True)
    expected = [done.ids for done in Engine(plan).generate(asked, sampling)]

    async def serve():
        client = Client(plan, threads=len(os.sched_getaffinity(0)) + 1)
        await client.start()
        turn = Turns(client._processes.directory / FILE)
        pids = [model.pid for model in client.status().models]
        with turn:
            tickets = [client.submit(asked[0], sampling)]
            await asyncio.to_thread(until, lambda: any(map(waits, pids)))
            tickets += [client.submit(prompt, sampling) for prompt in asked[1:]]
            assert all(ticket._queue.empty() for ticket in tickets)
        tokens = [[token.token async for token in ticket] for ticket in tickets]
        await client.close(5)
        return tokens

    assert asyncio.run(serve()) == expected


@pytest.mark.parametrize("turns", [True, False])
@pytest.mark.parametrize(("source", "level"), [("profile", "WARNING"), ("analytic", "INFO")])
def test_a_server_says_when_its_fixed_windows_were_solved_for_models_side_by_side(
    plan, turns, source, level, caplog
):
    caplog.set_level("INFO", "tokenrouter")
    system = System(
        step_ms=[[1.0] * plan.windows.max_active] * 2,
        p=[[0.0, 1.0], [1.0, 0.0]],
        c=[[1.0, 1.0], [1.0, 1.0]],
        model_of=[0, 1],
        entry=[1.0, 0.0],
        delta_ms=0.1,
    )
    windows = msgspec.structs.replace(plan.windows, system=system, source=source)
    solved = msgspec.structs.replace(plan, windows=windows)

    async def serve():
        client = Client(solved, threads=len(os.sched_getaffinity(0)) + 1 if turns else 1)
        await client.start()
        await client.close(5)

    asyncio.run(serve())

    said = [
        record.levelname
        for record in caplog.records
        if "here they step in turn on shared cores" in record.getMessage()
    ]
    assert said == [level] * turns


def test_looking_for_a_batch_before_the_turn_leaves_a_flush_for_the_batch():
    gate = Gatekeeper(Gate([4] * 4, 50.0), Meter(0, 1), lambda to, message: None)
    waiting = [
        Sequence(1, 1, [1], Sampling(), [], {}, RouteState(owner=0, counts=[0]), [1], [1], False)
    ]
    gate.receive(Active(n=4))
    gate.receive(Flush())

    looks = gate.peek(waiting, 0.0), gate.due(waiting, 0.0), gate.due(waiting, 0.0)

    assert looks == ("nothing_else", "nothing_else", None)


def test_models_whose_steps_are_timed_beside_each_other_take_turns_too(plan, tmp_path):
    settings = Settings(threads=len(os.sched_getaffinity(0)) + 1)
    boot = tmp_path / "boot.json"
    boot.write_bytes(msgspec.json.encode(Boot(plan=plan, settings=settings, parent=os.getpid())))
    command = [sys.executable, "-m", "tokenrouter.runtime.stepping", str(boot), "0"]
    stepping = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert b"float64" in stepping.stdout.readline()

    with Turns(tmp_path / FILE):
        stepping.stdin.write(b'{"do":"time","batch":1,"context":4}\n')
        stepping.stdin.flush()
        until(lambda: waits(stepping.pid))

    assert b'"ms":[' in stepping.stdout.readline()
    stepping.stdin.write(b'{"do":"stop"}\n')
    stepping.communicate()


class Watched(Sockets):
    """Sockets that note what came, and how often somebody waited when all was here."""

    def __init__(self, sockets, expected):
        self.__dict__ = sockets.__dict__
        self.expected, self.came, self.in_vain = expected, [], 0

    def receive(self):
        found = super().receive()
        self.came += found
        return found

    def wait(self, timeout_ms):
        self.in_vain += len(self.came) == self.expected
        super().wait(timeout_ms)


def test_who_is_timed_takes_in_its_turn_what_the_step_before_had_to_say(tmp_path):
    first, second = (InLine(tmp_path, 2, model, b"key") for model in (0, 1))
    state = RouteState(owner=1, counts=[0])
    for n in (1, 3):
        second.sockets = Watched(second.sockets, n)
        with first:
            for at in range(n):
                handoff = Handoff(
                    request=at, epoch=1, start=0, tokens=[1], seen=[1, 0], state=state
                )
                first.send(1, handoff)
        with second:
            assert (len(second.sockets.came), second.sockets.in_vain) == (n, 0)
    first.sockets.close()
    second.sockets.close()


def test_what_models_say_while_they_are_timed_is_read_and_checked(plan, tmp_path, caplog):
    listener = Listener(plan, tmp_path, b"key")
    sockets = Sockets(0, {at: endpoint(tmp_path, at) for at in (FRONT_END, 0)}, b"key")
    sockets.send(FRONT_END, Gated(model=0, epoch=1, waiting=3))
    sockets.send(FRONT_END, Gated(model=7, epoch=1, waiting=3))
    try:
        until(lambda: caplog.records)
    finally:
        listener.close()

    [record] = caplog.records
    assert "Gated" in record.getMessage()
    sockets.close()
