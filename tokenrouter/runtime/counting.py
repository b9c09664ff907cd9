"""P, C and the lengths of stays, counted: the plan's own rules run on prompts, every decision noted.

Decisions are noted where the route program makes them, dropped candidates too; borrowed stays are read off the tokens.
Stays and runs that the end of a request cuts short are left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from tokenrouter.plan.structs import Mix, Plan
from tokenrouter.profile.geometric import looks_geometric
from tokenrouter.profile.structs import Move, Runs, Stays, Ways
from tokenrouter.runtime.engine import Completion, Engine
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.row import Row

MOST_RUN = 256  # steps; longer runs are counted as this long
QUANTILES = 32  # of the tokens of others that a request brings when it comes back

Lengths = dict[int, Counter[int]]


class Counts:
    """What the route programs of an engine's subservers decide from now on."""

    def __init__(self, engine: Engine) -> None:
        self.moves: Counter[tuple[int, int | None, bool, int | None]] = Counter()
        self.first: Counter[tuple[int, int | None, bool, int | None]] = Counter()
        self.runs: Lengths = defaultdict(Counter)
        self._running: Counter[int] = Counter()  # by request: steps since it came to its model
        for subserver in engine.subservers:
            router = subserver.router
            router.decide = self._noting(subserver.model, router.decide)  # type: ignore[method-assign,assignment]

    def _noting(
        self, model: int, decide: Callable[[list[Row]], None]
    ) -> Callable[[list[Row]], None]:
        def noting(rows: list[Row]) -> None:
            decide(rows)
            for row in rows:
                decision = row.decision
                assert decision is not None
                move = (model, decision.rule, decision.keep, decision.target)
                self.moves[move] += 1
                if row.sequence.state.position == 0:
                    self.first[move] += 1
                request = row.sequence.request
                self._running[request] += 1
                if decision.target != model:
                    self.runs[model][min(MOST_RUN, self._running.pop(request))] += 1

        return noting


def count(
    engine: Engine, prompts: Sequence[list[int]], sampling: Sampling, name: str
) -> tuple[Ways, list[list[int]]]:
    """Return how requests moved between models, and by model what they had to read on coming back; raises RequestRefused."""
    plan = engine.plan
    counts = Counts(engine)
    start: Counter[int] = Counter()
    requests = []
    for at, prompt in enumerate(prompts):
        request = engine.submit(prompt, _seeded(sampling, at))
        start[_start_rule(plan, engine.book.entries[request].state.owner)] += 1
        requests.append(request)
    engine.run()
    done = [engine.completions.pop(request) for request in requests]
    stays = stay_lengths(done)
    ways = Ways(
        prompts=name,
        requests=len(done),
        prompt_tokens=sum(len(each.prompt) for each in done),
        tokens=sum(len(each.tokens) for each in done),
        ended=sum(each.finish == "stop" for each in done),
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        start=[start[at] for at in range(len(plan.start.rules))],
        moves=_moves(counts.moves),
        first=_moves(counts.first),
        stays=[
            Stays(home=home, lender=lender, lengths=_listed(lengths))
            for (home, lender), lengths in sorted(stays.items())
        ],
        runs=[_runs(model, counts.runs[model]) for model in sorted(counts.runs)],
    )
    return ways, unread(done, len(plan.models))


def _moves(counted: Counter[tuple[int, int | None, bool, int | None]]) -> list[Move]:
    return [
        Move(model=model, rule=rule, keep=keep, to=to, n=n)
        for (model, rule, keep, to), n in sorted(counted.items(), key=str)
    ]


def _seeded(sampling: Sampling, at: int) -> Sampling:
    import msgspec  # noqa: PLC0415

    return msgspec.structs.replace(sampling, seed=at)


def _start_rule(plan: Plan, owner: int) -> int:
    """Return the start rule that a request most likely came by; the last where several lead to its owner."""
    for at, rule in reversed(list(enumerate(plan.start.rules))):
        targets = (
            [share.model for share in rule.go.weights]
            if isinstance(rule.go, Mix)
            else [rule.go.model]
        )
        if owner in targets:
            return at
    raise AssertionError(f"no start rule leads to model {owner}")


def stay_lengths(done: Sequence[Completion]) -> dict[tuple[int, int], Counter[int]]:
    """Return how long the borrowed stays were, by home and lender.

    A token of a stay has no rule. Its stay goes on while the state after it has a home; the last one's owner is the home.
    """
    out: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
    for each in done:
        length = 0
        for token in each.tokens:
            if token.rule is not None or token.finish is not None:
                length = 0
                continue
            length += 1
            if token.state.home is None:
                if token.state.owner != token.model:
                    out[token.state.owner, token.model][length] += 1
                length = 0
    return dict(out)


def unread(done: Sequence[Completion], n_models: int) -> list[list[int]]:
    """Return by model how many tokens of others requests bring when they come back, as quantiles; one token where none did.

    It may be none: the one that was asked may have asked back.
    """
    gaps: list[list[int]] = [[] for _ in range(n_models)]
    for each in done:
        for model, own in enumerate(gaps):
            gap, left = 0, False
            for token in each.tokens:
                if token.model != model:
                    gap += 1
                    continue
                if gap or left:
                    own.append(gap)
                gap, left = 0, token.state.owner != model
    return [quantiles(own) for own in gaps]


def quantiles(values: list[int]) -> list[int]:
    """Return up to so many values that stand for equal shares of all, ascending; 1 where there are none."""
    ordered = sorted(values) or [1]
    n = min(QUANTILES, len(ordered))
    return [ordered[(2 * at + 1) * len(ordered) // (2 * n)] for at in range(n)]


def _listed(lengths: Counter[int]) -> list[int]:
    return [lengths[k] for k in range(1, max(lengths) + 1)]


def _runs(model: int, lengths: Counter[int]) -> Runs:
    listed = _listed(lengths)
    verdict = looks_geometric(listed)
    return Runs(
        model=model,
        lengths=listed,
        chi_square=verdict.chi_square,
        degrees=verdict.degrees,
        tail=verdict.tail,
    )
