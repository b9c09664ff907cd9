"""Real processes and sockets: what a client is served is what the reference writes, also when a subserver is killed."""

import asyncio
import os
import signal

import pytest

from tests.e2e.compare import difference, requests, traces
from tests.e2e.serving import Conditions, under
from tests.e2e.test_exact import ROOT
from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.engine import Completion
from tokenrouter.runtime.reference import Reference

WANTED = requests(16, seed=6)


async def served(client: Client, kill: list[int], after: list[int]) -> list[Completion]:
    """What all requests write at once; the subservers of `kill` die once `after` tokens have been written."""
    tickets = [client.submit(r.prompt, r.sampling, traced=True) for r in WANTED]
    completions = [Completion(r.prompt) for r in WANTED]
    deaths = list(zip(after, kill, strict=True))

    async def read(at: int) -> None:
        async for token in tickets[at]:
            completions[at].tokens.append(token)
            if deaths and sum(len(c.tokens) for c in completions) >= deaths[0][0]:
                os.kill(client.status().models[deaths.pop(0)[1]].pid, signal.SIGKILL)

    await asyncio.gather(*(read(at) for at in range(len(WANTED))))
    return completions


async def settled(client: Client) -> None:
    """Every page is free or kept by the prefix cache alone, and nothing is pending."""
    for report in await client.inspect():
        assert report.problem == ""
        assert (report.running, report.pending) == (0, 0), report
        assert report.free + report.kept == report.pages, report


async def whole(plan: Plan, kill: list[int], after: list[int]) -> list[Completion]:
    """Start, serve, look whether all is in order, and end."""
    client = Client(plan, dtype="float64", threads=1)
    try:
        await client.start()
        completions = await served(client, kill, after)
        await settled(client)
        epochs = [model.epoch for model in client.status().models]
        assert epochs == [1 + kill.count(model) for model in range(len(epochs))]
    finally:
        await client.close(0)
    return completions


@pytest.mark.parametrize(
    ("stem", "conditions", "kill"),
    [
        ("demo", Conditions(windows=3, capacity=96), [1]),
        pytest.param("mixture", Conditions(capacity=96, windows=1), [0, 2], marks=pytest.mark.slow),
        pytest.param("first_n", Conditions(prefill="lazy"), [], marks=pytest.mark.slow),
    ],
    ids=["one killed", "two of three killed", "none killed"],
)
def test_processes_serve_what_the_reference_writes(compiled, float64, stem, conditions, kill):
    plan = under(compiled(ROOT / "examples" / f"{stem}.route"), conditions)
    expected = traces(Reference(plan, models=float64(plan.models)), WANTED)
    total = sum(len(trace.steps) for trace in expected)
    after = [total * (at + 1) // (len(kill) + 2) for at in range(len(kill))]

    completions = asyncio.run(whole(plan, kill, after))

    for at, (trace, completion) in enumerate(zip(expected, completions, strict=True)):
        assert not (found := difference(trace, completion)), f"request {at}: {found}"
