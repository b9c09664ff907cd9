"""How requests move between the models of a plan: assumed from the plan's own estimates, or counted in a profile.

Counts and assumption join: the assumption weighs as much as one decision of each model (one request for their ends and
starts), so that a way which was never seen stays possible and a model that nobody came to has a law at all. Lengths of stays
that were counted stand alone: a few short stays beside one assumed to last half of a large most would have another mean.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from tokenrouter.plan.structs import Borrow, Const, Mix, ParamRef, Plan, Rule, Stop, To
from tokenrouter.profile.flow import Step
from tokenrouter.profile.priors import ASSUMED_STAY, MEAN_TOKENS, UNTIL_SHARE
from tokenrouter.profile.structs import Move, Ways

MOST_STAY = 4096  # tokens of a borrowed stay; beyond that nobody comes back


class Way(NamedTuple):
    """One way for a decision to end. Those of a model sum to 1."""

    source: int
    target: int | None  # who decides or lends next; None ends the request
    p: float
    kept: float  # tokens of `source` kept, 0 or 1
    borrowed: bool = False  # whether the target lends, and the request comes back


class Traffic(NamedTuple):
    """All that the closed system needs to know of requests."""

    ways: list[Way]
    lengths: dict[tuple[int, int], list[float]]  # by (home, lender): f(1), f(2), ... of a stay
    entry: list[float]  # by model
    mean_output_tokens: float
    first: list[Way] = []  # noqa: RUF012 - of decisions before a request's first token; empty: as `ways`

    def steps(self) -> list[Step]:
        """Return the ways as `flow` takes them: a borrowed stay is one step with its mean length."""
        return [
            Step(way.source, way.target, way.p, way.kept)
            if not way.borrowed or way.target is None
            else Step(
                way.source,
                way.source,
                way.p,
                way.kept,
                way.target,
                self.stay(way.source, way.target),
            )
            for way in self.ways
        ]

    def stay(self, home: int, lender: int) -> float:
        """Return the mean length of a borrowed stay, tokens."""
        return sum(k * f for k, f in enumerate(self.lengths[home, lender], 1))


def assumed(plan: Plan) -> Traffic:
    """Return the traffic that a plan's own estimates describe."""
    ways: list[Way] = []
    lengths: dict[tuple[int, int], list[float]] = {}
    for at, program in enumerate(plan.programs):
        shares = plan.estimates.rules[at] if plan.estimates.rules else _even(program.rules)
        total = sum(shares) or 1.0
        for rule, share in zip(program.rules, shares, strict=True):
            ways += _ways(plan, at, rule, share / total)
            if isinstance(rule.go, Borrow):
                lengths.setdefault((at, rule.go.model), stay_lengths(plan, at, rule.go))
    shares = plan.estimates.start or _even(plan.start.rules)
    return Traffic(ways, lengths, _entry(plan, shares), MEAN_TOKENS)


def counted(plan: Plan, seen: Ways) -> Traffic:
    """Return the traffic that a profile counted, joined with what the plan assumes."""
    prior = assumed(plan)
    ways = _joined(plan, prior.ways, seen.moves)
    lengths = dict(prior.lengths)
    for stays in seen.stays:
        total = sum(stays.lengths)
        if total:
            lengths[stays.home, stays.lender] = [n / total for n in stays.lengths]
    entry = _entry(plan, [float(n) for n in seen.start])
    joined = [
        (seen.requests * a + b) / (seen.requests + 1)
        for a, b in zip(entry, prior.entry, strict=True)
    ]
    stopped = sum(move.n for move in seen.moves if move.to is None)
    ends = max(0, seen.ended - stopped)
    first = _joined(plan, ways, seen.first) if seen.first else []
    return Traffic(ways, lengths, joined, (seen.tokens + MEAN_TOKENS) / (ends + 1), first)


