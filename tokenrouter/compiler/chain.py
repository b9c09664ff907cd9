"""The ways of a policy's rules with their assumed probabilities, and what follows from them (`profile.flow`)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import floor

from tokenrouter.compiler.assume import (
    START,
    Given,
    holds,
    known,
    passed_over,
    rule_shares,
    with_given,
)
from tokenrouter.compiler.bounds import Room, closed, rooms
from tokenrouter.compiler.ir import Automaton, Borrow, Mix, Rule, Stop, To
from tokenrouter.compiler.positions import mean, reach, stages, visits
from tokenrouter.profile.flow import Flow, Step, written
from tokenrouter.profile.flow import flow as expected
from tokenrouter.profile.priors import ASSUMED_STAY

NOTHING: Given = {}
HALVINGS = 24
MOST_STAY = 4096.0  # tokens; few answers are longer
# The part of its bound that a model is brought down to, round by round: models that press each other settle.
UNDER = tuple(1.0 - 1e-6 * 2.0**turn for turn in range(19))


def shares(auto: Automaton, given: Given = NOTHING) -> list[list[float]]:
    """Return by model the share of its decisions on which each rule fires, its enforced bounds kept."""
    bounds = _Bounds(auto, given)
    return bounds.shares(bounds.room())


@dataclass(eq=False, slots=True)
class _Bounds:
    """What the enforced bounds of a policy leave room for."""

    auto: Automaton
    given: Given
    begins: list[int] = field(init=False)  # of the stages of an answer
    rows: dict[frozenset[str], list[list[list[float]]]] = field(default_factory=dict)  # by stage

    def __post_init__(self) -> None:
        self.begins = stages(self.auto)

    def shares(self, room: Room) -> list[list[float]]:
        """Return the shares of all rules for some room under the bounds."""
        by_stage = self.by_stage(room)
        if len(by_stage) == 1:
            return by_stage[0]
        ways = [_steps(self.auto, rows) for rows in by_stage]
        return mean(self.begins, by_stage, visits(self.begins, ways, _entry(self.auto, self.given)))

    def by_stage(self, room: Room) -> list[list[list[float]]]:
        """Return the shares of all rules in each stage of an answer."""
        auto = self.auto
        by_stage = [[[0.0] * len(state.rules) for state in auto.states] for _ in self.begins]
        for p, reached in rooms(room):
            for total, rows in zip(by_stage, self._where(room, reached), strict=True):
                for row, found in zip(total, rows, strict=True):
                    for at, share in enumerate(found):
                        row[at] += p * share
        return [
            [
                with_given(row, self.given.get(state.model, {}))
                for state, row in zip(auto.states, total, strict=True)
            ]
            for total in by_stage
        ]

    def _where(self, room: Room, reached: frozenset[str]) -> list[list[list[float]]]:
        if reached not in self.rows:
            rules = [
                tuple(closed(rule, room, reached) for rule in state.rules)
                for state in self.auto.states
            ]
            at = [float(begin) for begin in self.begins] if len(self.begins) > 1 else [None]
            self.rows[reached] = [
                [rule_shares(self.auto, row, position) for row in rules] for position in at
            ]
        return self.rows[reached]

    def room(self) -> Room:
        """Return for each bounded model the share of steps at which its bounds have room: the most that keeps them.

        A bound of which a request would write less has room always. A model that is over its bound is given less room until
        it is not, one after the other, since what is refused to one may go to another.
        """
        if not any(rule.source == "enforced" for _, _, rule in self.auto.rules()):
            return {}
        live = {decl.name for decl in self.auto.models}
        room = {c.model: 1.0 for c in self.auto.claims if c.kind == "enforce" and c.model in live}
        for under in UNDER:
            over = [model for model in room if room[model] > 0.0 and self._over(room, model, 1.0)]
            if not over:
                break
            for model in over:
                low, high = 0.0, room[model]
                for _ in range(HALVINGS):
                    middle = (low + high) / 2
                    breaks = self._over({**room, model: middle}, model, under)
                    low, high = (low, middle) if breaks else (middle, high)
                room[model] = low
        return room

    def _over(self, room: Room, model: str, part: float) -> bool:
        """Return whether a request is expected to keep more of a bounded model than a part of a bound."""
        auto = self.auto
        tokens = written(_steps(auto, self.shares(room)), _entry(auto, self.given))
        of_model = tokens[[decl.name for decl in auto.models].index(model)]
        return any(
            of_model > part * claim.bound * (1.0 if claim.measure == "count" else sum(tokens))
            for claim in auto.claims
            if claim.kind == "enforce" and claim.model == model
        )


def start_shares(auto: Automaton, given: Given = NOTHING) -> list[float]:
    """Return the share of the requests on which each start rule fires."""
    return with_given(rule_shares(auto, auto.start), given.get(START, {}))


def steps(auto: Automaton, given: Given = NOTHING) -> list[Step]:
    """Return the ways of all rules with their assumed or given probabilities."""
    return _steps(auto, shares(auto, given))


def _steps(auto: Automaton, found: list[list[float]]) -> list[Step]:
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    out: list[Step] = []
    for at, state in enumerate(auto.states):
        for rule, p in zip(state.rules, found[at], strict=True):
            out += _ways(auto, rule, at, p, place)
    return out


def _ways(auto: Automaton, rule: Rule, at: int, p: float, place: dict[str, int]) -> list[Step]:
    kept = 1.0 if rule.keep else 0.0
    match rule.go:
        case Stop():
            return [Step(at, None, p, kept)]
        case Borrow() as go if not passed_over(auto, go):
            return [Step(at, at, p, kept, place[go.model], _stay(auto, go))]
        case To() as go:
            return [Step(at, place[go.model], p, kept)]
        case Mix() as go:
            return [Step(at, place[name], p * weight, kept) for name, weight in go.weights]
        case _:  # a last rule that is passed over commits and stays
            return [Step(at, at, p, 1.0)]


def _stay(auto: Automaton, go: Borrow) -> float:
    """Return the mean length of a stay: its `until` is asked after each token, and ends it with one probability."""
    length = known(auto, go.most)
    most = max(1.0, floor(ASSUMED_STAY if length is None else min(length, MOST_STAY)))
    ends = 0.0 if go.until is None else holds(auto, go.until)
    return most if ends <= 0.0 else (1.0 - (1.0 - ends) ** most) / ends


def flow(auto: Automaton, given: Given = NOTHING) -> Flow:
    """Return the expected shares, hand-offs and reach of every model."""
    bounds, entry = _Bounds(auto, given), _entry(auto, given)
    room = bounds.room()
    found = expected(_steps(auto, bounds.shares(room)), entry)
    by_stage = bounds.by_stage(room)
    if len(by_stage) == 1:
        return found
    # A mean share says how often a model is asked, not whether it is: what fires at one position only fires for all.
    ways = [_steps(auto, rows) for rows in by_stage]
    return replace(
        found, reached=[reach(bounds.begins, ways, entry, at) for at in range(len(entry))]
    )


def _entry(auto: Automaton, given: Given) -> list[float]:
    """Return the distribution of the first decider."""
    place = {decl.name: at for at, decl in enumerate(auto.models)}
    entry = [0.0] * len(auto.models)
    for rule, p in zip(auto.start, start_shares(auto, given), strict=True):
        parts = rule.go.weights if isinstance(rule.go, Mix) else ((rule.go.model, 1.0),)
        for name, weight in parts:
            entry[place[name]] += p * weight
    return entry
