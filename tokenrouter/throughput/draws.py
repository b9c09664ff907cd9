"""Random routing of many columns at once, by numbers that two runs have in common.

A draw is keyed by copy, station, destination and the index of the completion of the station's model, never by the order in
which it is asked for: two runs under different windows meet the same luck at the same completion, so their difference
is far surer than either. Uniform numbers come from splitmix64 (https://prng.di.unimi.it/splitmix64.c) at the place that
the key names. A batch is split over its destinations by conditional binomials, each the inverse of its distribution
function at one uniform number, so that batches of nearly equal size split nearly alike too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.special import bdtr

from tokenrouter.throughput.system import Floats, Ints, System

Words = npt.NDArray[np.uint64]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix(words: Words) -> Words:
    """Return the output function of splitmix64."""
    z = words ^ (words >> np.uint64(30))
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def uniform(key: Words, index: npt.NDArray[np.int64]) -> Floats:
    """Return entry `index` of the stream `key`: numbers in [0, 1), multiples of 2^-40.

    So few bits that adding a size of batch, as `binomial` does, is exact and never rounds up to the next row.
    """
    bits = mix(key + GOLDEN * index.astype(np.uint64))
    return (bits >> np.uint64(24)).astype(np.float64) * 2.0**-40


@lru_cache(maxsize=64)
def binomial_steps(most: int, q: float) -> Floats:
    """Return the flat inverse of Binomial(b, q) for b = 1..most, made for `binomial`.

    Row b holds b + F(x) for x = 0..b-1; all rows together ascend, so that one search finds row and place.
    """
    b = np.repeat(np.arange(1, most + 1), np.arange(1, most + 1))
    x = np.arange(len(b)) - b * (b - 1) // 2
    return np.asarray(b + bdtr(x.astype(np.float64), b, q), dtype=np.float64)


def binomial(steps: Floats, b: Ints, u: Floats) -> Ints:
    """Return Binomial(b, q) at the uniform numbers u: the least x with F(x) > u."""
    return np.asarray(np.searchsorted(steps, b + u, side="right") - b * (b - 1) // 2)


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """One destination of each station of a group: the share of those that took none before it, and their streams."""

    targets: Ints  # [G]
    steps: Floats | None  # None: all that are left go here
    streams: Ints  # [G]
    apart: bool  # whether no two stations of the group have the same target


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Stations whose requests split by equal shares, drawn together: most phases of a stay."""

    stations: Ints  # [G]
    models: Ints  # [G]
    ways: list[Way]


class Router:
    """Routes finished requests of a system; `copy` [R] names the luck of each column."""

    def __init__(self, system: System, copy: Ints, seed: int) -> None:
        members: dict[tuple[float, ...], list[int]] = {}
        streams: list[range] = []
        n = 0
        for station, row in enumerate(system.p):
            shares = _shares(row)
            members.setdefault(shares, []).append(station)
            streams.append(range(n, n + len(shares)))
            n += len(shares)
        self.groups = [
            _group(system, np.array(stations), shares, [streams[s] for s in stations])
            for shares, stations in members.items()
        ]
        names = np.arange(n, dtype=np.uint64)[:, None] * np.uint64(2**32)
        salt = mix(np.array([seed + 1], dtype=np.uint64))
        self.keys = mix(mix(names + copy.astype(np.uint64) + salt) ^ salt)
        self.index = np.zeros((system.n_models, len(copy)), dtype=np.int64)

    def route(self, k: Ints, done: Ints, finished: npt.NDArray[np.bool_]) -> None:
        """Add the requests `done` [S, R] to those that wait, `k`; `finished` [M, R] counts completions."""
        assert k.flags.c_contiguous  # or adding at flat places would add to a copy
        for group in self.groups:
            own = done[group.stations]
            if group.ways[0].steps is None:
                _add(k, group.ways[0], group.ways[0].targets, slice(None), own)
                continue
            # Flat places are found and read in half the time of pairs.
            places = np.flatnonzero(own != 0)
            if not len(places):
                continue
            rows, at = np.divmod(places, own.shape[1])
            left = own.ravel()[places]
            index = self.index.ravel()[group.models[rows] * own.shape[1] + at]
            for way in group.ways:
                if way.steps is None:
                    _add(k, way, way.targets[rows], at, left)
                    break
                keys = self.keys.ravel()[way.streams[rows] * own.shape[1] + at]
                taken = binomial(way.steps, left, uniform(keys, index))
                _add(k, way, way.targets[rows], at, taken)
                left = left - taken
        self.index += finished


def _shares(row: Floats) -> tuple[float, ...]:
    """Return for all destinations but the last the share of those that took none before it."""
    left, shares = 1.0, []
    for target in np.flatnonzero(row > 0).tolist()[:-1]:
        # Of shares that sum to 1 the last may be lost in rounding, and find nobody left.
        shares.append(min(1.0, float(row[target]) / left) if left > 0 else 1.0)
        left -= float(row[target])
    return tuple(shares)


def _group(
    system: System, stations: Ints, shares: tuple[float, ...], streams: list[range]
) -> Group:
    targets = np.array([np.flatnonzero(system.p[s] > 0) for s in stations]).T
    ways = []
    for at, own in enumerate(targets):
        last = at == len(shares)
        ways.append(
            Way(
                targets=own,
                steps=None if last else binomial_steps(system.n, shares[at]),
                streams=np.array([0 if last else names[at] for names in streams]),
                apart=len(set(own.tolist())) == len(own),
            )
        )
    return Group(stations, system.model_of[stations], ways)


def _add(k: Ints, way: Way, targets: Ints, at: Ints | slice, n: Ints) -> None:
    """Add n requests to k[targets, at], also where a place is named twice."""
    if way.apart and isinstance(at, slice):
        k[targets] += n
    elif way.apart:
        k.ravel()[targets * k.shape[1] + at] += n
    elif isinstance(at, slice):
        np.add.at(k, targets, n)
    else:
        some = np.flatnonzero(n)
        np.add.at(k, (targets[some], at[some]), n[some])
