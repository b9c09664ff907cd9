"""What is solved, as JSON: the specification of `trc windows --spec`, and the solution that comes out.

Units: milliseconds at this border and tokens per second; quanta of `delta_ms` inside (`system`).

    TokenRouterError
    └── SpecError       a specification that cannot be read, holds a number that cannot be, or has no steady state
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from tokenrouter.errors import TokenRouterError

Solver = Literal["exact", "sampled"]


class SpecError(TokenRouterError):
    """A specification is wrong; the message is one line."""


class Speed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Throughput, subject to a bound on the mean speed of one request, T / N."""

    speed_at_least: float  # tokens/s of one request


class BusyRates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fast steps progress while exactly these models are busy, v_m(busy set)."""

    models: list[int]  # the busy set
    rates: list[float]  # by entry of `models`; 1 is the speed at which `step_ms` was measured


Objective = Literal["throughput", "latency"] | Speed


class Spec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One closed system. `p`, `c` and `entry` are by station, `step_ms` and `windows` by model."""

    n: int  # active requests
    step_ms: list[
        float | list[float]
    ]  # by model: of any batch, or by size of the batch from 1 to n
    p: list[list[float]]  # P[s][j]; rows sum to 1
    c: list[list[float]]  # C[s][j], tokens
    delta_ms: float = 0.1  # all times are rounded to multiples of it
    windows: list[int] | None = None  # B, by model; null searches for the best
    solver: Literal["auto", "exact", "sampled"] = "auto"
    objective: Objective = "throughput"  # of the search
    entry: list[float] | None = None  # where new requests start; null is the first station
    mean_output_tokens: float | None = None  # null: requests never end
    model_of: list[int] | None = None  # by station, the model it shares; null: one station a model
    busy: list[BusyRates] = []  # busy sets that are not listed progress at rate 1
    in_turn: bool = False  # one batch runs at a time; models wait in line for their turns
    after_ms: list[float | list[float]] | None = (
        None  # in turn, by model, of a step that follows another model's; null: as `step_ms`
    )


class PerModel(msgspec.Struct, frozen=True, kw_only=True):
    """What one model does in the long run."""

    utilisation: float  # share of the time a batch is running
    mean_batch: float  # requests, over batches
    admission_delay_ms: float  # mean over requests, from arrival at the gate to the launch
    steps_per_s: float  # requests that finish a step, X_m
    step_ms: float  # mean over requests of the step they were in


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """The long run under one vector of windows."""

    tokens_per_s: float  # T(B)
    stderr: float  # of `tokens_per_s`; 0 where exact
    solver: Solver  # which one was used
    states: int | None  # of the chain; null where sampled
    windows: list[int]  # B, by model
    per_model: list[PerModel]

    @property
    def worst_delay_ms(self) -> float:
        """The longest mean admission delay of any model."""
        return max(model.admission_delay_ms for model in self.per_model)


def read(path: str | Path) -> Spec:
    """Return the specification in a file, checked; raises SpecError."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise SpecError(f"{path}: no such file") from None
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    return decode(data, str(path))


def decode(data: bytes, name: str = "spec") -> Spec:
    """Return the checked specification in JSON text; raises SpecError, whose message begins with `name`."""
    from tokenrouter.throughput.check import check  # noqa: PLC0415 - it reads these structs

    try:
        spec = msgspec.json.decode(data, type=Spec)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$")
        place = f"`{where.rstrip('`').lstrip('.')}`: " if where else ""
        raise SpecError(f"{name}: {place}{what[:1].lower()}{what[1:]}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)
        raise SpecError(f"{name}: not JSON: {text.removeprefix('JSON is malformed: ')}") from None
    try:
        return check(spec)
    except SpecError as error:
        raise SpecError(f"{name}: {error}") from None
