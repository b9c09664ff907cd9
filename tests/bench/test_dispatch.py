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
        assert (sample.prompt_tokens, sample.ended >= sample.arrivals[-1]) == (len(prompt), True)


@pytest.fixture
def demo(compiled):
    """A policy with a dial."""
    return compiled(ROOT / "examples/demo.route")


def dispatched(plan, bench, job, servers=None, **ask):
    tokenizer = TextTokenizer.of(plan, bench.root)
    models = range(len(plan.models))
    servers = servers or [Alone(single(plan, model), bench.root) for model in models]
    return asyncio.run(Dispatcher(plan, tokenizer, servers, Ask(**ask))(job))


def test_dials_of_the_run_reach_the_rules(demo, bench):
    [prompt] = prompts(1, seed=3)
    job = Job(prompt=prompt, max_tokens=12)
    engine = Engine(demo, bench.root, dtype="float64")
    sampling = Sampling(max_tokens=12, ignore_eos=True)
    shares = []

    for tau in (0.0, 3.0, 11.0):
        [expected] = engine.generate([prompt], sampling, {"tau": tau})
        sample = dispatched(demo, bench, job, params={"tau": tau})
        assert (sample.error, sample.ids) == (None, expected.ids)
        shares.append(sample.by_model["large"])

    assert shares[0] == 12 and shares[-1] == 0


def test_the_context_ends_an_answer_where_it_ends_a_served_one(demo, bench):
    context = min(model.context for model in demo.models)
    job = Job(prompt=[40] * (context - 3), max_tokens=9)

    sample = dispatched(demo, bench, job, params={"tau": 11.0})

    assert (sample.error, sample.tokens) == (None, 3)


ENDS = """route 1
model small { use "small" }
model large { use "large" }
policy ends {
  start small
  at small {
    when position >= 8 -> stop
    when position >= 2 and since_switch >= 1 -> borrow large until maxprob > 0.02 at most 4
    otherwise -> commit
  }
  at large { otherwise -> commit }
}
"""


def test_a_stay_ends_by_its_condition_and_an_answer_by_its_rule(compiled, bench, tmp_path):
    path = tmp_path / "ends.route"
    path.write_text(ENDS)
    plan = compiled(path)
    [prompt] = prompts(1, seed=3)
    [expected] = Engine(plan, bench.root, dtype="float64").generate(
        [prompt], Sampling(max_tokens=30, ignore_eos=True)
    )

    sample = dispatched(plan, bench, Job(prompt=prompt, max_tokens=30))

    assert sample.ids == expected.ids and len(sample.ids) < 12
    assert sample.handoffs == expected.tokens[-1].state.switches >= 4


def test_a_prompt_of_text_is_the_prompt_of_its_ids(demo, bench):
    text = "the sea"
    ids = TextTokenizer.of(demo, bench.root).encode(text)

    of_text, of_ids = (
        dispatched(demo, bench, Job(prompt=prompt, max_tokens=4)) for prompt in (text, ids)
    )

    assert of_text.ids == of_ids.ids and of_text.prompt_tokens == len(ids)


def test_a_server_that_fails_ends_the_answer_with_its_words_and_keeps_what_was_written(demo, bench):
    class Failing(Alone):
        left = 3

        async def ask(self, path, body):
            self.left -= 1
            if self.left < 0:
                raise BenchError("503: not now")
            return await super().ask(path, body)

    failing = Failing(single(demo, 0), bench.root)

    sample = dispatched(
        demo, bench, Job(prompt=[40], max_tokens=9), [failing, failing], params={"tau": 11.0}
    )

    assert (sample.error, sample.tokens) == ("503: not now", 3)


def test_each_position_and_model_draws_anew_and_a_run_again_alike(demo, bench):
    class Noting(Alone):
        async def ask(self, path, body):
            seeds.append(body["seed"])
            return await super().ask(path, {**body, "temperature": 0})

    def drawn(seed):
        seeds.clear()
        servers = [Noting(single(demo, model), bench.root) for model in range(2)]
        job = Job(prompt=[40], max_tokens=6, seed=seed)
        dispatched(demo, bench, job, servers, params={"tau": 3.0}, temperature=1.0)
        return list(seeds)

    seeds = []

    first = drawn(1)
    assert len(set(first)) == len(first) >= 6
    assert first == drawn(1) and not set(first) & set(drawn(2))
