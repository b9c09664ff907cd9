"""Where a simulated request goes after a step: **P** and **C**, of which those that a decision stops are no part.

The closed system keeps its number of requests, so its P lets a request that a decision stopped start anew at once. Here such a
request ends, and comes out of the row: what is left of P are the ways of those that go on.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple


class First(NamedTuple):
    """**P** and **C** before a request's first token, by model and station; later ones are the specification's."""

    p: list[list[float]]
    c: list[list[float]]


class Stops(NamedTuple):
    """Decisions that end their request, by the model that decides; the specification has them start another instead."""

    share: list[float]  # of its decisions
    kept: list[float]  # tokens that such a decision commits
    ends: bool = True  # whether they end it here; otherwise only its length does


class Ways(NamedTuple):
    """Where requests go that no decision stops, and how many one does, by station."""

    upto: list[list[float]]  # running sums of P
    kept: list[list[float]]
    stops: list[tuple[float, float]]  # share, and the tokens that are kept


def ways_of(
    p: list[list[float]], c: list[list[float]], starts: list[float], stops: Stops | None
) -> Ways:
    """Return the ways of P without the requests that start anew since a decision stopped others."""
    stopped = [] if stops is None else list(zip(stops.share, stops.kept, strict=True))
    out = Ways([], [], [])
    for source, (row, kept) in enumerate(zip(p, c, strict=True)):
        share, kept_there = stopped[source] if source < len(stopped) else (0.0, 0.0)
        # Never more than P has room for: shares are rounded, and those of first decisions their own.
        share = min([share, *(x / start for x, start in zip(row, starts, strict=True) if start)])
        left = [x - share * start for x, start in zip(row, starts, strict=True)]
        commits = [
            min(1.0, max(0.0, x * k - share * start * kept_there) / rest) if rest > 0 else 0.0
            for x, k, start, rest in zip(row, kept, starts, left, strict=True)
        ]
        if sum(left) <= 0:
            # All are stopped: who writes on all the same goes as another would start.
            left, commits = row, kept
        if share == 0:
            commits = kept
        out.upto.append(list(accumulate(max(0.0, x) for x in left)))
        out.kept.append(commits)
        out.stops.append((share, kept_there))
    return out
