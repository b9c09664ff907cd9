"""Every way in which finished requests can be routed, and the states that are met so.

The destinations of a finished batch are multinomial with its station's row of P; finished models are independent. So
the law of the arrivals depends only on how many finished at which station, and is made once for each such count, one
request at a time: `law(d + e_s) = law(d) * P[s]`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenrouter.errors import TokenRouterError
from tokenrouter.throughput.system import IDLE, Floats, Ints, State, System

MOST_WAYS = 4_000_000  # that are listed at once, out of all states of a row

Counts = tuple[int, ...]


class TooManyStates(TokenRouterError):  # noqa: N818 - reads as what it says
    """The reachable set is larger than was allowed."""

    def __init__(self, most: int, of: str = "states") -> None:
        super().__init__(
            f"the chain has more than {most} {of}; take the sampled solver, or a larger `delta_ms`"
        )


class Law(NamedTuple):
    """The arrivals that can follow: counts by station, and how likely."""

    arrivals: Ints  # [S, W]
    p: Floats  # [W]


class Routing:
    """The laws of arrivals of one system, each made when first asked for."""

    def __init__(self, system: System) -> None:
        self.rows = [[(int(j), float(row[j])) for j in np.flatnonzero(row > 0)] for row in system.p]
        none = (0,) * system.n_stations
        self.made: dict[Counts, dict[Counts, float]] = {none: {none: 1.0}}
        self.laws: dict[Counts, Law] = {}

    def law(self, done: Counts, limit: int) -> Law:
        """Return the law of arrivals after `done` requests finished, by station.

        Raises TooManyStates where it has more than `limit` arrivals: out of one state each leads to a state of its own.
        """
        if done not in self.laws:
            ways = self._ways(done, limit)
            arrivals = np.array(list(ways), dtype=np.int64).T
            self.laws[done] = Law(arrivals, np.array(list(ways.values())))
        return self.laws[done]

    def _ways(self, done: Counts, limit: int) -> dict[Counts, float]:
        path = []
        while done not in self.made:
            station = next(s for s, count in enumerate(done) if count)
            path.append((done, station))
            done = _add(done, station, -1)
        ways = self.made[done]
        for grown, station in reversed(path):
            more: dict[Counts, float] = {}
            for way, p in ways.items():
                for target, share in self.rows[station]:
                    arrived = _add(way, target, 1)
                    more[arrived] = more.get(arrived, 0.0) + p * share
            if len(more) > limit:  # and another request makes them no fewer
                raise TooManyStates(limit)
            self.made[grown] = ways = more
        return ways


def _add(counts: Counts, at: int, by: int) -> Counts:
    return (*counts[:at], counts[at] + by, *counts[at + 1 :])


class Branches(NamedTuple):
    """All ways out of a row of states: way w leaves the column `source[w]`."""

    source: npt.NDArray[np.intp]  # [W]
    p: Floats  # [W]
    state: State  # [.., W], finished requests arrived, nothing launched yet


def branch(routing: Routing, state: State, done: Ints, limit: int) -> Branches:
    """Return every way in which the finished requests `done` [S, R] can arrive.

    Raises TooManyStates where one state leads to more than `limit` others, or all of the row have too many ways to list.
    """
    groups, group = np.unique(done, axis=1, return_inverse=True)
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group, minlength=groups.shape[1])
    laws = [routing.law(tuple(counts), limit) for counts in groups.T.tolist()]
    if sum(len(law.p) * size for law, size in zip(laws, sizes.tolist(), strict=True)) > MOST_WAYS:
        raise TooManyStates(MOST_WAYS, "ways on from as many states as are met at once")
    source, p, arrivals = [], [], []
    for law, members in zip(laws, np.split(order, np.cumsum(sizes)[:-1]), strict=True):
        source.append(np.repeat(members, len(law.p)))
        p.append(np.tile(law.p, len(members)))
        arrivals.append(np.tile(law.arrivals, len(members)))
    columns = np.concatenate(source)
    out = state.take(columns)
    out.k += np.concatenate(arrivals, axis=1)
    return Branches(columns, np.concatenate(p), out)


class Registry:
    """Numbers for states, in the order of their discovery."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.known: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.known)

    def number(self, state: State) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Return the number of every column, and the places of one column for each number that is new.

        New numbers go up in the order of those places. Raises TooManyStates.
        """
        rest = np.where(state.r == IDLE, 0, state.r)
        whole = [state.k, state.b, rest, state.line, state.last]
        packed = np.concatenate(whole).T.astype(np.int32)
        keys = np.ascontiguousarray(packed).view(f"V{4 * packed.shape[1]}").ravel()
        distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
        before = len(self.known)
        numbers = np.empty(len(distinct), dtype=np.intp)
        fresh: list[int] = []
        for at, key in enumerate(distinct.tolist()):
            number = self.known.setdefault(key, len(self.known))
            if number == before + len(fresh):
                fresh.append(int(first[at]))
            numbers[at] = number
        if len(self.known) > self.limit:
            raise TooManyStates(self.limit)
        return numbers[inverse], np.array(fresh, dtype=np.intp)
