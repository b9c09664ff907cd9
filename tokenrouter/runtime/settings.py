"""How a plan is run on this machine, and what a subserver's process is told before its first message."""

from __future__ import annotations

from typing import Literal

import msgspec

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.logs import Format, Level

WindowMode = Literal["fixed", "adaptive", "off"]
GraphMode = Literal["auto", "on", "off"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Choices of a user or a machine; none of them changes what the plan means."""

    base: str = "."  # where relative `Model.use` paths begin
    dtype: str | None = None  # instead of the plan's
    deterministic: bool = False  # equal bits whatever else is in the batch
    threads: int | None = None  # torch threads of one subserver; torch's own choice where None
    max_batch_tokens: int = 512
    device: str = "cpu"  # or `cuda`, `cuda:1`: where models are run
    graphs: GraphMode = "auto"  # whether short steps are captured; auto: where models run on GPUs
    # How long a batch may keep those that write waiting for prompts; None: as long as it takes, as in an `Engine`.
    max_stall_ms: float | None = None
    allow_python: bool = False  # whether a plan's Python heads may run
    windows: WindowMode = "fixed"  # off: every window is 1; adaptive: begins with the plan's table
    log_format: Format = "text"
    log_level: Level = "warning"


class Boot(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a subserver's process needs beside its model and epoch."""

    plan: Plan
    settings: Settings
    parent: int  # process id of the front end
    key: str = ""  # that every frame between the processes begins with, in hex
