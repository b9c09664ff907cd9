"""Windows at run time: none ever stalls, none changes a token, and each launch rule is needed."""

import itertools
import random

import msgspec
import pytest

from tests.runtime import plain
from tests.runtime.toy import coin, greedy, mixture, ping_pong, prompts, toys
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Active, Flush, Gated, Ready, Windows
from tokenrouter.runtime.transport import FRONT_END

NEVER = 1e9  # ms that nobody waits
LONG = greedy(30, ignore_eos=True)


def with_windows(*windows, max_wait_ms=NEVER, make=coin, max_active=16, **fields):
    rows = [[window] * max_active for window in windows]
    return make(windows=rows, max_wait_ms=max_wait_ms, max_active=max_active, **fields)


def written(completion):
    return list(zip(completion.ids, completion.models, strict=True))


def check_all(engine, plan, requests):
    """Every request is finished and got what it would get alone."""
    engine.check_integrity()
    for request, prompt in requests.items():
        assert written(engine.completions[request]) == plain.serve(plan, prompt, LONG)


def launches(engine, reason):
    """Batches by reason, over all models."""
    return sum(tally(engine, model).launches[reason] for model in range(len(engine.subservers)))


def tally(engine, model):
    subserver = engine.subservers[model]
    return subserver.meter.tally(engine.now, n_active=0, window=1, waiting=0)


def submit(engine, n, seed=0):
    return {engine.submit(prompt, LONG): prompt for prompt in prompts(n, seed)}


def vectors(n, total):
    """All windows of two models with sum (B - 1) = total."""
    return [(n, 1 + first, 1 + total - first) for first in range(total + 1)]


@pytest.mark.parametrize(
    ("n", "first", "second"), [v for n in (1, 2, 3, 5) for v in vectors(n, n - 1)], ids=str
)
def test_the_fullest_feasible_windows_need_no_clock(n, first, second):
    plan = with_windows(first, second)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, n)

    engine.run()

    check_all(engine, plan, requests)
    assert engine.now < NEVER
    assert launches(engine, "max_wait") == 0


@pytest.mark.parametrize(
    ("n", "first", "second"), [v for n in (1, 2, 3, 5) for v in vectors(n, n + 1)], ids=str
)
def test_windows_that_are_infeasible_go_on_when_nothing_else_can_arrive(n, first, second):
    plan = with_windows(first, second)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, n)

    engine.run()

    check_all(engine, plan, requests)
    assert engine.now < NEVER
    assert launches(engine, "nothing_else") > 0


@pytest.mark.parametrize(("n", "first", "second"), vectors(5, 4) + vectors(5, 5), ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_the_last_of_many_goes_on_alone(n, first, second, seed):
    """The windows stay those of five, as where the table came too late."""
    plan = with_windows(first, second)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, n, seed)
    rng = random.Random(seed)
    for _ in range(rng.randint(20, 90)):
        engine.step()
    last = rng.choice(list(requests))
    for request in requests:
        if request != last:
            engine.abort(request)

    engine.run()

    check_all(engine, plan, {last: requests[last]})
    assert engine.now < NEVER


@pytest.mark.parametrize("make", [coin, ping_pong], ids=["coin", "ping_pong"])
@pytest.mark.parametrize("seed", range(4))
def test_a_restarted_peer_finds_its_window_and_the_others_go_on(make, seed):
    plan = with_windows(2, 3, make=make)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, 4, seed)
    rng = random.Random(seed)
    for _ in range(3):
        for _ in range(rng.randint(5, 60)):
            engine.step()
        engine.restart(rng.randrange(2))

    engine.run()

    check_all(engine, plan, requests)
    assert engine.now < NEVER


def test_a_table_reaches_every_subserver():
    plan = with_windows(1, 1)
    engine = Engine(plan, models=toys(plan))
    while engine.queues.waiting():
        engine.step()

    engine.book.set_windows([[1, 2, 2], [1, 1, 2]])
    while engine.queues.waiting():
        engine.step()

    rows = [subserver.gate.gate.windows for subserver in engine.subservers]
    assert rows == [[1, 2, 2], [1, 1, 2]]


def test_a_restarted_subserver_hears_the_count_and_the_table_in_force():
    plan = with_windows(1, 1)
    engine = Engine(plan, models=toys(plan))
    submit(engine, 3)
    engine.book.set_windows([[1, 2, 2], [1, 1, 2]])
    for _ in range(40):
        engine.step()

    engine.restart(0)
    while engine.queues.waiting():
        engine.step()

    assert engine.subservers[0].gate.gate.windows == [1, 2, 2]
    assert engine.subservers[0].gate.n_active == engine.book.n_running == 3


