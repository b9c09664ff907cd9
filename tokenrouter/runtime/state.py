"""Transitions of RouteState: what becomes of a request's routing state by one decision at one model.

Pure functions. A decision is what a rule, or the count of a borrowed stay, made of a candidate: keep it or not, and who
decides the next position. How tokens end a request is decided here too, since it is the same wherever it sits.
"""

from __future__ import annotations

from math import inf
from typing import Literal, NamedTuple

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.messages import RouteState, Sampling

MOST = 2**31 - 1  # longest borrowed stay; beyond any context

End = Literal["stop", "length"] | None


class Decision(NamedTuple):
    """What happens to the candidate, and to the request after it."""

    keep: bool
    target: int | None  # who decides next; None ends the request (`stop`)
    rule: int | None = None  # that fired; None inside a borrowed stay
    borrowed: int = 0  # tokens that the target writes before the request turns back here
    until: int | None = None  # index into the target's untils
    vars: list[float] | None = None  # after `set`; None where none is set


class Limits(NamedTuple):
    """What ends a request beside its rules."""

    eos: frozenset[int]
    context: int  # most tokens of prompt and output, over all models

    def end(self, token: int, n_output: int, n_tokens: int, sampling: Sampling) -> End:
        """Return how a request ends by committing `token`, lengths counted with it; None where it goes on."""
        if token in self.eos and not sampling.ignore_eos:
            return "stop"
        if token in sampling.stop_ids:
            return "stop"
        if n_output >= sampling.max_tokens or n_tokens >= self.context:
            return "length"
        return None

    def cached(self, n_prompt: int, sampling: Sampling) -> int:
        """Return the most tokens that a model reads of a request: all but the last, and the prompt in any case."""
        return max(n_prompt, min(n_prompt + sampling.max_tokens, self.context) - 1)


def limits(plan: Plan) -> Limits:
    """Return what ends every request of a plan."""
    return Limits(frozenset(plan.tokenizer.eos_ids), plan.context)


def initial(plan: Plan, owner: int) -> RouteState:
    """Return the state before the first position."""
    return RouteState(
        owner=owner, counts=[0] * len(plan.models), vars=[float(var.value) for var in plan.vars]
    )


def whole(most: float) -> int:
    """Return the tokens of a borrowed stay; 0 passes its rule over, which NaN does too."""
    if not most >= 1:
        return 0
    return MOST if most == inf or most > MOST else int(most)


def tried(state: RouteState, model: int) -> int:
    """Return the models that had their turn at this position once `model` has stepped."""
    return state.tried | 1 << model


def count_down(state: RouteState, *, reached: bool) -> Decision:
    """Return the decision of one borrowed step; `reached`: the stay's `until` holds."""
    assert state.home is not None and state.remaining >= 1, state
    over = reached or state.remaining <= 1
    return Decision(keep=True, target=state.home if over else state.owner)


def advance(
    state: RouteState, decision: Decision, windows: list[list[list[float]]], *, ended: bool
) -> RouteState:
    """Return the state after a decision of its owner; one that ended stays where it is."""
    model = state.owner
    target = model if ended or decision.target is None else decision.target
    counts = state.counts
    if decision.keep:
        counts = counts.copy()
        counts[model] += 1
    leaves = target != model
    home, remaining, until = state.home, state.remaining - 1, state.until
    if leaves and decision.borrowed:
        home, remaining, until = model, decision.borrowed, decision.until
    elif leaves or ended or home is None:
        home, remaining, until = None, 0, None
    return RouteState(
        owner=target,
        position=state.position + decision.keep,
        counts=counts,
        switches=state.switches + leaves,
        since_switch=0 if leaves else state.since_switch + 1,
        tried=0 if decision.keep else tried(state, model),
        home=home,
        remaining=remaining,
        until=until,
        vars=state.vars if decision.vars is None else decision.vars,
        windows=windows,
    )
