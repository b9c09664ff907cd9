"""A specification made ready to be advanced, and what one event is.

State, looked at right after each completion event and after every launch that is due (arXiv 2610.12242, appendix D):

    k[s]  requests that wait at station s
    b[s]  requests of station s in the running batch of its model
    r[m]  quanta that model m's batch still needs; infinite where idle

and, where models step in turn (`Spec.in_turn`),

    line[m]  the place of model m in the line for the next turn, from 1 on; 0 where it does not stand there
    last[0]  the model whose turn was the latest

One column is one state, so the same functions advance a frontier of the exact chain and the copies of the sampled one.
An event is `advance` (time passes until the first batch ends), then routing, which is random and belongs to the solvers,
then `launch`. Where busy models slow each other, `r` is work: it shrinks at rate v_m(busy set) and is rounded to
quanta, in both solvers alike, so that the reachable set stays finite.

In turn one batch runs at a time. A model stands in line once its window is full and takes, when its turn comes, all that
wait by then. Of those that become due by the same step the one that made it stands first: it looks at its gate before its
hand-offs are read elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tokenrouter.throughput.check import entry, restarts
from tokenrouter.throughput.spec import Spec

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

IDLE = np.inf


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """The numbers of a checked specification, by station and model."""

    n: int  # most requests that `steps` covers
    model_of: Ints  # [S]
    p: Floats  # [S, S], ends folded in
    gain: Floats  # [S], tokens a step commits in expectation: sum_j P[s, j] C[s, j]
    steps: Floats  # [M, n + 1], quanta of a step by size of its batch; column 0 is never read
    rates: Floats | None  # [M, 2^M] v_m by bit set of busy models; None where all are 1
    in_turn: bool  # whether one batch runs at a time
    after: Floats | None  # [M, n + 1], as `steps`, of a step that follows another model's turn
    start: int  # the station where all wait at first
    quantum_s: float  # delta, seconds
    plain: bool  # whether station s is model s
    stations_of: list[Ints]  # by model, its stations

    @property
    def n_models(self) -> int:
        """M."""
        return len(self.steps)

    @property
    def n_stations(self) -> int:
        """S."""
        return len(self.p)


@dataclass(slots=True, eq=False)
class State:
    """Columns of states; all arrays belong to it and are changed in place."""

    k: Ints  # [S, R]
    b: Ints  # [S, R]
    r: Floats  # [M, R]
    line: Ints  # [M, R]; [0, R] where models do not step in turn
    last: Ints  # [1, R]; [0, R] likewise

    def take(self, at: npt.NDArray[np.intp]) -> State:
        """Return the columns at the places `at`, copied."""
        return State(
            self.k[:, at], self.b[:, at], self.r[:, at], self.line[:, at], self.last[:, at]
        )


class Event(NamedTuple):
    """What `advance` did, by column."""

    tau: Floats  # [R] quanta that passed
    finished: Bools  # [M, R] models whose batch ended
    done: Ints  # [S, R] requests that finished a step and are yet to be routed
    busy: Bools  # [M, R] models that were running meanwhile


def build(spec: Spec) -> System:
    """Return the system of a checked specification."""
    n_models = len(spec.step_ms)
    p = np.array(spec.p, dtype=np.float64)
    model_of = np.array(spec.model_of or range(n_models), dtype=np.int64)
    rates = None
    if any(rate != 1 for busy in spec.busy for rate in busy.rates):
        rates = np.ones((n_models, 2**n_models))
        for busy in spec.busy:
            rates[busy.models, sum(1 << m for m in busy.models)] = busy.rates
    return System(
        n=spec.n,
        model_of=model_of,
        p=restarts(spec),
        gain=(p * np.array(spec.c)).sum(axis=1),
        steps=_quanta(spec, spec.step_ms),
        rates=rates,
        in_turn=spec.in_turn,
        after=None if spec.after_ms is None else _quanta(spec, spec.after_ms),
        start=int(np.argmax(entry(spec))),
        quantum_s=spec.delta_ms / 1000,
        plain=model_of.tolist() == list(range(n_models)),
        stations_of=[np.flatnonzero(model_of == model) for model in range(n_models)],
    )


def _quanta(spec: Spec, times: Sequence[float | list[float]]) -> Floats:
    """Return times by model and size of batch in quanta, [M, n + 1]."""
    out = np.zeros((len(times), spec.n + 1))
    for model, given in enumerate(times):
        by_size = given[: spec.n] if isinstance(given, list) else [given] * spec.n
        out[model, 1:] = np.rint(np.array(by_size) / spec.delta_ms)
    return out


def start(system: System, n: npt.ArrayLike) -> State:
    """Return the states in which all `n[r]` requests wait at the entry, before any launch."""
    counts = np.atleast_1d(np.asarray(n, dtype=np.int64))
    k = np.zeros((system.n_stations, len(counts)), dtype=np.int64)
    k[system.start] = counts
    line = np.zeros((system.n_models * system.in_turn, len(counts)), dtype=np.int64)
    last = np.full((int(system.in_turn), len(counts)), system.model_of[system.start])
    return State(k, np.zeros_like(k), np.full((system.n_models, len(counts)), IDLE), line, last)


def by_model(system: System, at_stations: Ints) -> Ints:
    """Return [S, R] summed over the stations of each model: [M, R]; the argument itself where the two are one."""
    if system.plain:
        return at_stations
    out = np.empty((system.n_models, at_stations.shape[1]), dtype=np.int64)
    for model, own in enumerate(system.stations_of):
        at_stations[own].sum(axis=0, out=out[model])
    return out


def launch(system: System, state: State, due: Bools) -> None:
    """Launch the models `due` [M, R], each with all that wait at it; in turn, at most one of each column."""
    rows = np.arange(system.n_models)[:, None]
    waiting = by_model(system, state.k)
    steps = system.steps[rows, waiting]
    if system.in_turn:
        if system.after is not None:
            steps = np.where(state.last == rows, steps, system.after[rows, waiting])
        state.last = np.where(due.any(axis=0), due.argmax(axis=0), state.last)
    np.copyto(state.r, steps, where=due)
    gates = due if system.plain else due[system.model_of]
    moved = np.where(gates, state.k, 0)
    state.b += moved
    state.k -= moved


def launch_due(system: System, state: State, windows: Ints) -> None:
    """Launch every idle model at which at least its window waits; `windows` is [M, 1] or [M, R]."""
    waiting = by_model(system, state.k)
    due = (state.r == IDLE) & (waiting >= windows)
    launch(system, state, _whose_turn(system, state, due) if system.in_turn else due)


def _whose_turn(system: System, state: State, due: Bools) -> Bools:
    """Let the models `due` [M, R] stand in line, and return the first of each column, which leaves it.

    Nothing runs then: a column is looked at when its step has ended.
    """
    rows = np.arange(system.n_models)[:, None]
    length = state.line.max(axis=0)
    joins = due & (state.line == 0)
    own = joins & (state.last == rows)
    others = joins & ~own
    state.line[:] = np.where(own, length + 1, state.line)
    place = length + own.any(axis=0) + np.cumsum(others, axis=0)
    state.line[:] = np.where(others, place, state.line)
    first: Bools = state.line == 1
    state.line -= state.line > 0
    return first


def advance(system: System, state: State) -> Event:
    """Let time pass to the first completion: tau = min r over running models, A = those that end then.

    Every column must have a running model. Finished requests leave `b`; the caller routes them.
    """
    busy = state.r != IDLE
    if system.rates is None:
        tau = state.r.min(axis=0)
        state.r -= tau
    else:
        bits = (1 << np.arange(system.n_models)) @ busy
        rates = system.rates[:, bits]
        tau = (state.r / rates).min(axis=0)
        state.r -= rates * tau
        np.rint(state.r, out=state.r)
    finished = state.r <= 0
    state.r[finished] = IDLE
    done = np.where(finished if system.plain else finished[system.model_of], state.b, 0)
    state.b -= done
    return Event(tau, finished, done, busy)