def _joined(plan: Plan, prior: list[Way], moves: list[Move]) -> list[Way]:
    """Return the ways that were counted, beside others that weigh as much as one decision of each model."""
    totals = [1.0] * len(plan.models)
    for move in moves:
        totals[move.model] += move.n
    ways = [way._replace(p=way.p / totals[way.source]) for way in prior]
    return ways + [
        Way(
            move.model, move.to, move.n / totals[move.model], float(move.keep), _borrows(plan, move)
        )
        for move in moves
    ]


def rule_shares(plan: Plan, seen: Ways) -> list[list[float]]:
    """Return by model and rule the share of the decisions on which it fired; what is assumed where nobody decided."""
    out = []
    for at, program in enumerate(plan.programs):
        fired = [0] * len(program.rules)
        for move in seen.moves:
            if move.model == at and move.rule is not None and move.rule < len(fired):
                fired[move.rule] += move.n
        assumed_ = plan.estimates.rules[at] if plan.estimates.rules else _even(program.rules)
        total = sum(fired)
        out.append([round(n / total, 4) for n in fired] if total else list(assumed_))
    return out


def _even(rules: object) -> list[float]:
    """Return the shares of rules that nobody gave any: all alike."""
    n = len(rules) if isinstance(rules, list) else 0
    return [1.0 / n] * n


def _borrows(plan: Plan, move: Move) -> bool:
    if move.rule is None or move.to is None or move.to == move.model:
        return False
    rules = plan.programs[move.model].rules
    return move.rule < len(rules) and isinstance(rules[move.rule].go, Borrow)


def _ways(plan: Plan, at: int, rule: Rule, p: float) -> list[Way]:
    kept = float(rule.keep)
    match rule.go:
        case Stop():
            return [Way(at, None, p, kept)]
        case To(model=target):
            return [Way(at, target, p, kept)]
        case Mix(weights=weights):
            return [Way(at, share.model, p * share.weight, kept) for share in weights]
        case Borrow() as go if _most(plan, at, go) >= 1:
            return [Way(at, go.model, p, kept, borrowed=True)]
        case _:  # a borrow of nothing is passed over, and whatever follows stays here
            return [Way(at, at, p, 1.0)]


def _most(plan: Plan, at: int, go: Borrow) -> float:
    node = plan.programs[at].nodes[go.most]
    if isinstance(node, Const) and not isinstance(node.value, str):
        return float(node.value)
    if isinstance(node, ParamRef):
        return float(plan.params[node.param].value)
    return ASSUMED_STAY


def stay_lengths(plan: Plan, at: int, go: Borrow) -> list[float]:
    """Return f(1), f(2), ... of a borrowed stay: exactly its count, or ended at random before it by `until`."""
    most = _most(plan, at, go)
    steps = MOST_STAY if most == inf else int(min(MOST_STAY, max(1.0, most)))
    if go.until is None:
        return [0.0] * (steps - 1) + [1.0]
    leave = _hazard(steps, max(1.0, UNTIL_SHARE * steps))
    lengths = [leave * (1 - leave) ** k for k in range(steps - 1)]
    return [*lengths, 1.0 - sum(lengths)]


def _hazard(most: int, mean: float) -> float:
    """Return the chance h to leave at each step for which a stay of at most `most` steps has this mean.

    The mean is (1 - (1 - h)^most) / h, which falls from `most` to 1 as h rises.
    """
    low, high = 1e-9, 1.0
    for _ in range(60):
        h = (low + high) / 2
        low, high = (h, high) if (1 - (1 - h) ** most) / h > mean else (low, h)
    return high


def _entry(plan: Plan, shares: list[float]) -> list[float]:
    """Return the distribution of the first decider."""
    entry = [0.0] * len(plan.models)
    total = sum(shares) or 1.0
    for rule, share in zip(plan.start.rules, shares, strict=True):
        if isinstance(rule.go, Mix):
            for part in rule.go.weights:
                entry[part.model] += share / total * part.weight
        else:
            entry[rule.go.model] += share / total
    return entry
