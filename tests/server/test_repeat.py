"""A pool smaller than the context, and the same request again and again: cold and warm, alone and in a crowd."""

import asyncio
import signal
import subprocess

import openai
import pytest

from tests.factories import save_model
from tests.server.conftest import POLICY
from tests.server.serving import TRC, serving
from tests.server.test_bad_requests import refused
from tests.server.test_http import HARD, PROMPTS, TRACED, ask
from tokenrouter.plan.io import read
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Sampling


def compiled(root, context, *options):
    """Compile the policy over two models of this context, and return the plan's path."""
    for seed, name in enumerate(("small", "large")):
        save_model(root / name, seed=seed, context=context, tied=seed == 0)
    (root / "ping_pong.route").write_text(POLICY)
    path = root / "plan.json"
    command = [*TRC, "compile", str(root / "ping_pong.route"), "-o", str(path), *options]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(scope="module")
def tight(tmp_path_factory):
    """A server in float32, deterministic, whose pools hold a few hundred tokens of a context of 4,096."""
    path = compiled(tmp_path_factory.mktemp("tight"), 4096, "--kv-budget", "512K")
    with serving(path, "--deterministic") as running:
        yield running
        running.idle()
        running.signal(signal.SIGTERM)
        assert running.end() == 0


def test_a_prompt_one_token_longer_than_the_pool_is_refused_and_a_small_one_answered(tight):
    longest = tight.post("/tokenize", json={"prompt": "x"}).json()["max_model_len"]
    assert longest < 2000

    def sent(n, most=1):
        body = {"prompt": [70] * n, "max_tokens": most, "ignore_eos": True}
        return tight.post("/v1/completions", json=body)

    assert refused(sent(longest))["code"] == "context_length_exceeded"
    assert refused(sent(longest - 1, 2))["code"] == "context_length_exceeded"
    assert refused(sent(100_000))["code"] == "context_length_exceeded"
    assert sent(longest, 0).json()["usage"]["total_tokens"] == longest
    assert refused(sent(longest + 1, 0))["code"] == "context_length_exceeded"
    assert sent(1).json()["usage"]["completion_tokens"] == 1
    assert sent(longest - 1).json()["usage"]["total_tokens"] == longest
    assert sent(1, longest - 1).json()["usage"]["total_tokens"] == longest


def scored(server, n):
    body = {"prompt": [70, 71] * (n // 2), "max_tokens": 0, "echo": True, "logprobs": 1}
    return server.post("/v1/completions", json=body)


def test_a_prompt_as_large_as_the_pool_is_scored_and_a_larger_one_is_told_so(tight):
    most = tight.post("/tokenize", json={"prompt": "x"}).json()["max_model_len"] - 1

    told = scored(tight, most).json()["choices"][0]["logprobs"]["token_logprobs"]
    error = refused(scored(tight, most + 2))

    assert len(told) == most and None not in told[1:]
    assert error["code"] == "context_length_exceeded"


def test_a_prompt_as_long_as_the_context_is_scored_over_http_and_in_process(tmp_path):
    path = compiled(tmp_path, 96)
    with serving(path, "--deterministic") as server:
        told = scored(server, 96).json()["choices"][0]
        nothing = server.post("/v1/completions", json={"prompt": [70] * 96, "max_tokens": 0})
        too_long = [scored(server, 98)]
        for most in (1, None):
            body = {"prompt": [70] * 96, "max_tokens": most}
            too_long.append(server.post("/v1/completions", json=body))
        server.empties()
        server.signal(signal.SIGTERM)
        assert server.end() == 0
    engine = Engine(read(path), tmp_path, deterministic=True)
    asked = Sampling(max_tokens=0, prompt_logprobs=0)
    [alone] = engine.generate([[70, 71] * 48], asked)

    assert (nothing.json()["usage"]["total_tokens"], told["finish_reason"]) == (96, "length")
    assert {refused(each)["code"] for each in too_long} == {"context_length_exceeded"}
    first, *rest = told["logprobs"]["token_logprobs"]
    assert first is None
    assert rest == pytest.approx([own for own, _ in alone.tokens[0].prompt], abs=1e-4)
    engine.check_integrity()


@pytest.mark.parametrize(
    ("prompt", "logprobs"),
    [
        pytest.param(HARD, None, id="short"),
        pytest.param(PROMPTS[1] * 6, 2, id="long, logprobs"),
        pytest.param(HARD, 2, id="short, logprobs", marks=pytest.mark.slow),
        pytest.param(PROMPTS[1] * 6, None, id="long", marks=pytest.mark.slow),
    ],
)
def test_a_greedy_request_is_the_same_to_the_bit_cold_warm_alone_and_in_a_crowd(
    tight, prompt, logprobs
):
    given = {"temperature": 0, "max_tokens": 60, "logprobs": logprobs}
    given["extra_body"] = {"ignore_eos": True, **TRACED}

    async def talk():
        async with openai.AsyncOpenAI(base_url=tight.url, api_key="x", max_retries=0) as client:
            alone = [await ask(client, prompt, **given) for _ in range(5)]
            others = [
                ask(client, prompt[at:] + PROMPTS[at % 4] * 3, temperature=1, max_tokens=90)
                for at in range(12)
            ]
            crowd = [ask(client, prompt, **given) for _ in range(5)]
            mixed = [one for pair in zip(others, crowd, strict=False) for one in pair]
            together = await asyncio.gather(*mixed, *others[5:])
            return alone, together[1:10:2]

    alone, crowd = asyncio.run(talk())

    told = [one.choices[0].model_dump() for one in (*alone, *crowd)]
    assert len(told) == 10 and all(one == told[0] for one in told)
    assert len(told[0]["route"]["trace"]) == 60


def test_a_seeded_request_beside_unseeded_ones_is_the_same_four_times(tight):
    body = {"prompt": HARD, "max_tokens": 40, "temperature": 1}

    async def talk():
        async with openai.AsyncOpenAI(base_url=tight.url, api_key="x", max_retries=0) as client:
            seeded, free = [], []
            for _ in range(4):
                one, other = await asyncio.gather(
                    client.completions.create(model="ping_pong", seed=11, **body),
                    client.completions.create(model="ping_pong", **body),
                )
                seeded.append(one.choices[0].text)
                free.append(other.choices[0].text)
            return seeded, free

    seeded, free = asyncio.run(talk())

    assert len(set(seeded)) == 1 and len(set(free)) == 4
