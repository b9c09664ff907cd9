"""Penalties, grammars and prompts that are scored survive `kill -9`: the client is told what it would have been told anyway."""

import asyncio
import os
import signal
from itertools import pairwise

import pytest

from tests.e2e.compare import difference, traces
from tests.e2e.serving import Conditions, under
from tests.e2e.test_exact import ROOT
from tests.e2e.test_processes import settled
from tests.e2e.test_shaped import wanted
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.engine import Completion
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.reference import Reference

WANTED = wanted()
LONG = list(range(68, 68 + 120))


async def served(client, kill):
    """What all requests write, a subserver of each kind killed on the way; and a prompt's worth before and during it."""
    scoring = Sampling(seed=1, max_tokens=2, prompt_logprobs=2)
    alone = [token async for token in client.submit(LONG, scoring)]
    tickets = [client.submit(r.prompt, r.sampling) for r in WANTED]
    scored = client.submit(LONG, scoring)
    completions = [Completion(r.prompt) for r in WANTED]
    deaths = list(kill)
    os.kill(client.status().models[deaths.pop()].pid, signal.SIGKILL)  # before the prompt is read

    async def read(at):
        async for token in tickets[at]:
            completions[at].tokens.append(token)
            if deaths and sum(len(c.tokens) for c in completions) >= 100:
                os.kill(client.status().models[deaths.pop()].pid, signal.SIGKILL)

    again, *_ = await asyncio.gather(_all(scored), *(read(at) for at in range(len(WANTED))))
    return alone, again, completions


async def _all(ticket):
    return [token async for token in ticket]


async def whole(plan, kill):
    client = Client(plan, dtype="float64", threads=1)
    try:
        await client.start()
        told = await served(client, kill)
        await settled(client)
        return told
    finally:
        await client.close(0)


def test_shaped_and_scored_requests_go_on_after_a_subserver_is_killed(compiled, float64, bench):
    plan = under(compiled(ROOT / "examples" / "demo.route"), Conditions(capacity=256))
    expected = traces(Reference(plan, bench.root, models=float64(plan.models)), WANTED)

    alone, again, completions = asyncio.run(whole(plan, [1, 0]))

    for at, (trace, completion) in enumerate(zip(expected, completions, strict=True)):
        assert not (found := difference(trace, completion)), f"request {at}: {found}"
    assert [t.token for t in again] == [t.token for t in alone]
    assert len(alone[0].prompt) == len(again[0].prompt) == len(LONG) - 1
    assert all(not token.prompt for token in alone[1:] + again[1:])
    reader = float64(plan.models)[0]
    for at, ((_, token), one, other) in enumerate(
        zip(pairwise(LONG), alone[0].prompt, again[0].prompt, strict=True)
    ):
        row = reader(LONG[: at + 1])[: plan.tokenizer.size]
        want = row[token] - row.max()
        assert one[0] == pytest.approx(other[0], abs=1e-9)
        assert one[1][0][1] - one[0] == pytest.approx(-want, abs=1e-9)
