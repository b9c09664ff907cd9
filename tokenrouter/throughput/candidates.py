"""Which vectors of windows are worth a try for N active requests: all, a coarse grid, or the neighbours of one.

A vector is feasible where sum (B_m - 1) < N. There are C(N - 1 + M, M) of them, so beyond small N a grid of powers stands
for all and neighbours close in on the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import comb

Windows = tuple[int, ...]

MOST_ON_GRID = 500
MOST_PRODUCT = 3  # models for which neighbours in several coordinates at once are tried


def feasible(windows: Sequence[int], n: int) -> bool:
    """Return whether some model always launches: not all N requests can wait below their windows."""
    return sum(windows) - len(windows) < n and min(windows) >= 1


def count(n: int, n_models: int) -> int:
    """Return how many feasible vectors there are."""
    return comb(n - 1 + n_models, n_models)


def every(n: int, n_models: int) -> list[Windows]:
    """Return all feasible vectors."""
    return list(_within(list(range(1, n + 1)), n, n_models))


def grid(n: int, n_models: int) -> list[Windows]:
    """Return the feasible vectors of powers of 2, or of 4, 16, ... where those are too many."""
    ratio = 2
    while True:
        values = [1]
        while values[-1] * ratio <= n:
            values.append(values[-1] * ratio)
        out = []
        for windows in _within(values, n, n_models):
            out.append(windows)
            if len(out) > MOST_ON_GRID:
                break
        else:
            return out
        ratio *= ratio


def neighbours(windows: Windows, ratio: float, n: int) -> list[Windows]:
    """Return the feasible vectors whose entries are those of `windows`, up or down by `ratio` and by at least 1."""
    ways = [
        (max(1, min(b - 1, round(b / ratio))), b, max(b + 1, round(b * ratio))) for b in windows
    ]
    if len(windows) <= MOST_PRODUCT:
        near = set(product(*ways))
    else:
        near = {
            (*windows[:at], way, *windows[at + 1 :]) for at, own in enumerate(ways) for way in own
        }
    return sorted(each for each in near if feasible(each, n))


def _within(values: Sequence[int], n: int, n_models: int) -> Iterator[Windows]:
    """Yield the vectors of ascending `values` whose entries less 1 sum to less than n."""
    if n_models == 0:
        yield ()
        return
    for value in values:
        if value - 1 >= n:
            return
        for rest in _within(values, n - (value - 1), n_models - 1):
            yield (value, *rest)
