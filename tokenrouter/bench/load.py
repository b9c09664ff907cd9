"""When requests are sent: a closed loop of so many clients, or an open loop at a rate.

In a closed loop each client sends its next request when it has the answer to the last. In an open loop requests come at
the times of a Poisson process, whatever became of the ones before, as from many users who know nothing of each other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from tokenrouter.bench.sample import Asker, Job, Sample

Tick = Callable[[], None]


async def closed(ask: Asker, jobs: Sequence[Job], clients: int, tick: Tick) -> list[Sample]:
    """Return the samples of all jobs, in the order of jobs, with `clients` of them under way at a time."""
    samples: dict[int, Sample] = {}
    left = iter(enumerate(jobs))

    async def client() -> None:
        for at, job in left:
            samples[at] = await ask(job)
            tick()

    async with asyncio.TaskGroup() as group:
        for _ in range(min(clients, len(jobs))):
            group.create_task(client())
    return [samples[at] for at in range(len(jobs))]


async def opened(
    ask: Asker, jobs: Sequence[Job], rate: float, seed: int, tick: Tick
) -> list[Sample]:
    """Return the samples of all jobs, sent at `rate` requests a second with exponential gaps."""
    clock = asyncio.get_running_loop().time
    start = clock()

    async def one(job: Job, at: float) -> Sample:
        await asyncio.sleep(max(0.0, start + at - clock()))
        sample = await ask(job)
        tick()
        return sample

    pairs = zip(jobs, arrivals(len(jobs), rate, seed), strict=True)
    return list(await asyncio.gather(*(one(job, at) for job, at in pairs)))


def arrivals(n: int, rate: float, seed: int) -> list[float]:
    """Return the times of a Poisson process from 0 on, the same for the same seed."""
    rng = random.Random(seed)
    times, now = [], 0.0
    for _ in range(n):
        times.append(now)
        now += rng.expovariate(rate)
    return times
