"""What the reference reports of a request: its tokens, who wrote each and why, and how near each choice was.

Floating point makes «equal» a careful word: where a choice was nearer than rounding can tell, another execution may
rightly differ. `Slack` says how near; distances that rounding cannot touch (of counters, of random draws to constants)
are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Literal


@dataclass(frozen=True, slots=True)
class Slack:
    """Distances between what was chosen and what nearly was; infinite where nothing was near."""

    gap: float = inf  # raw logits: between the chosen token and its rivals in rank
    threshold: float = (
        inf  # between the two sides of a comparison of computed signals, in their unit
    )
    boundary: float = inf  # probability: between a sample's draw and the edges of its token

    def least(self) -> float:
        """Return the smallest of the distances."""
        return min(self.gap, self.threshold, self.boundary)

    def joined(self, other: Slack) -> Slack:
        """Return the smaller distance of each kind."""
        return Slack(
            min(self.gap, other.gap),
            min(self.threshold, other.threshold),
            min(self.boundary, other.boundary),
        )


@dataclass(frozen=True, slots=True)
class After:
    """Where a request stands once a token is committed and the next decision has been handed on."""

    owner: int
    home: int | None  # that a borrowed stay returns to
    remaining: int  # tokens left of it
    counts: list[int]  # by model
    switches: int
    since_switch: int
    vars: list[float]
    windows: list[list[list[float]]]  # by model, by Window node: past values, oldest first


@dataclass(frozen=True, slots=True)
class Step:
    """One committed token."""

    token: int
    model: int
    rule: int | None  # of the model's program; None inside a borrowed stay
    logprob: float  # of the token under the raw distribution
    slack: Slack  # over all steps at this position, those whose candidate was dropped included
    after: After | None  # None where the request ended


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole request."""

    steps: list[Step]
    finish: Literal["stop", "length"]
    switches: int  # hand-offs
    forwards: list[int]  # by model: steps taken, dropped candidates included

    @property
    def tokens(self) -> list[int]:
        """Return the output."""
        return [step.token for step in self.steps]

    @property
    def models(self) -> list[int]:
        """Return who wrote each token."""
        return [step.model for step in self.steps]

    @property
    def rules(self) -> list[int | None]:
        """Return the rule that kept each token."""
        return [step.rule for step in self.steps]