@pytest.mark.parametrize("lie", [1, 7])
def test_a_request_that_is_counted_and_gone_costs_time_only(lie):
    """Only the clock is left: the count is too high, and no word of other gates arrives."""
    plan = with_windows(3, 4, max_wait_ms=50.0)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, 4)

    while engine.book.entries or engine.queues.waiting():
        for subserver in engine.subservers:
            subserver.gate.n_active = engine.book.n_running + lie
        for channel in engine.queues.waiting():
            if channel[1] == FRONT_END:
                queue = engine.queues.channels[channel]
                kept = [entry for entry in queue if b"Gated" not in entry[1]]
                queue.clear()
                queue.extend(kept)
        assert engine.step()

    check_all(engine, plan, requests)
    assert launches(engine, "max_wait") > 0
    assert launches(engine, "nothing_else") == 0


def test_the_clock_alone_goes_on_with_a_window_that_nothing_can_fill():
    plan = with_windows(9, 9, max_wait_ms=20.0)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, 1)

    lonely(engine)

    check_all(engine, plan, requests)
    assert launches(engine, "max_wait") > 0


def lonely(engine):
    """Run requests whose gates hear of many others and of no end to the waiting, so that only the clock opens them."""
    while engine.book.entries:
        for subserver in engine.subservers:
            subserver.gate.n_active = 99
        for queue in engine.queues.channels.values():
            kept = [entry for entry in queue if b"Flush" not in entry[1]]
            queue.clear()
            queue.extend(kept)
        assert engine.step()


@pytest.mark.parametrize("seed", range(3))
def test_of_several_gates_the_one_whose_time_has_come_opens(seed):
    plan = with_windows(9, 9, max_wait_ms=46.0)
    engine = Engine(plan, models=toys(plan))
    submit(engine, 3, seed)

    lonely(engine)

    for model in range(2):
        delays = tally(engine, model).delays
        assert sum(delays) > 5
        assert sum(delays[6:]) == 0  # beyond 50 ms


@pytest.mark.parametrize("make", [coin, ping_pong], ids=["coin", "ping_pong"])
def test_each_arrival_at_a_gate_begins_a_wait_of_its_own(make):
    """A request that came back long after it was here first waits as long as any other."""
    plan = with_windows(9, 9, max_wait_ms=20.0, make=make)
    engine = Engine(plan, models=toys(plan))
    submit(engine, 1)

    lonely(engine)

    for model in range(2):
        seen = tally(engine, model)
        gated = sum(size * n for size, n in seen.batch_sizes.items())
        assert gated > 5
        assert 20 <= seen.delay_sum_ms / gated < 23  # and the ticks of messages
        assert seen.launches["max_wait"] == gated


@pytest.mark.parametrize("make", [coin, ping_pong], ids=["coin", "ping_pong"])
@pytest.mark.parametrize("seed", range(4))
def test_tables_swapped_in_the_middle_change_no_token_and_stop_nothing(make, seed):
    plan = with_windows(1, 1, make=make)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, 6, seed)
    rng = random.Random(seed)
    swaps = 0
    while engine.book.entries or engine.queues.waiting():
        if rng.random() < 0.1:
            engine.book.set_windows(random_table(rng, 2, 6))
            swaps += 1
        events = engine.events()
        if not engine.do(rng.choice(events)):
            assert engine.step() or not engine.book.entries

    check_all(engine, plan, requests)
    assert engine.now < NEVER
    assert swaps > 5


def random_table(rng, n_models, n):
    """A table that is feasible for each of its counts."""
    table = [[] for _ in range(n_models)]
    for count in range(1, n + 1):
        spare = rng.randint(0, count - 1)
        cuts = sorted(rng.randint(0, spare) for _ in range(n_models - 1))
        for row, low, high in zip(table, [0, *cuts], [*cuts, spare], strict=True):
            row.append(1 + high - low)
    return table


@pytest.mark.parametrize("mode", ["fixed", "adaptive", "off"])
@pytest.mark.parametrize("make", [coin, ping_pong], ids=["coin", "ping_pong"])
def test_no_mode_changes_a_token(make, mode):
    plan = with_windows(2, 3, make=make, max_active=8)
    engine = Engine(plan, models=toys(plan), windows=mode)
    requests = submit(engine, 40)

    engine.run()

    check_all(engine, plan, requests)
    status = engine.adapter.status
    assert (status.swaps > 0) == (mode == "adaptive")
    assert status.source == {"fixed": "none", "adaptive": "live", "off": "off"}[mode]


