"""Ranks that share a model: the same logits and tokens as one rank alone, and an end that is told in one line."""

import asyncio
import json
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.factories import prompts, save_model
from tests.models.test_dummy import shape
from tests.runtime import tiny
from tokenrouter.models import ModelError, fingerprint, locate
from tokenrouter.runtime import ranks
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.load import load_runner
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.model import Extension
from tokenrouter.runtime.ranks import RankLost
from tokenrouter.runtime.settings import Settings

LONG, SHORT, OTHER = prompts(40, seed=3)[7], prompts(40, seed=4)[2][:3], prompts(40, seed=5)[9]


def shared(plan, ranks=2, models=(0, 1, 2)):
    """The plan with models that several ranks share."""
    made = [
        msgspec.structs.replace(model, tensor_parallel=ranks if at in models else 1)
        for at, model in enumerate(plan.models)
    ]
    return msgspec.structs.replace(plan, models=made)


def with_output_biases(path):
    """Give a model the biases behind the sums that some of its family have."""
    weights = load_file(path / "model.safetensors")
    torch.manual_seed(1)
    for layer in range(2):
        for part in ("self_attn.o_proj", "mlp.down_proj"):
            weights[f"model.layers.{layer}.{part}.bias"] = torch.randn(32)
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def plans(root):
    """By name, a plan whose first model is the one that is shared."""
    paths = {
        "llama": save_model(root / "llama"),
        "with biases": with_output_biases(save_model(root / "biases", seed=4)),
        "qwen2, padded": save_model(root / "qwen2", family="qwen2", seed=1, padding=13),
        "qwen3, tied": save_model(root / "qwen3", family="qwen3", seed=2, tied=True),
    }
    other = paths["llama"]
    return {
        name: tiny.real(tiny.PLANS["ping_pong"](), [path, other]) for name, path in paths.items()
    }


def steps(runner):
    """What a runner gives for chunks, decodes and a mixed batch: logits and hidden states, one after the other."""
    page = runner.page_size
    pages = [list(range(at * 8, at * 8 + 8)) for at in range(3)]
    batches = [
        [Extension(LONG[:5], 0, pages[0])],
        [
            Extension(LONG[5:], 5, pages[0]),
            Extension(SHORT, 0, pages[1], samples=3),
            Extension(OTHER, 0, pages[2]),
        ],
        [Extension([7], len(SHORT), pages[1]), Extension([9], len(OTHER), pages[2])],
    ]
    assert all(e.start + len(e.tokens) <= 8 * page for batch in batches for e in batch)
    found = []
    for batch in batches:
        lead = runner.read if runner.ranks is None else runner.ranks.lead
        args = (batch,) if runner.ranks is None else (runner.read, batch)
        output = lead(*args, hidden=True)
        found += [output.logits, output.hidden]
    return found


@pytest.mark.parametrize("name", ["llama", "with biases", "qwen2, padded", "qwen3, tied"])
def test_two_ranks_give_the_logits_of_one(plans, name):
    whole = steps(load_runner(plans[name], 0, Settings()))
    runner = load_runner(shared(plans[name]), 0, Settings())
    with_two = steps(runner)
    runner.ranks.close()

    for one, two in zip(whole, with_two, strict=True):
        torch.testing.assert_close(two, one, rtol=0, atol=1e-12)
    assert runner.cache.keys[0].shape[1] == 1  # each rank keeps one of two key heads


def three_ways(root, dtype="float64"):
    """A plan over a model of three key heads, which three ranks can share."""
    path = shape(
        root / "three",
        num_attention_heads=6,
        num_key_value_heads=3,
        intermediate_size=66,
        vocab_size=331,
    )
    raw = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(raw | {"eos_token_id": 256}))
    plan = tiny.PLANS["ping_pong"]()
    use = f"dummy:{path}"
    models = [
        msgspec.structs.replace(
            model,
            use=use,
            fingerprint=fingerprint(locate(use, Path())),
            dtype=dtype,
            layers=2,
            hidden_size=32,
            kv_bytes_per_token=tiny.kv_bytes(raw, dtype),
        )
        for model in plan.models
    ]
    tokenizer = msgspec.structs.replace(plan.tokenizer, size=331)
    return msgspec.structs.replace(plan, models=models, tokenizer=tokenizer)


