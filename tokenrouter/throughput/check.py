"""What must hold of a specification before it is solved, each with one clear error.

Beyond ranges and shapes: windows are feasible (`sum (B_m - 1) < N`, else every model can wait for ever); every model can be
reached; and requests have one steady state, which they have not where they can end up for ever in one of several
closed sets of stations and never restart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tokenrouter.throughput.spec import BusyRates, Spec, SpecError, Speed

MOST_REQUESTS = 1024
MOST_MODELS = 16
MOST_QUANTA = 10_000_000  # of one step
ROW_TOLERANCE = 1e-6


def check(spec: Spec) -> Spec:
    """Return `spec`; raises SpecError at the first thing that is wrong."""
    _need(spec.n >= 1, f"`n` is {spec.n}; at least 1 request must be active")
    _need(
        spec.n <= MOST_REQUESTS,
        f"`n` is {spec.n}; the solvers take at most {MOST_REQUESTS} requests",
    )
    _positive(spec.delta_ms, "delta_ms")
    _need(len(spec.step_ms) > 0, "`step_ms` is empty; give one entry for each model")
    _need(
        len(spec.step_ms) <= MOST_MODELS,
        f"`step_ms` has {len(spec.step_ms)} models; at most {MOST_MODELS} are taken",
    )
    for model, steps in enumerate(spec.step_ms):
        _check_steps(spec, f"step_ms[{model}]", steps)
    _check_stations(spec)
    _check_matrices(spec)
    _check_ends(spec)
    _check_turns(spec)
    for at, rates in enumerate(spec.busy):
        _check_rates(spec, at, rates)
        for other, before in enumerate(spec.busy[:at]):
            _need(
                set(before.models) != set(rates.models),
                f"`busy[{other}]` and `busy[{at}]` give rates of the same models; give each busy set once",
            )
    if spec.windows is not None:
        check_windows(spec.windows, len(spec.step_ms), spec.n)
    if isinstance(spec.objective, Speed):
        _positive(spec.objective.speed_at_least, "objective.speed_at_least")
    _check_reach(spec)
    return spec


def check_windows(windows: Sequence[int], n_models: int, n: int) -> None:
    """Raise SpecError unless the windows are feasible for n active requests."""
    _need(
        len(windows) == n_models,
        f"`windows` has {len(windows)} entries, but there are {n_models} models",
    )
    for model, window in enumerate(windows):
        _need(window >= 1, f"`windows[{model}]` is {window}; a window is at least 1")
    slack = sum(windows) - len(windows)
    _need(
        slack < n,
        f"`windows` {list(windows)} can stop for ever with {n} active: B - 1 over the models sums to {slack}, "
        f"and must stay below {n}",
    )


def _need(holds: bool, message: str) -> None:
    if not holds:
        raise SpecError(message)


def _positive(value: float, name: str) -> None:
    _need(math.isfinite(value) and value > 0, f"`{name}` is {value:g}; it must be above 0")


def _check_steps(spec: Spec, name: str, steps: float | list[float]) -> None:
    listed = steps if isinstance(steps, list) else [steps]
    if isinstance(steps, list):
        _need(
            len(steps) >= spec.n,
            f"`{name}` has {len(steps)} entries; a batch can hold up to {spec.n}, so give one for each size",
        )
    for at, step in enumerate(listed):
        place = f"{name}[{at}]" if isinstance(steps, list) else name
        _positive(step, place)
        quanta = step / spec.delta_ms
        _need(
            round(min(quanta, 1.0)) == 1,
            f"`{place}` is {step:g} ms, which rounds to no quantum of `delta_ms` = {spec.delta_ms:g}; make `delta_ms` smaller",
        )
        many = f"{quanta:.3g} quanta" if math.isfinite(quanta) else "more quanta than are counted"
        _need(
            quanta <= MOST_QUANTA + 0.5,
            f"`{place}` is {step:g} ms, {many}; make `delta_ms` larger",
        )


def _check_stations(spec: Spec) -> None:
    if spec.model_of is None:
        return
    n_models = len(spec.step_ms)
    for station, model in enumerate(spec.model_of):
        _need(
            0 <= model < n_models,
            f"`model_of[{station}]` is {model}; models go from 0 to {n_models - 1}",
        )
    for model in range(n_models):
        _need(model in spec.model_of, f"model {model} has no station in `model_of`")


def _check_matrices(spec: Spec) -> None:
    if spec.model_of is None:
        size, what = len(spec.step_ms), "models"
    else:
        size, what = len(spec.model_of), "stations"
    for name, matrix in (("p", spec.p), ("c", spec.c)):
        _need(len(matrix) == size, f"`{name}` has {len(matrix)} rows, but there are {size} {what}")
        for at, row in enumerate(matrix):
            _need(
                len(row) == size,
                f"row {at} of `{name}` has {len(row)} entries, but there are {size} {what}",
            )
            for value in row:
                _need(
                    math.isfinite(value) and value >= 0,
                    f"row {at} of `{name}` holds {value:g}; no entry may be negative",
                )
    for at, row in enumerate(spec.p):
        _check_sum(row, f"row {at} of `p`")
    if spec.entry is not None:
        _need(
            len(spec.entry) == size,
            f"`entry` has {len(spec.entry)} entries, but there are {size} {what}",
        )
        for value in spec.entry:
            _need(
                math.isfinite(value) and value >= 0,
                f"`entry` holds {value:g}; no entry may be negative",
            )
        _check_sum(spec.entry, "`entry`")


def _check_sum(row: Sequence[float], name: str) -> None:
    total = math.fsum(row)
    _need(abs(total - 1) <= ROW_TOLERANCE, f"{name} sums to {total:.12g}; it must sum to 1")


def _check_ends(spec: Spec) -> None:
    mean = spec.mean_output_tokens
    if mean is None:
        return
    _positive(mean, "mean_output_tokens")
    most = max(map(max, spec.c))
    _need(
        mean >= max(1.0, most),
        f"`mean_output_tokens` is {mean:g}; it cannot be less than the {max(1.0, most):g} tokens of one step",
    )


def _check_turns(spec: Spec) -> None:
    _need(
        not (spec.in_turn and spec.busy),
        "`busy` gives rates of models that are busy at once, and with `in_turn` none ever are; leave it out",
    )
    if spec.after_ms is None:
        return
    _need(spec.in_turn, "`after_ms` is of models that step in turn; set `in_turn`, or leave it out")
    _need(
        len(spec.after_ms) == len(spec.step_ms),
        f"`after_ms` has {len(spec.after_ms)} entries, but there are {len(spec.step_ms)} models",
    )
    for model, steps in enumerate(spec.after_ms):
        _check_steps(spec, f"after_ms[{model}]", steps)


def _check_rates(spec: Spec, at: int, busy: BusyRates) -> None:
    n_models = len(spec.step_ms)
    _need(
        len(busy.models) == len(busy.rates),
        f"`busy[{at}]` has {len(busy.models)} models and {len(busy.rates)} rates; give one rate for each model",
    )
    _need(
        len(busy.models) > 0 and len(set(busy.models)) == len(busy.models),
        f"`busy[{at}].models` must name each busy model once",
    )
    for model in busy.models:
        _need(
            0 <= model < n_models,
            f"`busy[{at}].models` holds {model}; models go from 0 to {n_models - 1}",
        )
    for rate in busy.rates:
        _positive(rate, f"busy[{at}].rates")


def restarts(spec: Spec) -> npt.NDArray[np.float64]:
    """Return P with ends folded in: a request whose step was its last starts anew at the entry distribution.

    A step on the way s -> j commits C[s, j] tokens and each token is the last with probability 1 / mean_output_tokens.
    """
    given = np.array(spec.p, dtype=np.float64)
    p = np.asarray(given / given.sum(axis=1, keepdims=True), dtype=np.float64)
    if spec.mean_output_tokens is None:
        return p
    ends = p * np.array(spec.c) / spec.mean_output_tokens
    folded = p - ends + np.outer(ends.sum(axis=1), entry(spec))
    return np.asarray(folded / folded.sum(axis=1, keepdims=True), dtype=np.float64)


def entry(spec: Spec) -> npt.NDArray[np.float64]:
    """Return the distribution over stations in which a request starts."""
    if spec.entry is None:
        first = np.zeros(len(spec.p))
        first[0] = 1.0
        return first
    given = np.array(spec.entry, dtype=np.float64)
    return np.asarray(given / given.sum(), dtype=np.float64)


def closed_sets(p: npt.NDArray[np.float64]) -> list[list[int]]:
    """Return the sets of stations that are never left once entered, each strongly connected."""
    to = reached(p)
    # Everything that can be reached from a station of a closed set leads back to it.
    closed = [s for s in range(len(p)) if to[np.flatnonzero(to[s]), s].all()]
    return [np.flatnonzero(to[s]).tolist() for s in closed if s == int(np.flatnonzero(to[s])[0])]


def reached(p: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return whether j can be reached from s, [s, j], in any number of steps; every station reaches itself."""
    to = (p > 0) | np.eye(len(p), dtype=np.bool_)
    for _ in range(len(p).bit_length()):  # each turn doubles the steps
        to = np.asarray(to.astype(np.float32) @ to.astype(np.float32) > 0)
    return to


def _check_reach(spec: Spec) -> None:
    p = restarts(spec)
    model_of = spec.model_of or list(range(len(spec.step_ms)))
    come = set(np.flatnonzero(reached(p)[entry(spec) > 0].any(axis=0)).tolist())
    for model in range(len(spec.step_ms)):
        _need(
            any(model_of[s] == model for s in come),
            f"model {model} cannot be reached from the entry; give a way there in `p`, or leave it out",
        )
    closed = [part for part in closed_sets(p) if part[0] in come]
    if len(closed) > 1:
        names = " or ".join(
            "{" + ", ".join(str(m) for m in sorted({model_of[s] for s in part})) + "}"
            for part in closed
        )
        raise SpecError(
            f"requests end up for ever in the models {names}, so there is no one steady state; "
            f"give `mean_output_tokens`, after which requests end and others start"
        )
    gain = (np.array(spec.p) * np.array(spec.c)).sum(axis=1)
    _need(
        bool((gain[closed[0]] > 0).any()),
        "no step commits a token in the long run; give a positive entry in `c` on a way that is taken for ever",
    )
