"""Which rules fired in a trace. A trace holds kept tokens only; rules that drop are found by who came to write next.

Between two tokens the request went from the model that was to decide to the one that wrote. Where that takes dropped
candidates, the fewest that explain it are counted, and where several rules could have dropped one, it is `unsure`. A
borrowed stay whose length depends on the request is taken to last as long as its lender goes on writing borrowed tokens.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf

from tokenrouter.plan.structs import Borrow, Const, Mix, Plan, Rule, Stay, Stop, To


@dataclass(eq=False, slots=True)
class Fired:
    """Counts over a trace."""

    rules: Counter[tuple[int, int]] = field(default_factory=Counter)  # by model and rule
    unsure: Counter[tuple[int, tuple[int, ...]]] = field(
        default_factory=Counter
    )  # by model and rules
    borrowed: Counter[int] = field(default_factory=Counter)  # tokens, by lender

    def decisions(self, model: int) -> int:
        """Return how often a model's rules were asked."""
        sure = sum(n for (at, _), n in self.rules.items() if at == model)
        return sure + sum(n for (at, _), n in self.unsure.items() if at == model)


@dataclass(frozen=True, slots=True)
class _Loan:
    """A borrowed stay that goes on."""

    home: int
    lender: int
    left: float


def fired(plan: Plan, requests: Iterable[list[tuple[int, int | None]]]) -> Fired:
    """Return which rules fired; a request is its tokens' models and rules (None: borrowed)."""
    out = Fired()
    for tokens in requests:
        _request(plan, tokens, out)
    return out


def _request(plan: Plan, tokens: list[tuple[int, int | None]], out: Fired) -> None:
    owners = frozenset(to for rule in plan.start.rules for to in _targets(rule.go))
    loan: _Loan | None = None
    for model, index in tokens:
        if loan is not None and (index is not None or model != loan.lender):
            owners, loan = frozenset({loan.home}), None  # `until` ended it
        if index is None:
            out.borrowed[model] += 1
            loan = _begun(plan, owners, model, out) if loan is None else loan
            loan = _Loan(loan.home, loan.lender, loan.left - 1)
            if loan.left < 1:
                owners, loan = frozenset({loan.home}), None
            continue
        if model not in owners:
            _dropped(plan, owners, model, False, out)
        out.rules[model, index] += 1
        rule = plan.programs[model].rules[index]
        if isinstance(rule.go, Borrow) and rule.keep:
            loan = _Loan(model, rule.go.model, _most(plan, model, rule.go))
        owners = frozenset(_targets(rule.go)) if rule.keep else frozenset()
        owners = owners or frozenset({model})


def _begun(plan: Plan, owners: frozenset[int], lender: int, out: Fired) -> _Loan:
    """Return the stay that a dropped candidate began."""
    home, rules = _dropped(plan, owners, lender, True, out) or (min(owners), ())
    lengths = [
        _most(plan, home, go)
        for index in rules
        if isinstance(go := plan.programs[home].rules[index].go, Borrow)
    ]
    return _Loan(home, lender, max(lengths, default=inf))


def _dropped(
    plan: Plan, owners: frozenset[int], model: int, lends: bool, out: Fired
) -> tuple[int, tuple[int, ...]] | None:
    """Count the fewest drops that bring a request to a model; return the last of them, None where no drops do."""
    came: dict[int, tuple[int, tuple[int, ...]] | None] = dict.fromkeys(sorted(owners))
    queue = deque(came)
    while queue:
        here = queue.popleft()
        last = tuple(
            i for i, rule in _drops(plan, here, model) if isinstance(rule.go, Borrow) == lends
        )
        if last:
            _count(out, here, last)
            step = came[here]
            while step is not None:
                _count(out, *step)
                step = came[step[0]]
            return here, last
        for to in range(len(plan.models)):
            ways = tuple(i for i, rule in _drops(plan, here, to) if isinstance(rule.go, To))
            if ways and to not in came:
                came[to] = (here, ways)
                queue.append(to)
    return None


def _drops(plan: Plan, model: int, to: int) -> Iterator[tuple[int, Rule]]:
    """Yield the rules of a model that drop its candidate for another one."""
    for index, rule in enumerate(plan.programs[model].rules):
        if not rule.keep and isinstance(rule.go, (To, Borrow)) and rule.go.model == to:
            yield index, rule


def _count(out: Fired, model: int, rules: tuple[int, ...]) -> None:
    if len(rules) == 1:
        out.rules[model, rules[0]] += 1
    else:
        out.unsure[model, rules] += 1


def _most(plan: Plan, model: int, go: Borrow) -> float:
    node = plan.programs[model].nodes[go.most]
    return float(node.value) if isinstance(node, Const) else inf


def _targets(go: Stay | Stop | To | Borrow | Mix) -> tuple[int, ...]:
    """Return who decides next by an action that keeps the candidate; nobody new, where it stays or ends."""
    match go:
        case To():
            return (go.model,)
        case Mix():
            return tuple(share.model for share in go.weights)
        case _:
            return ()
