"""Load and aborts on the in-process engine: whatever happens, everybody gets their own tokens and nothing is left."""

import random

import pytest

from tests.runtime import plain
from tests.runtime.toy import PAGE, PLANS, greedy, ping_pong, prompts, toys
from tokenrouter.runtime.engine import Engine

ABORTS = 60


@pytest.fixture(params=PLANS, ids=str)
def make(request):
    return PLANS[request.param]


def ids(completion):
    return list(zip(completion.ids, completion.models, strict=True))


def abort_at_random(make, n, seed):
    """Abort `n` requests of twice as many, at moments that a seed draws, and check after each some."""
    plan = make(prefill=["lazy", "eager", "lazy"], capacity=256)
    engine = Engine(plan, models=toys(plan, 256))
    rng = random.Random(seed)
    left = [(prompt, greedy(16, ignore_eos=True)) for prompt in prompts(2 * n, seed, longest=24)]
    under_way, aborted, kept = [], set(), {}
    while left or engine.book.entries or engine.queues.waiting():
        if left and len(under_way) < 24:
            prompt, sampling = left.pop()
            request = engine.submit(prompt, sampling)
            under_way.append(request)
            kept[request] = prompt, sampling
        if under_way and len(aborted) < n and rng.random() < 0.05:
            request = under_way.pop(rng.randrange(len(under_way)))
            if request in engine.book.entries:
                engine.abort(request)
                aborted.add(request)
                if len(aborted) % 20 == 0:
                    engine.check_integrity()
        if not engine.do(rng.choice(engine.events())) and not engine.queues.waiting():
            engine.step()
        under_way = [request for request in under_way if request in engine.book.entries]
    engine.check_integrity()
    return plan, engine, kept, aborted


def test_aborts_at_random_moments_leave_no_page_and_no_pending_request(make):
    plan, engine, kept, aborted = abort_at_random(make, ABORTS, seed=1)

    assert len(aborted) == ABORTS
    for request in random.Random(0).sample(sorted(kept), 24):
        whole = plain.serve(plan, *kept[request])
        got = ids(engine.completions[request])
        assert got == (whole[: len(got)] if request in aborted else whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_aborts_leave_nothing(make, seed):
    _, _, _, aborted = abort_at_random(make, 1000, seed)

    assert len(aborted) == 1000


def test_256_requests_over_a_shared_prefix_on_a_pool_of_64_pages():
    plan = ping_pong(capacity=64 * PAGE, max_active=64)
    engine = Engine(plan, models=toys(plan, 64 * PAGE))
    shared = prompts(1, seed=9, longest=1)[0] * 32
    given = [shared + prompt for prompt in prompts(256, seed=3, longest=8)]

    completions = engine.generate(given, greedy(8, ignore_eos=True))

    engine.check_integrity()
    assert [sub.scheduler.pool.total for sub in engine.subservers] == [64, 64]
    wanted = {
        tuple(prompt): plain.serve(plan, prompt, greedy(8, ignore_eos=True)) for prompt in given
    }
    for prompt, completion in zip(given, completions, strict=True):
        assert ids(completion) == wanted[tuple(prompt)]


def test_64_clients_that_come_at_random_get_their_own_tokens(make):
    plan = make(max_active=32)
    engine = Engine(plan, models=toys(plan))
    rng = random.Random(2)
    given = prompts(64, seed=4)
    left, requests = list(given), []
    while left or engine.book.entries:
        if left and rng.random() < 0.3:
            requests.append(engine.submit(left.pop(0), greedy(12)))
        engine.step()

    engine.run()
    engine.check_integrity()
    for prompt, request in zip(given, requests, strict=True):
        assert ids(engine.completions[request]) == plain.serve(plan, prompt, greedy(12))