def test_off_launches_whatever_waits():
    plan = with_windows(4, 4)
    engine = Engine(plan, models=toys(plan), windows="off")
    submit(engine, 6)

    engine.run()

    assert launches(engine, "nothing_else") == launches(engine, "max_wait") == 0
    assert engine.adapter.status.table == [[1] * 16] * 2


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_below_its_window_has_another_reason(seed):
    windows = (3, 4)
    plan = with_windows(*windows)
    engine = Engine(plan, models=toys(plan))
    submit(engine, 8, seed)
    rng = random.Random(seed)
    while engine.book.entries or engine.queues.waiting():
        if not engine.do(rng.choice(engine.events())):
            assert engine.step() or not engine.book.entries

    for model, window in enumerate(windows):
        seen = tally(engine, model)
        below = sum(n for size, n in seen.batch_sizes.items() if size < window)
        assert below <= seen.launches["nothing_else"]
        assert seen.launches["window"] > 0
        assert any(size >= window for size in seen.batch_sizes)


def test_an_infeasible_table_is_never_told():
    plan = with_windows(1, 1)
    engine = Engine(plan, models=toys(plan))

    with pytest.raises(AssertionError, match="for 2 active requests"):
        engine.book.set_windows([[1, 2], [1, 2]])

    assert all(subserver.gate.gate.windows == [1] * 16 for subserver in engine.subservers)


def test_word_of_a_dead_subservers_gate_is_dropped():
    plan = with_windows(2, 3)
    engine = Engine(plan, models=toys(plan))
    submit(engine, 4)
    while engine.queues.waiting():
        engine.step()
    book = engine.book
    book.send = lambda to, message: sent.append((to, message))
    sent = []
    book.ready(Ready(model=1, epoch=2, capacity_tokens=512))
    sent.clear()

    book.told(Gated(model=0, epoch=1, waiting=2))
    book.told(Gated(model=1, epoch=1, waiting=2))
    assert not sent
    book.told(Gated(model=1, epoch=2, waiting=2))

    assert sent == [(0, Flush()), (1, Flush())]


def test_a_gate_that_lost_its_subserver_no_longer_counts_as_closed():
    plan = with_windows(2, 3)
    engine = Engine(plan, models=toys(plan))
    submit(engine, 4)
    while engine.queues.waiting():
        engine.step()
    sent = []
    engine.book.send = lambda to, message: sent.append(message)

    engine.book.told(Gated(model=0, epoch=1, waiting=3))
    engine.book.down(0)
    engine.book.told(Gated(model=1, epoch=1, waiting=1))

    assert Flush() not in sent


def test_a_new_count_opens_gates_that_had_been_waiting_for_the_one_that_left():
    plan = with_windows(2, 3)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, 4)
    while engine.queues.waiting():
        engine.step()
    sent = []
    engine.book.send = lambda to, message: sent.append((to, message))
    engine.book.told(Gated(model=0, epoch=1, waiting=1))
    engine.book.told(Gated(model=1, epoch=1, waiting=2))
    assert not sent

    engine.abort(next(iter(requests)))

    assert sent[-4:] == [(0, Active(n=3)), (1, Active(n=3)), (0, Flush()), (1, Flush())]


def test_what_the_gates_did_adds_up():
    plan = with_windows(2, 3)
    engine = Engine(plan, models=toys(plan))
    requests = submit(engine, 6)
    engine.run()

    for model in range(2):
        seen = tally(engine, model)
        gated = sum(size * n for size, n in seen.batch_sizes.items())
        assert sum(seen.launches.values()) == seen.steps
        assert sum(seen.batch_sizes.values()) == seen.steps - seen.launches["prefill"]
        assert sum(seen.delays) == gated > 0
        assert seen.delay_sum_ms > 0
    tallies = [tally(engine, model) for model in range(2)]
    ended = sum(seen.ended for seen in tallies)
    kept = sum(move.kept for seen in tallies for move in seen.moves)
    assert ended == sum(seen.entered for seen in tallies) == len(requests)
    assert sum(seen.ended_tokens for seen in tallies) == 30 * len(requests)
    assert kept + ended == 30 * len(requests)


def test_messages_of_the_gates_survive_the_wire():
    plan = with_windows(2, 3)
    engine = Engine(plan, models=toys(plan))
    submit(engine, 6)
    engine.run()
    seen = tally(engine, 0)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(seen), type=type(seen)) == seen
    assert msgspec.msgpack.decode(
        msgspec.msgpack.encode(Windows(windows=[1, 2])), type=Windows
    ) == Windows(windows=[1, 2])


def test_every_vector_of_three_models_goes_on():
    fields = {"max_wait_ms": NEVER, "max_active": 4}
    for windows in itertools.product((1, 2, 3), repeat=3):
        plan = make_three(windows, **fields)
        engine = Engine(plan, models=toys(plan))
        requests = submit(engine, 3)
        engine.run()
        check_all(engine, plan, requests)
        assert engine.now < NEVER


def make_three(windows, **fields):
    return mixture(windows=[[window] * 4 for window in windows], **fields)
