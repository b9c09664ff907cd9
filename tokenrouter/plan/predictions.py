"""Structs of what a plan predicts, and of the closed system behind it. Import them from `tokenrouter.plan.structs`.

A station is a (model, phase) pair: a borrowed stay of n steps is n stations of the lender. A plain model has one.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class BusySet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast steps progress while exactly these models are busy; 1 where no entry names the set."""

    models: list[int]  # the busy ones
    rates: list[float]  # by entry of `models`; 1 is the speed at which `step_ms` holds


class System(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The closed system that the windows were solved for; docs/throughput-model.md has the symbols."""

    step_ms: list[list[float]]  # by model, then size of batch - 1, up to `max_active` or 1024
    p: list[
        list[float]
    ]  # by station: share of its steps after which a request goes to each station
    c: list[list[float]]  # by station: tokens committed on that way, in expectation
    first_p: list[
        list[float]
    ] = []  # by model: as `p`, before a request's first token; empty: as always
    first_c: list[list[float]] = []  # by model: as `c`, likewise
    model_of: list[int]  # by station: its model
    entry: list[float]  # by station: where a request starts
    mean_output_tokens: float | None = None  # None: requests never end
    busy: list[BusySet] = []  # models that slow each other
    in_turn: bool = False  # one batch runs at a time; models wait in line for their turns
    after_ms: list[
        list[float]
    ] = []  # in turn: `step_ms` of steps that follow another model's; empty: the same
    delta_ms: float  # the quantum of time


class ModelLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one model is predicted to do in the long run."""

    utilisation: float  # share of the time a batch is running
    mean_batch: float  # requests
    admission_delay_ms: float  # mean time that a request waits at the gate


class Load(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The prediction for one number of active requests, under the windows of the table."""

    n: int  # active requests
    tokens_per_s: float  # of all together
    by_model: list[ModelLoad]  # in the order of `Plan.models`


class Visit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is predicted of one model."""

    share: float  # of the committed tokens
    handoffs_per_token: float  # hand-offs to the model for each committed token
    reached: float  # probability that a request comes here at all


class Estimates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Predictions, from measured or assumed probabilities: always `expected`, never a promise."""

    source: Literal["assumed", "profile"]  # of the probabilities
    by_model: list[Visit]  # shares sum to 1
    cost_per_token: float  # in the unit of `Model.cost`
    tokens_per_s: list[float] = []  # by N - 1; empty where no windows were solved
    rules: list[
        list[float]
    ] = []  # by model, by rule: share of the model's decisions on which it fires
    start: list[float] = []  # by start rule: share of the requests on which it fires
    loads: list[Load] = []  # at the N that were solved, ascending; between them on straight lines
