"""Load on a real server: each client gets its own text, those who leave disturb nobody, and nothing is left."""

import asyncio
import random

import httpx

from tests.factories import prompts
from tests.server.serving import HANG_S

CLIENTS = 64


def body(prompt, **fields):
    return {"prompt": prompt, "max_tokens": 12, "temperature": 0, "ignore_eos": True, **fields}


async def read(client, prompt):
    """Return the text of a stream."""
    import json

    text = ""
    async with client.stream("POST", "/completions", json=body(prompt, stream=True)) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                text += "".join(c["text"] for c in json.loads(line[6:])["choices"])
    return text


async def leave(client, prompt, rng):
    """Close a stream after some chunks."""
    left = rng.randint(0, 6)
    asked = body(prompt, stream=True, max_tokens=200)
    async with client.stream("POST", "/completions", json=asked) as answer:
        async for line in answer.aiter_lines():
            left -= line.startswith("data: ")
            if left < 0:
                return


def client_of(server):
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=server.url, timeout=HANG_S, limits=limits)


def test_64_clients_each_get_their_own_text_while_others_leave(server):
    rng = random.Random(1)
    given = prompts(CLIENTS, seed=11)
    alone = {}
    for prompt in given[:8]:
        answer = server.post("/v1/completions", json=body(prompt)).json()
        alone[tuple(prompt)] = answer["choices"][0]["text"]

    async def crowd():
        async with client_of(server) as client:
            tasks = [read(client, prompt) for prompt in given]
            leavers = [leave(client, prompt, rng) for prompt in prompts(24, seed=12)]
            texts, _ = await asyncio.gather(asyncio.gather(*tasks), asyncio.gather(*leavers))
            again = await asyncio.gather(*(read(client, prompt) for prompt in given))
            return texts, again

    texts, again = asyncio.run(crowd())

    server.empties()
    assert texts == again
    assert [texts[at] for at in range(8)] == [alone[tuple(p)] for p in given[:8]]
    assert len(set(texts)) > CLIENTS // 2  # or nobody could have got another's
