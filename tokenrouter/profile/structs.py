"""The profile: what `trc profile` measured of one plan on one machine, and `trc compile --profile` reads.

The published JSON Schema and the tables of docs/throughput-model.md are made from these structs. Times are milliseconds.

INVARIANT: unknown fields are an error. Lists «by model» are in the order of the plan's models.
"""

from __future__ import annotations

import msgspec

PROFILE_VERSION = 2


class Machine(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where it was measured."""

    processor: str  # as the system calls it
    cores: int  # that the process may use
    threads: int  # of each model's process
    device: str  # `cpu`, or the GPU's name
    system: str  # operating system and architecture
    python: str  # version
    torch: str  # version
    load: float  # mean number of running processes in the minute before
    in_turn: bool = False  # whether one model steps at a time


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A time with its spread."""

    mean: float  # ms, over all but steps that something else interrupted
    median: float  # ms
    low: float  # lower quartile, ms
    high: float  # upper quartile, ms
    n: int  # steps that were timed


class StepTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One point of L(b)."""

    batch: int  # requests in the batch
    context: int  # tokens that each of them has read
    idle: Figure  # while no other model runs; in turn: of a step that follows one's own
    busy: Figure | None = None  # while every other model runs; None where it was not measured
    # In turn: of a step that follows another model's, from the end of that one; None where it was not measured.
    after: Figure | None = None


class ReadTime(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long a prompt is read, its first candidate included."""

    tokens: int  # of the prompt
    time: Figure  # while no other model runs


class Slowed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one other busy model does to a model's steps."""

    by: int  # the other model
    batch: int  # requests in its batch
    context: int | None = None  # tokens that each of them has read; None: the shortest timed
    step: Figure  # of the slowed model


class ModelTimes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model's steps."""

    name: str  # as in the plan
    fingerprint: str  # as in the plan
    dtype: str  # that it ran in
    unread: tuple[int, ...] = (
        1,
    )  # tokens of others with which a request came back, read in the same step; as quantiles
    steps: list[StepTime]  # by context, then batch, ascending
    reads: list[ReadTime] = []  # by length, ascending
    slowed: list[
        Slowed
    ] = []  # one entry for each other model; empty where models do not run at once


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How often one model's decisions went one way."""

    model: int  # that decided
    rule: int | None  # of its program; None where even the last rule was passed over
    keep: bool  # whether the candidate was committed
    to: int | None  # who decides or lends next; None ended the request
    n: int  # decisions


class Stays(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths of the borrowed stays of one model with another; stays that a request's end cut short are left out."""

    home: int  # the model that borrows
    lender: int  # the model that is borrowed from
    lengths: list[int]  # entry k - 1: stays of k tokens


class Runs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lengths of the runs of steps that one model takes before a request leaves it, and whether they look geometric."""

    model: int  # that wrote
    lengths: list[int]  # entry k - 1: runs of k steps; the last entry holds all longer ones
    chi_square: float | None = None  # of the lengths against the geometric law of equal mean
    degrees: int = 0  # of freedom; 0 where there are too few runs to say
    tail: float | None = None  # probability of a chi-square as large where the law holds


class Ways(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How requests moved, counted over the prompts."""

    prompts: str  # `shipped`, or the file's name
    requests: int  # that were run
    prompt_tokens: int = 0  # of all their prompts
    tokens: int  # that they wrote
    ended: int  # requests that ended by themselves, not by `max_tokens`
    max_tokens: int  # that a request could write
    temperature: float  # of the sampling
    start: list[
        int
    ]  # by start rule: requests, each counted for the last rule that leads to its first model
    moves: list[Move]  # counts of each way
    first: list[
        Move
    ] = []  # of them, those before a request's first token; empty where they were not counted apart
    stays: list[Stays] = []  # borrowed stays
    runs: list[Runs] = []  # by model that decides


class Profile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that was measured."""

    profile_version: int  # of this format
    producer: str  # program and version
    created: str  # RFC 3339, UTC
    program_hash: str  # of the plan that was measured
    max_active: int  # of that plan
    quick: bool = False  # whether the short grid was measured
    seconds: float  # that it took
    machine: Machine  # where
    models: list[ModelTimes]  # by model
    ways: Ways  # how requests moved
