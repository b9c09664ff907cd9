"""What differs between two plans, as data: what `trc diff --json` prints and `plan.diff` tells as text.

Values are text as a policy's author would write them. `None` stands for what one of the two plans does not have.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Kind = Literal["added", "removed", "moved", "guard", "action", "settings"]  # `settings`: same text
Fires = Literal["same", "more", "fewer", "other", "unknown"]


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One property of one thing that has another value; `field` is '' where the thing itself came or went."""

    kind: str  # `model`, `param`, `claim`, ...
    name: str  # of the thing; '' where there is only one
    field: str
    old: str | None
    new: str | None


class RuleAt(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in one of the two plans."""

    rule: int  # from 0, as traces count
    line: int | None  # in the policy's source
    text: str
    source: Literal["policy", "enforced", "fallback"] = "policy"  # who wrote it


class RuleChange(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one rule."""

    change: Kind
    old: RuleAt | None
    new: RuleAt | None
    fires: Fires  # on how many steps, as against before; `other`: on some more and on some fewer


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """Steps on which the two plans act differently."""

    before: str  # action of the old plan
    after: str  # of the new one
    where: list[str]  # any of these holds


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What differs in the rules of one model, or of the start."""

    at: str  # the model; `start`
    rules: list[RuleChange]
    shifts: list[Shift]
    compared: bool = True  # whether all steps could be compared; False: there are too many cases


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction before and after."""

    what: str
    old: str | None
    new: str | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """All that differs between two plans."""

    same_meaning: bool
    same_tuning: bool
    program_hash: tuple[str, str]
    tuning_hash: tuple[str, str]
    meaning: list[Fact]
    places: list[Place]
    tuning: list[Fact]
    probabilities: tuple[str, str]  # where those behind the predictions come from
    expected: list[Expected]
