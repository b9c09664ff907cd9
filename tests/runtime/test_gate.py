"""The gate: when a batch may go, and that it always goes in the end."""

from types import SimpleNamespace

import pytest

from tokenrouter.runtime.gate import Gate
from tokenrouter.runtime.gatekeeper import Gatekeeper
from tokenrouter.runtime.messages import DELAY_BOUNDS_MS, Active, Flush, Gated
from tokenrouter.runtime.meter import Meter

GATE = Gate([1, 1, 2, 3], max_wait_ms=50.0)


@pytest.mark.parametrize(
    ("waiting", "oldest", "n", "moving", "reason"),
    [
        (0, 99.0, 4, 4, None),
        (2, 0.0, 4, 2, None),
        (3, 0.0, 4, 1, "window"),
        (2, 0.0, 3, 1, "window"),
        (2, 50.0, 4, 2, "max_wait"),
        (2, 49.9, 4, 2, None),
        (2, 0.0, 4, 0, "nothing_else"),
        (1, 0.0, 1, 0, "window"),
        (2, 0.0, 9, 7, None),
        (3, 0.0, 9, 6, "window"),
        (1, 0.0, 0, -1, "window"),
    ],
)
def test_a_batch_goes_by_the_three_rules(waiting, oldest, n, moving, reason):
    assert GATE.due(waiting, oldest, n, moving) == reason


def test_no_row_of_any_table_stops_for_ever():
    for window in range(1, 6):
        gate = Gate([window] * 5, max_wait_ms=10.0)
        for n in range(1, 7):
            for waiting in range(1, n + 1):
                assert gate.due(waiting, 10.0, n, n - waiting) is not None
                assert gate.due(waiting, 0.0, n, 0) is not None


def keeper(n_active=5):
    """A gatekeeper with a window of 3, and what it tells."""
    told = []
    made = Gatekeeper(Gate([1, 2, 3], 50.0), Meter(1, 2), lambda to, message: told.append(message))
    made.receive(Active(n=n_active))
    return made, told


def at_gate(n, since=0.0):
    return [SimpleNamespace(due_since=since) for _ in range(n)]


def test_a_flush_opens_the_gate_once():
    made, _ = keeper()
    assert made.due(at_gate(2), 10.0) is None

    made.receive(Flush())

    assert made.due(at_gate(2), 10.0) == "nothing_else"
    assert made.due(at_gate(2), 10.0) is None


def test_a_flush_that_finds_nobody_is_over():
    made, _ = keeper()
    made.receive(Flush())

    assert made.due([], 10.0) is None
    assert made.due(at_gate(1), 10.0) is None


def test_only_closed_gates_are_told_and_only_changes():
    made, told = keeper()
    for waiting, reason in ((1, None), (1, None), (2, None), (3, "window"), (4, "window")):
        made.tell(waiting, reason, 0.0)

    assert told == [Gated(model=1, epoch=2, waiting=n) for n in (1, 2, 0)]


def test_the_gate_opens_by_itself_when_the_oldest_has_waited_long_enough():
    made, _ = keeper()

    assert made.opens_in_ms(at_gate(2, since=5.0), 20.0) == 35.0
    assert made.opens_in_ms(at_gate(2, since=5.0), 99.0) == 0.0
    assert made.opens_in_ms([], 20.0) is None


def test_every_delay_is_counted_under_the_first_bound_that_it_does_not_exceed():
    meter = Meter(0, 1)
    low, high = DELAY_BOUNDS_MS[1], DELAY_BOUNDS_MS[-1]
    meter.launched("window", [low, low + 0.01])
    meter.launched("max_wait", [high + 1])
    meter.launched("window", [])  # holds prompts only

    tally = meter.tally(0.0, n_active=2, window=1, waiting=0)

    by_bound = {at: n for at, n in enumerate(tally.delays) if n}
    assert by_bound == {1: 1, 2: 1, len(DELAY_BOUNDS_MS): 1}
    assert tally.delay_sum_ms == pytest.approx(2 * low + 0.01 + high + 1)
    assert (tally.launches["window"], tally.launches["max_wait"]) == (1, 1)
    assert (tally.launches["prefill"], tally.steps) == (1, 3)
    assert tally.batch_sizes == {2: 1, 1: 1}


def test_a_delay_runs_from_the_arrival_at_the_gate_to_the_launch():
    made, _ = keeper()
    waiting = SimpleNamespace(owned=True, prefilling=False, due_since=30.0, admitted_ms=5.0)
    prompt = SimpleNamespace(owned=True, prefilling=True, due_since=0.0, admitted_ms=0.0)

    chunks = [SimpleNamespace(sequence=s) for s in (waiting, prompt)]
    prompts = made.launched(chunks, "window", 50.0)

    tally = made.meter.tally(50.0, n_active=2, window=1, waiting=0)
    assert (tally.delay_sum_ms, tally.batch_sizes) == (20.0, {1: 1})
    assert prompts == chunks[1:]


def test_those_that_come_later_do_not_prolong_the_wait_of_the_first():
    keeper = Gatekeeper(Gate([9] * 20, 50.0), Meter(0, 1), lambda to, message: None)
    keeper.receive(Active(n=20))
    waiting = [SimpleNamespace(due_since=since) for since in (30.0, 0.0, 40.0)]

    assert keeper.due(waiting, 49.0) is None
    assert keeper.opens_in_ms(waiting, 49.0) == 1.0
    assert keeper.due(waiting, 50.0) == "max_wait"
