"""The gate: when a batch may go, and that it always goes in the end."""

import pytest

from tokenrouter.runtime.gate import Gate

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
