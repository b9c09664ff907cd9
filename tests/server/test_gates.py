"""Request 11 of those that broke other servers: every window that still lets all go on, and then the last one alone, with no clock to help."""

import asyncio
import itertools
import signal
import subprocess

import msgspec
import openai
import pytest

from tests.server.serving import TRC, serving
from tests.server.test_http import PROMPTS, TRACED, ask
from tests.server.test_metrics import samples
from tokenrouter.plan.hash import seal
from tokenrouter.plan.io import read, write
from tokenrouter.plan.verify import verify

MOST = 3  # requests at once
NEVER = 3_600_000.0  # ms that a request may wait at a gate


def with_windows(plan_path, table, path):
    plan = read(plan_path)
    whole = [row + [row[-1]] * (plan.windows.max_active - len(row)) for row in table]
    windows = msgspec.structs.replace(plan.windows, table=whole, max_wait_ms=NEVER)
    changed = seal(msgspec.structs.replace(plan, windows=windows))
    write(changed, path)
    return changed


def fullest(first):
    """Return a table whose excesses over 1 sum to N - 1 for each N, as many of them at the first model as `first` says."""
    excess = [(min(first, n - 1), n - 1 - min(first, n - 1)) for n in range(1, MOST + 1)]
    return [[1 + each[model] for each in excess] for model in range(2)]


async def answers(url):
    """Return what requests write alone, all N of them together, and as the others end and one goes on."""
    async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=0) as client:

        def one(at, most):
            return ask(client, PROMPTS[at], temperature=1, max_tokens=most, extra_body=body)

        body = {"ignore_eos": True, **TRACED}
        alone = [await one(at, 60) for at in range(MOST)]
        together = [
            await asyncio.gather(*(one(at, 60) for at in range(n + 1))) for n in range(MOST)
        ]
        last = [
            await asyncio.gather(*(one(at, 60 if at == left else 4) for at in range(MOST)))
            for left in range(MOST)
        ]
        return alone, together, [one[left] for left, one in enumerate(last)]


def written(answer):
    return [(t["id"], t["model"], t["rule"]) for t in answer.choices[0].route["trace"]]


@pytest.mark.parametrize("first", range(MOST))
def test_the_fullest_windows_stop_nobody_and_change_no_token(plan_path, first):
    with_windows(plan_path, fullest(first), path := plan_path.with_name(f"gates{first}.json"))

    with serving(path, "--dtype", "float64") as server:
        alone, together, last = asyncio.run(answers(server.url))
        server.empties()
        told = samples(server.get("/metrics").text)
        server.signal(signal.SIGTERM)
        assert server.end() == 0

    wanted = [written(answer) for answer in alone]
    assert all(len(one) == 60 and len({model for _, model, _ in one}) == 2 for one in wanted)
    for many in together:
        assert [written(answer) for answer in many] == wanted[: len(many)]
    assert [written(answer) for answer in last] == wanted
    launches = {key[1:]: value for key, value in told.items() if key[0] == "launches_total"}
    assert sum(n for (_, reason), n in launches.items() if reason == "max_wait") == 0
    assert sum(n for (_, reason), n in launches.items() if reason == "window") > 0


def test_windows_that_could_stop_for_ever_are_refused_before_anything_loads(plan_path, tmp_path):
    for n, excess in itertools.product(range(1, MOST + 2), range(MOST + 2)):
        if excess > n:
            continue
        table = [[1] * n, [1] * n]
        table[0][-1], table[1][-1] = 1 + excess, 1 + n - excess
        plan = with_windows(plan_path, table, tmp_path / "gates.json")
        assert any("could stop for ever" in problem for problem in verify(plan)), table

    command = [*TRC, "serve", str(tmp_path / "gates.json"), "--port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert "could stop for ever with 4 active requests" in done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) == 1