def test_in_deterministic_mode_three_ranks_give_a_request_the_same_bits_alone_and_in_a_crowd(root):
    runner = load_runner(shared(three_ways(root, "float32"), 3), 0, Settings(deterministic=True))
    pages = [list(range(at * 8, at * 8 + 8)) for at in range(6)]

    def last(*extensions):
        return runner.ranks.lead(runner.read, extensions, hidden=False).logits[-1]

    alone = last(Extension(LONG, 0, pages[0]))
    crowd = [Extension(p, 0, pages[at + 1]) for at, p in enumerate(prompts(4, seed=8, longest=20))]
    among = last(*crowd, Extension(LONG, 0, pages[5]))
    runner.ranks.close()

    assert torch.equal(alone, among)


def test_an_engine_writes_the_same_tokens_whoever_shares_its_models(plans):
    sampled = [Sampling(max_tokens=16, seed=at, temperature=float(at % 2)) for at in range(6)]

    def written(plan, graphs="off"):
        engine = Engine(plan, graphs=graphs)
        made = engine.generate(prompts(6, seed=2), sampled)
        engine.check_integrity()
        return [(c.ids, c.models) for c in made]

    assert written(shared(plans["llama"]), "on") == written(plans["llama"])


def test_a_plan_that_asks_for_more_ranks_than_heads_is_refused_in_one_line(plans):
    with pytest.raises(ModelError) as told:
        load_runner(shared(plans["llama"], 4), 0, Settings())

    assert str(told.value) == (
        "model `m0` cannot be shared by 4 ranks: its 2 key/value heads are no multiple of 4; "
        "compile the policy with another `tensor_parallel`"
    )


def test_a_rank_that_cannot_load_its_part_is_told_by_its_number(plans, root, monkeypatch):
    # The others are started where no model is; only they look there.
    monkeypatch.setattr(ranks, "_start", of_nowhere(ranks._start))
    with pytest.raises(RankLost) as told:
        load_runner(shared(plans["llama"]), 0, Settings())

    assert str(told.value).startswith("rank 1 of `m0`: there is no model at")


def of_nowhere(start):
    def begin(boot):
        lost = [msgspec.structs.replace(m, use="/nowhere/at/all") for m in boot.plan.models]
        plan = msgspec.structs.replace(boot.plan, models=lost)
        return start(msgspec.structs.replace(boot, plan=plan))

    return begin


def children(pid):
    """The processes that a process has started."""
    return [int(x) for x in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def gone(pids):
    end = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < end, pids
        time.sleep(0.02)


def test_a_stream_survives_the_death_of_a_rank_which_is_told_in_one_line(plans):
    plan = shared(plans["llama"], models=(1,))
    cases = prompts(4)
    endless = Sampling(max_tokens=100, ignore_eos=True)
    lines = []

    async def run():
        client = Client(plan)
        client.log_to("text", "warning", lambda name, line: lines.append((name, line)))
        await client.start()
        assert children(client.status().models[0].pid) == []
        (rank,) = children(client.status().models[1].pid)
        tickets = [client.submit(p, endless) for p in cases]
        first = [await anext(aiter(tickets[0])) for _ in range(10)]
        os.kill(rank, signal.SIGKILL)
        written = [[(t.token, t.model) async for t in ticket] for ticket in tickets]
        written[0] = [(t.token, t.model) for t in first] + written[0]
        (second,) = children(client.status().models[1].pid)
        epochs = [model.epoch for model in client.status().models]
        await client.close(5)
        return written, epochs, [rank, second]

    written, epochs, pids = asyncio.run(run())

    expected = Engine(plans["llama"]).generate(cases, endless)
    assert written == [list(zip(c.ids, c.models, strict=True)) for c in expected]
    assert epochs == [1, 2]
    told = [line for name, line in lines if name == "m1"]
    assert len(told) == 1, told
    assert "rank 1 of `m1` ended (signal SIGKILL), and the model with it" in told[0]
    gone(pids)


def test_ranks_end_with_a_subserver_that_is_killed(plans):
    async def run():
        client = Client(shared(plans["llama"], models=(0,)))
        await client.start()
        pid = client.status().models[0].pid
        (rank,) = children(pid)
        os.kill(pid, signal.SIGKILL)
        gone([rank])
        await client.close(0)

    asyncio.run(run())
