"""Nobody starves: under adversarial mixes every request ends within a bound that counts what may rightly go before it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime import plain, toy
from tests.runtime.test_book import TEN, book, told
from tests.runtime.test_scheduler import add, run, scheduler, seq
from tokenrouter.runtime.book import STEP
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Admit, Sampling

SHORT = toy.greedy(12, ignore_eos=True)


def ended(engine, request):
    return engine.completions[request].finish is not None


def written(completion):
    return list(zip(completion.ids, completion.models, strict=True))


def served_beside(engine, request, crowd, steps):
    """Return in how many batches a request ends while `crowd` sees to it that others never lack."""
    for at in range(steps):
        crowd(at)
        if ended(engine, request):
            return at
        assert engine.step()
    raise AssertionError(f"request {request} has not ended within {steps} events")


def busy(engine, make):
    """Keep eight requests of a kind under way."""

    def crowd(_):
        while len(engine.book.entries) < 9:
            make()

    return crowd


@pytest.mark.parametrize("capacity", [80, 160, 512])
@pytest.mark.parametrize("budget", [4, 16, 512])
def test_a_short_request_ends_beside_long_prompts_that_never_stop_coming(capacity, budget):
    plan = toy.ping_pong(capacity=capacity, max_active=8, prefill=["eager", "lazy"])
    engine = Engine(plan, models=toy.toys(plan, capacity), max_batch_tokens=budget)
    rng = random.Random(budget)

    def long():
        prompt = [rng.randrange(1, toy.SIZE) for _ in range(70)]
        engine.submit(prompt, Sampling(max_tokens=2, ignore_eos=True))

    crowd = busy(engine, long)
    crowd(0)
    request = engine.submit([1, 2, 3], SHORT)

    served_beside(engine, request, crowd, steps=30_000)

    assert written(engine.completions[request]) == plain.serve(plan, [1, 2, 3], SHORT)


@pytest.mark.parametrize("budget", [4, 16])
def test_a_long_prompt_ends_beside_short_requests_that_never_stop_coming(budget):
    plan = toy.ping_pong(capacity=84, max_active=8)
    engine = Engine(plan, models=toy.toys(plan, 84), max_batch_tokens=budget)
    crowd = busy(engine, lambda: engine.submit([1, 2], SHORT))
    crowd(0)
    prompt = [5, 6, 7] * 20

    request = engine.submit(prompt, SHORT)
    served_beside(engine, request, crowd, steps=30_000)

    assert written(engine.completions[request]) == plain.serve(plan, prompt, SHORT)


def test_a_short_prompt_is_read_within_a_few_batches_although_hundreds_of_batches_of_long_ones_came_before():
    plan = toy.ping_pong(capacity=40_000, context=4096, prefill=["eager", "eager"])
    engine = Engine(plan, models=toy.toys(plan, 40_000), max_batch_tokens=32)
    long = [engine.submit([1 + at] * 3000, SHORT) for at in range(12)]
    for _ in range(50):
        engine.step()
    before = [s.meter.steps for s in engine.subservers]

    request = engine.submit([1, 2, 3] * 10, SHORT)
    while not ended(engine, request):
        assert engine.step()

    # Two batches to read it in each model, and one a token and hand-off.
    completion = engine.completions[request]
    most = 6 + len(completion.tokens) + 2 * completion.tokens[-1].state.switches
    assert max(s.meter.steps - b for s, b in zip(engine.subservers, before, strict=True)) <= most
    assert not any(ended(engine, other) for other in long)
    assert written(completion) == plain.serve(plan, [1, 2, 3] * 10, SHORT)


@pytest.mark.parametrize("priority", [1, 3])
def test_a_request_of_low_priority_ends_although_higher_ones_never_stop_coming(priority):
    """Each step of priority lets `STEP` later requests pass, and no more."""
    plan = toy.ping_pong(max_active=2)
    engine = Engine(plan, models=toy.toys(plan))
    begun = []

    def soon():
        begun.append(engine.submit([3, 4], Sampling(max_tokens=2, ignore_eos=True), priority=0))

    crowd = busy(engine, soon)
    crowd(0)
    before = len(begun)
    request = engine.submit([1, 2, 3], SHORT, priority=priority)

    served_beside(engine, request, crowd, steps=200_000)

    passed = sum(ended(engine, other) for other in begun[before:])
    assert STEP * priority / 2 <= passed <= STEP * priority + 9  # those beside it included


def test_requests_wait_in_order_of_priority_and_then_of_arrival():
    made, sent = book(max_active=1)
    first = made.submit([1], TEN)
    entries = {p: made.submit([1], TEN, priority=p) for p in (2, 0, -1, 1)}
    late = made.submit([1], TEN, priority=-1)
    order = []
    made.abort(first.request)
    while made.entries:
        (running,) = [e for e in made.entries.values() if e.wire is not None]
        order.append(running.request)
        made.abort(running.request)

    wanted = [entries[-1], late, entries[0], entries[1], entries[2]]
    assert order == [entry.request for entry in wanted]
    ranks = [m.rank for to, m in told(sent, Admit) if to == 0]
    assert ranks == [1, 4 - STEP, 6 - STEP, 3, 5 + STEP, 2 + 2 * STEP]


def ranked(request, n, rank, **fields):
    made = seq(request, n, **fields)
    made.rank = rank
    return made


def test_a_batch_takes_requests_by_rank_and_requests_of_one_rank_by_arrival():
    made = scheduler(ranked(1, 20, 5), ranked(2, 20, 5), max_tokens=10)
    add(made, ranked(3, 20, 1))
    add(made, ranked(4, 20, 9))

    assert list(made.sequences) == [3, 1, 2, 4]
    assert run(made) == [(3, 0, 10, False)]


def test_the_rank_says_who_gives_pages_up():
    made = scheduler(ranked(1, 8, 7), ranked(2, 8, 3), pages=4)
    assert len(run(made)) == 2
    add(made, ranked(3, 8, 5))

    assert [chunk[:1] for chunk in run(made) if chunk[0] == 3] == [(3,)]
    assert made.sequences[1].pages == [] and made.sequences[2].pages


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_storm_of_preemptions_and_priorities_ends_and_changes_no_token(seed):
    rng = random.Random(seed)
    capacity = rng.choice([64, 72, 96])
    kind = rng.choice(["ping_pong", "borrow_three", "mixture", "coin"])
    plan = toy.PLANS[kind](
        capacity=capacity, max_active=rng.choice([2, 5, 16]), prefill=["eager", "lazy", "eager"]
    )
    engine = Engine(plan, models=toy.toys(plan, capacity), max_batch_tokens=rng.choice([2, 7, 512]))
    wanted = {}
    for prompt in toy.prompts(8, seed=seed):
        sampling = Sampling(max_tokens=rng.choice([1, 9, 20]), ignore_eos=True)
        request = engine.submit(prompt, sampling, priority=rng.choice([-1000, -1, 0, 0, 2]))
        wanted[request] = (prompt, sampling)
        for _ in range(rng.choice([0, 5, 60])):
            engine.step()
    most = 400 * sum(len(prompt) + s.max_tokens for prompt, s in wanted.values())

    for _ in range(most):
        if not engine.step():
            break

    assert not engine.book.entries, f"{len(engine.book.entries)} requests left after {most} events"
    engine.check_integrity()
    for request, (prompt, sampling) in wanted.items():
        assert written(engine.completions[request]) == plain.serve(plan, prompt, sampling)
