"""How much of prompts a batch may read while others write, on a stopwatch that counts work."""

import math

import pytest

from tests.runtime import plain, toy
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.pace import KNOWN, LATEST, LEAST, Allowance, Pace

DEEP = 600  # six times a hidden size of 100


def slow(plan, fixed_ms, ms_a_token, stall_ms, max_batch_tokens=512):
    """An engine of one stopwatch, on which a batch takes a fixed time and some for each token that it reads."""
    took = []

    class Slow(toy.ToyModel):
        def run(self, chunks, *, hidden):
            work = sum(c.n * (1 + (c.start + c.n / 2) / DEEP) for c in chunks)
            took.append((fixed_ms + ms_a_token * work, chunks))
            return super().run(chunks, hidden=hidden)

    models = [Slow(at, 16_384) for at in range(len(plan.models))]
    engine = Engine(plan, models=models, max_batch_tokens=max_batch_tokens)
    for subserver in engine.subservers:
        subserver.stopwatch_ms = lambda: sum(ms for ms, _ in took)
        subserver.pace = Pace(stall_ms, DEEP // 6)
    return engine, took


def test_long_prompts_keep_a_stream_waiting_no_longer_than_is_allowed_from_the_second_batch_on():
    plan = toy.plan(toy.s.Program(rules=[toy.rule()]), capacity=16_384, context=4096)
    engine, took = slow(plan, fixed_ms=20.0, ms_a_token=0.5, stall_ms=100.0)
    stream = engine.submit([1, 2, 3], Sampling(max_tokens=3000, ignore_eos=True))
    while not engine.completions[stream].tokens:
        engine.step()
    prompts = [[at + 1] * 900 for at in range(4)]
    begun = len(took)

    requests = [engine.submit(prompt, toy.greedy(2, ignore_eos=True)) for prompt in prompts]
    while any(engine.completions[request].finish is None for request in requests):
        assert engine.step()

    beside = [ms for ms, chunks in took[begun:] if any(c.n > 1 for c in chunks)]
    assert max(beside[1:]) <= 115 and sorted(beside)[len(beside) // 2] >= 85, beside
    written = [{c.sequence.request for c in chunks} for _, chunks in took[begun:]]
    assert sum(1 in requests for requests in written) == len(written)  # the stream is in each batch
    for request, prompt in zip(requests, prompts, strict=True):
        wanted = plain.serve(plan, prompt, toy.greedy(2, ignore_eos=True))
        assert engine.completions[request].ids == [token for token, _ in wanted]


def test_prompts_are_read_in_whole_batches_where_nobody_writes():
    plan = toy.plan(toy.s.Program(rules=[toy.rule()]), capacity=16_384, context=4096)
    engine, took = slow(plan, fixed_ms=20.0, ms_a_token=0.5, stall_ms=100.0)

    engine.submit([7] * 2000, toy.greedy(1, ignore_eos=True))
    engine.run()

    assert [[c.n for c in chunks] for _, chunks in took] == [[512], [512], [512], [464]]


def test_the_speed_of_prompts_is_the_median_of_the_latest_batches():
    pace = Pace(100.0, 1000)
    assert pace.allowance(writing=True).work == LEAST  # nothing is known yet
    assert pace.allowance(writing=False) == Allowance()

    for ms in (10.0, 20.0, 30.0, 40.0, 5000.0):
        pace.took([(0, 10)], ms)
    per_token = 1 + 5 / 6000
    assert pace.allowance(writing=True).work == pytest.approx(100 / 3.0 * per_token)

    for _ in range(LATEST // 2 + 1):
        pace.took([(0, 40)], 40.0)
    assert pace.allowance(writing=True).work == pytest.approx(100.0, rel=0.01)


def test_a_token_deep_in_a_text_costs_more_and_a_batch_of_few_tells_nothing():
    pace = Pace(100.0, 1000)
    pace.took([(0, 3)], 90.0)
    assert pace.allowance(writing=True).work == LEAST
    pace.took([(6000, 16)], 32.0)

    allowed = pace.allowance(writing=True)

    assert allowed.work == pytest.approx(100.0, rel=0.01)
    assert (allowed.cost(0), allowed.cost(6000), allowed.cost(3000)) == (1.0, 2.0, 1.5)


@pytest.mark.parametrize("ms", [0.0, 1e9])
def test_a_stopwatch_that_stands_still_or_jumps_does_not_stop_prompts(ms):
    pace = Pace(100.0, 1000)
    pace.took([(0, 100)], ms)

    assert LEAST <= pace.allowance(writing=True).work < math.inf


def test_no_bound_is_no_bound():
    pace = Pace(None, 1000)
    pace.took([(0, 100)], 100.0)

    assert pace.allowance(writing=True) == Allowance()


def test_a_model_whose_every_batch_takes_long_reads_prompts_for_as_long_as_four_of_them():
    pace = Pace(100.0, 1000)
    for ms in (60.0, 50.0, 5000.0, 40.0, 50.0):
        pace.took([], ms)
    pace.took([(0, 100)], 100.0)

    assert pace.allowance(writing=True).work == pytest.approx(200.0, rel=0.01)

    for _ in range(LATEST // 2 + 1):  # faster again: the bound that was asked for
        pace.took([], 20.0)
    assert pace.allowance(writing=True).work == pytest.approx(100.0, rel=0.01)


def test_prompts_of_a_model_whose_weights_take_long_to_read_do_not_mostly_pay_for_the_weights():
    plan = toy.plan(toy.s.Program(rules=[toy.rule()]), capacity=16_384, context=4096)
    engine, took = slow(plan, fixed_ms=300.0, ms_a_token=25.0, stall_ms=100.0)
    stream = engine.submit([1, 2, 3], Sampling(max_tokens=3000, ignore_eos=True))
    while len(engine.completions[stream].tokens) < 3:
        engine.step()
    begun = len(took)

    requests = [engine.submit([at + 1] * 300, toy.greedy(2, ignore_eos=True)) for at in range(3)]
    while any(engine.completions[request].finish is None for request in requests):
        assert engine.step()

    beside = [ms for ms, chunks in took[begun:] if any(c.n > 1 for c in chunks)]
    assert max(beside[1:]) <= 4 * 325 + 75, beside
    assert 300.0 * len(beside) <= sum(beside) / 3, "a third or more of the time went into weights"


def test_a_stream_that_has_just_begun_beside_a_long_prompt_waits_for_no_whole_batch():
    plan = toy.plan(toy.s.Program(rules=[toy.rule()]), capacity=16_384, context=4096)
    engine, took = slow(plan, fixed_ms=20.0, ms_a_token=0.5, stall_ms=100.0)

    short = engine.submit([1] * 100, toy.greedy(6, ignore_eos=True))
    engine.submit([2] * 3500, toy.greedy(1, ignore_eos=True))
    while engine.completions[short].finish is None:
        assert engine.step()

    written = [at for at, (_, chunks) in enumerate(took) if chunks[0].sequence.request == short]
    beside = [took[at][0] for at in range(written[0] + 1, written[-1] + 1)]
    assert max(beside) <= 125, beside


def test_prompts_that_never_stop_coming_do_not_keep_a_slow_model_at_the_smallest_pieces():
    plan = toy.plan(toy.s.Program(rules=[toy.rule()]), capacity=16_384, context=4096)
    engine, took = slow(plan, fixed_ms=300.0, ms_a_token=2.0, stall_ms=250.0)
    engine.submit([1] * 40, toy.greedy(3000, ignore_eos=True))
    prompts = [engine.submit([at + 2] * 1000, toy.greedy(1, ignore_eos=True)) for at in range(9)]

    while any(engine.completions[request].finish is None for request in prompts):
        assert engine.step()

    read = [sum(c.n for c in chunks if c.n > 1) for _, chunks in took]
    assert sum(n < 100 for n in read[KNOWN + 4 :]) <= 8, read


def test_what_a_batch_without_prompts_took_long_ago_is_forgotten():
    pace = Pace(100.0, 1000)
    for _ in range(LATEST):
        pace.took([], 1000.0)
    for _ in range(KNOWN):
        assert pace.allowance(writing=True).work > 0
        pace.took([(0, 100)], 100.0)

    assert pace.allowance(writing=True, passes=False).work > 0  # a batch of prompts alone is none
    assert pace.allowance(writing=True).work == 0
    pace.took([], 10.0)

    assert pace.allowance(writing=True).work == pytest.approx(100.0, rel=0.01)


def test_one_batch_without_prompts_that_took_long_by_chance_keeps_nobody_waiting():
    pace = Pace(100.0, 1000)
    pace.took([], 20.0)
    for _ in range(KNOWN):
        pace.allowance(writing=True)
        pace.took([(0, 100)], 100.0)
    assert pace.allowance(writing=True).work == 0
    pace.took([], 5000.0)

    assert pace.allowance(writing=True).work == pytest.approx(100.0, rel=0.01)


def test_where_nobody_waits_for_prompts_no_batch_goes_without_them():
    pace = Pace(100.0, 1000)
    for _ in range(2 * KNOWN):
        pace.took([(0, 100)], 100.0)

    assert pace.allowance(writing=False) == Allowance()
