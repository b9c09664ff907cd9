"""When requests are sent, on asks that only wait."""

import asyncio
import itertools
import statistics

import pytest

from tokenrouter.bench import load
from tokenrouter.bench.sample import Job, Sample

JOBS = [Job(prompt=[at], max_tokens=1) for at in range(20)]


class Counting:
    """An ask that notes how many are under way."""

    def __init__(self):
        self.now = self.most = 0

    async def __call__(self, job):
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        return Sample(started=0.0, ids=job.prompt)


@pytest.mark.parametrize("clients", [1, 3, 50])
def test_a_closed_loop_keeps_as_many_under_way_as_there_are_clients(clients):
    ask, ticks = Counting(), []

    samples = asyncio.run(load.closed(ask, JOBS, clients, lambda: ticks.append(1)))

    assert ask.most == min(clients, len(JOBS))
    assert [sample.ids for sample in samples] == [job.prompt for job in JOBS]
    assert len(ticks) == len(JOBS)


def test_an_open_loop_sends_without_waiting_for_answers():
    gate = asyncio.Event()
    under_way = 0

    async def ask(job):
        nonlocal under_way
        under_way += 1
        if under_way == len(JOBS):
            gate.set()  # nobody is answered before all are sent
        await gate.wait()
        return Sample(started=0.0, ids=job.prompt)

    samples = asyncio.run(load.opened(ask, JOBS, 1e4, 0, lambda: None))

    assert [sample.ids for sample in samples] == [job.prompt for job in JOBS]


def test_an_open_loop_sends_nothing_before_its_time():
    sent, ticks = [], []

    async def ask(job):
        sent.append((asyncio.get_running_loop().time(), job.prompt))
        return Sample(started=0.0)

    async def run():
        begun = asyncio.get_running_loop().time()
        await load.opened(ask, JOBS, 400.0, 7, lambda: ticks.append(1))
        return begun

    begun = asyncio.run(run())

    planned = load.arrivals(len(JOBS), 400.0, 7)
    assert [prompt for _, prompt in sent] == [job.prompt for job in JOBS]
    late = [at - begun - due for (at, _), due in zip(sent, planned, strict=True)]
    assert min(late) > -1e-3  # the loop's clock may be a little coarse
    assert planned[0] == 0 < planned[1] and len(ticks) == len(JOBS)


def test_arrivals_are_poisson_and_seeded():
    times = load.arrivals(4000, 20.0, 1)
    gaps = [b - a for a, b in itertools.pairwise(times)]

    assert times == load.arrivals(4000, 20.0, 1) != load.arrivals(4000, 20.0, 2)
    assert statistics.fmean(gaps) == pytest.approx(0.05, rel=0.05)
    assert statistics.stdev(gaps) == pytest.approx(0.05, rel=0.05)
