"""The comparison's dispatcher writes what the routed engine writes, for every policy whose signals a server can tell."""

import asyncio
from pathlib import Path

import pytest

from tests.factories import prompts
from tokenrouter.bench.dispatch import Dispatcher
from tokenrouter.bench.http import BenchError
from tokenrouter.bench.sample import Ask, Job
from tokenrouter.bench.single import single
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.plan.verify import verify
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Sampling

ROOT = Path(__file__).parents[2]
POLICIES = sorted([*(ROOT / "examples").glob("*.route"), *ROOT.glob("tests/e2e/routes/*.route")])
REFUSED = {  # by the policy's file: why no dispatcher can follow it
    "citer": "head",
    "heads": "head",
    "r2r": "head",
}


class Alone:
    """A single-model server without its HTTP."""

    def __init__(self, plan, root):
        self.engine = Engine(plan, root, dtype="float64")
        self.models = [model.name for model in plan.models]

    async def ask(self, path, body):
        assert path == "/completions" and body["max_tokens"] == 1
        assert body["route"] == {"trace": True} and body["temperature"] == 0
        sampling = Sampling(max_tokens=1)
        [completion] = self.engine.generate([body["prompt"]], sampling, traced=True)
        self.engine.check_integrity()
        [token] = completion.tokens
        trace = [{"id": token.token, "signals": token.signals}]
        return {"choices": [{"route": {"trace": trace}}]}


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_the_dispatcher_writes_what_the_engine_writes(path, compiled, bench):
    plan = compiled(path)
    if path.stem in REFUSED:
        with pytest.raises(BenchError, match=REFUSED[path.stem]):
            [single(plan, model) for model in range(len(plan.models))]
        return
    plans = [single(plan, model) for model in range(len(plan.models))]
    assert [verify(each) for each in plans] == [[]] * len(plans)
    given = prompts(2, seed=5)
    samplings = [Sampling(max_tokens=12, seed=at, ignore_eos=at > 0) for at in range(2)]
    engine = Engine(plan, bench.root, dtype="float64")
    expected = engine.generate(given, samplings)
    tokenizer = TextTokenizer.of(plan, bench.root)
    servers = [Alone(each, bench.root) for each in plans]

    for prompt, sampling, completion in zip(given, samplings, expected, strict=True):
        ask = Ask(ignore_eos=sampling.ignore_eos)
        job = Job(prompt=prompt, max_tokens=12, seed=sampling.seed)
        sample = asyncio.run(Dispatcher(plan, tokenizer, servers, ask)(job))

        assert sample.error is None
        assert sample.ids == completion.ids
        assert sample.handoffs == completion.tokens[-1].state.switches
        counts = completion.tokens[-1].state.counts
        assert sample.by_model == {m.name: n for m, n in zip(plan.models, counts, strict=True)}
        assert len(sample.arrivals) == sample.tokens == len(sample.ids)
