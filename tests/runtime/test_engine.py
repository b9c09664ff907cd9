"""The engine over toys: whatever order things happen in, each request gets what it would get alone."""

import random

import msgspec
import pytest

from tests.runtime import plain
from tests.runtime.toy import PLANS, greedy, ping_pong, prompts, seeded, toys
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Handoff, Sampling, decode_to_subserver

N = 10


def cases(n=N):
    """Prompts with a greedy, a seeded or an endless sampling each."""
    kinds = [greedy(), seeded(5), greedy(40, ignore_eos=True), seeded(2**63 + 11)]
    return [(prompt, kinds[at % 4]) for at, prompt in enumerate(prompts(n))]


SERVED = {}


def expected(plan, n=N):
    """What each request gets alone, which neither windows nor memory nor prefill can change."""
    key = msgspec.json.encode([plan.start, plan.programs, n])
    if key not in SERVED:
        SERVED[key] = [plain.serve(plan, prompt, sampling) for prompt, sampling in cases(n)]
    return SERVED[key]


def written(completion):
    return list(zip(completion.ids, completion.models, strict=True))


def serve(engine, n=N):
    given = cases(n)
    completions = engine.generate([p for p, _ in given], [s for _, s in given])
    engine.check_integrity()
    return [written(c) for c in completions]


@pytest.fixture(params=PLANS, ids=str)
def make(request):
    return PLANS[request.param]


def test_a_crowd_gets_what_each_would_get_alone(make):
    plan = make()

    assert serve(Engine(plan, models=toys(plan))) == expected(plan)


@pytest.mark.parametrize("prefill", ["eager", "lazy"])
def test_reading_ahead_changes_no_token(make, prefill):
    plan = make(prefill=[prefill] * 3)

    assert serve(Engine(plan, models=toys(plan))) == expected(plan)


@pytest.mark.parametrize("capacity", [80, 84, 120])
def test_a_pool_for_one_request_serves_all_by_preemption(make, capacity):
    plan = make(capacity=capacity, max_active=8)
    engine = Engine(plan, models=toys(plan, capacity))

    assert serve(engine) == expected(plan)
    assert sum(sub.scheduler.n_preempted for sub in engine.subservers) > 0


@pytest.mark.parametrize("budget", [4, 9])
def test_chunked_prefill_changes_no_token(make, budget):
    plan = make()

    assert serve(Engine(plan, models=toys(plan), max_batch_tokens=budget)) == expected(plan)


def chaos(engine, rng, *, each=lambda: None):
    """Let things happen in a random order until nothing can."""
    while engine.book.entries or engine.queues.waiting():
        each()
        events = engine.events()
        if not engine.do(rng.choice(events)) and not engine.queues.waiting():
            assert engine.step() or not engine.book.entries


@pytest.mark.parametrize("seed", range(6))
def test_any_order_of_messages_and_batches_gives_the_same_tokens(make, seed):
    plan = make(prefill=["eager", "lazy", "eager"], capacity=160)
    engine = Engine(plan, models=toys(plan, 160))
    requests = [engine.submit(prompt, sampling) for prompt, sampling in cases()]

    chaos(engine, random.Random(seed))

    engine.check_integrity()
    assert [written(engine.completions[r]) for r in requests] == expected(plan)


@pytest.mark.parametrize("seed", range(4))
def test_a_subserver_that_is_lost_at_any_time_changes_no_token(make, seed):
    plan = make(prefill=["lazy", "eager", "lazy"])
    engine = Engine(plan, models=toys(plan))
    rng = random.Random(seed)
    requests = [engine.submit(prompt, sampling) for prompt, sampling in cases()]
    lost = 0

    def lose():
        nonlocal lost
        if rng.random() < (0.01 if lost else 0.03) and lost < 5 and all(engine.book.up):
            engine.restart(rng.randrange(len(plan.models)))
            lost += 1

    chaos(engine, rng, each=lose)

    engine.check_integrity()
    assert lost > 0
    assert [written(engine.completions[r]) for r in requests] == expected(plan)


