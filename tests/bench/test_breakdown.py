"""Where a server's steps spend their time, from two looks at its metrics."""

import asyncio

import pytest

from tokenrouter.bench.breakdown import Breakdown, between, parse, spent, together
from tokenrouter.bench.figures import figures
from tokenrouter.bench.http import BenchError, Http
from tokenrouter.bench.report import Level, Result, Row
from tokenrouter.bench.sample import Sample
from tokenrouter.bench.table import table

TEXT = """# TYPE tokenrouter_steps_total counter
tokenrouter_steps_total{model="small"} 4
tokenrouter_phase_seconds_total{model="small",phase="gate"} 0.001
tokenrouter_phase_seconds_total{model="small",phase="model"} 0.008
tokenrouter_phase_seconds_total{model="small",phase="wait"} 1e-05
"""


def one_of(name, steps, **seconds):
    return Breakdown(model=name, steps=steps, seconds=seconds)


def test_an_exposition_is_read_by_model_and_phase():
    assert parse(TEXT) == [one_of("small", 4, gate=0.001, model=0.008, wait=1e-05)]
    assert parse("tokenrouter_steps_total{} 4\nnonsense") == []


def test_what_was_spent_meanwhile_is_the_difference_and_a_restart_counts_from_its_start():
    before = [one_of("a", 4, gate=1.0), one_of("b", 9, gate=5.0)]
    after = [one_of("a", 10, gate=3.0), one_of("b", 2, gate=0.5), one_of("c", 1, gate=0.25)]

    assert between(before, after) == [
        one_of("a", 6, gate=2.0),
        one_of("b", 2, gate=0.5),
        one_of("c", 1, gate=0.25),
    ]


def test_repeats_are_added_up():
    assert together([[one_of("a", 1, gate=1.0)], [one_of("a", 2, gate=2.5)]]) == [
        one_of("a", 3, gate=3.5)
    ]


def test_the_share_beside_the_model_leaves_the_time_without_work_out():
    spent = one_of("a", 2, gate=1.0, model=8.0, messages=1.0, wait=90.0)

    assert (spent.busy_s, spent.share_beside_model, spent.ms("model")) == (10.0, 0.2, 4000.0)
    assert one_of("a", 0, gate=0.0, model=0.0).share_beside_model == 0


def test_the_table_tells_it_of_the_level_that_was_looked_at():
    run = figures([Sample(started=0.0, arrivals=[0.1], ended=0.1, tokens=1, prompt_tokens=1)])
    spent = one_of("small", 4, gate=0.001, model=0.008, wait=0.001)
    row = Row(side="routed", level=Level(concurrency=8), runs=[run], breakdown=[spent])
    result = Result(
        target="x", policy="p", machine="m", started="", settings={}, slo=None, rows=[row]
    )

    lines = table(result).splitlines()

    at = lines.index("where a step's time goes, routed 8 (ms a step, means)")
    assert " ".join(lines[at + 1].split()) == "model steps gate model step beside model no work"
    assert " ".join(lines[at + 2].split()) == "small 4 0.250 2.000 2.250 11.1 % 10.0 %"


def test_a_server_that_tells_no_phases_is_refused_in_one_line():
    async def asked():
        async def answer(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            await writer.drain()
            writer.close()
            await writer.wait_closed()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        http = Http(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1")
        try:
            with pytest.raises(BenchError, match="tells no phases"):
                await spent(http)
        finally:
            await http.close()
            server.close()
            await server.wait_closed()

    asyncio.run(asked())