@pytest.mark.parametrize("seed", range(4))
def test_aborts_at_any_time_leave_nothing_behind_and_disturb_nobody(make, seed):
    plan = make(prefill=["lazy", "eager", "lazy"], capacity=120)
    engine = Engine(plan, models=toys(plan, 120))
    rng = random.Random(seed)
    requests = [engine.submit(prompt, sampling) for prompt, sampling in cases()]
    doomed = requests[::2]

    def abort():
        if doomed and rng.random() < 0.02:
            engine.abort(doomed.pop())

    chaos(engine, rng, each=abort)

    engine.check_integrity()
    wanted = expected(plan)
    for at, request in enumerate(requests):
        got = written(engine.completions[request])
        assert got == wanted[at][: len(got)]
        if request not in requests[::2]:
            assert got == wanted[at]


def until_handoff(engine, model=1):
    """Run until a hand-off to a model is under way, and return its channel."""
    while True:
        for channel in engine.queues.waiting():
            _, data = engine.queues.channels[channel][0]
            if channel[1] == model and b"Handoff" in data:
                return channel
        assert engine.step()


def test_a_handoff_that_overtakes_its_admission_is_held():
    plan = ping_pong()
    engine = Engine(plan, models=toys(plan))
    while not all(engine.book.up):
        engine.step()
    request = engine.submit(*cases(1)[0])
    held_back = (-1, 1)
    for _ in range(200):  # everything but the front end's messages to the second model
        ready = [c for c in engine.queues.waiting() if c != held_back]
        if ready:
            engine.do(engine.events()[engine.queues.waiting().index(ready[0])])
        engine.do(engine.events()[-2])
    assert any(b"Admit" in data for _, data in engine.queues.channels[held_back])
    assert engine.subservers[1]._early

    engine.run()

    engine.check_integrity()
    assert written(engine.completions[request]) == expected(plan, 1)[0]


def test_an_abort_while_pending_frees_its_pages_everywhere():
    plan = ping_pong()
    engine = Engine(plan, models=toys(plan))
    request = engine.submit(*cases(3)[2])
    channel = until_handoff(engine)
    assert engine.subservers[0].report().pending == 1

    engine.abort(request)
    while (waiting := [c for c in engine.queues.waiting() if c != channel]) or channel:
        # The abort arrives first where it can: it is on another channel than the hand-off.
        at = engine.queues.waiting().index(waiting[0] if waiting else channel)
        engine.do(engine.events()[at])
        channel = channel if waiting else None

    engine.run()
    engine.check_integrity()


def test_a_handoff_for_a_subserver_before_this_one_is_dropped():
    plan = ping_pong()
    engine = Engine(plan, models=toys(plan))
    request = engine.submit(*cases(1)[0])
    channel = until_handoff(engine)
    message = decode_to_subserver(engine.queues.take(channel))
    assert isinstance(message, Handoff)

    engine.restart(1)
    engine.subservers[1].receive(message)
    engine.run()

    engine.check_integrity()
    assert written(engine.completions[request]) == expected(plan, 1)[0]


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_windows_of_any_size_hold_nobody_for_ever(make, n):
    """All windows at their largest feasible sum; requests that come and go."""
    count = len(make().models)
    first = [n - (count - 1) * ((n - 1) // count)] + [1 + (n - 1) // count] * (count - 1)
    windows = [[min(b, at) for at in range(1, n + 1)] for b in first]
    plan = make(windows=windows, max_active=n)

    assert serve(Engine(plan, models=toys(plan))) == expected(plan)


def test_a_traced_request_tells_rule_and_signals():
    plan = ping_pong()
    engine = Engine(plan, models=toys(plan))

    traced, untraced = engine.generate([[1, 2, 3]] * 1, traced=True) + engine.generate([[1, 2, 3]])

    assert traced.ids == untraced.ids
    assert all(list(token.signals) == ["entropy"] for token in traced.tokens)
    assert all(token.rule is not None for token in traced.tokens)
    assert not any(token.signals for token in untraced.tokens)


def test_max_tokens_ends_with_length_and_eos_with_stop():
    plan = ping_pong()
    engine = Engine(plan, models=toys(plan))

    completions = engine.generate([p for p, _ in cases()], Sampling(max_tokens=20))

    finishes = {c.finish for c in completions}
    assert finishes == {"stop", "length"}
    assert all((c.ids[-1] == 0) == (c.finish == "stop") for c in completions)
    assert all(len(c.ids) == 20 for c in completions if c.finish == "length")


def test_the_context_ends_a_request():
    plan = ping_pong(context=20)
    engine = Engine(plan, models=toys(plan))

    (completion,) = engine.generate([[1] * 12], Sampling(max_tokens=60, ignore_eos=True))

    assert (completion.finish, len(completion.ids)) == ("length", 8)
