"""How close windows come to the best launch policy of any kind (**beyond** the source).

Thresholds are a family of policies, not all of them. Here every state after a completion is a decision: which of the idle
models with waiting requests launch, each with all that wait; at least one where nothing runs, and where models step in
turn exactly one. That is a semi-Markov decision
process, solved by policy iteration:

    evaluate   h(x) + g tau(x, a) = commits(x, a) + (1 - eps) sum_y q(x, a, y) h(y),   h(start) = 0
    improve    a(x) = argmax over a of the right side less g tau(x, a)

g is the throughput T of the policy. The tiny eps sends a state back to the start now and then; that keeps every policy's
equations regular, also those under which states fall apart into several closed sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array, hstack, vstack
from scipy.sparse.linalg import splu

from tokenrouter.throughput.branches import Registry, Routing, TooManyStates, branch
from tokenrouter.throughput.spec import Solution
from tokenrouter.throughput.system import (
    IDLE,
    Floats,
    State,
    System,
    advance,
    by_model,
    launch,
    start,
)

MOST_MODELS = 3  # choices in a state go with 2^M
MOST_STATES = 6_000
MOST_REQUESTS = 4
MOST_ROUNDS = 50
EPS = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """Every state and every choice in it. Rows are (state, choice) pairs, those of one state together."""

    state: npt.NDArray[np.intp]  # [A] ascending
    tau: Floats  # [A]
    commits: Floats  # [A]
    q: csr_array  # [A, R]


def best_throughput(system: System, n: int, most_states: int | None = None) -> float:
    """Return T of the best launch policy, tokens/s; raises TooManyStates."""
    decisions = _decisions(system, n, most_states or MOST_STATES)
    first = np.flatnonzero(np.diff(decisions.state, prepend=-1))
    chosen = first + np.diff(np.append(first, len(decisions.state))) - 1  # launch all that can
    g, h = _evaluate(decisions, chosen)
    for _ in range(MOST_ROUNDS):
        worth = decisions.commits - g * decisions.tau + (1 - EPS) * (decisions.q @ h)
        most = np.maximum.reduceat(worth, first)
        # A choice is left only for a better one, or rounding errors make the policy go round for ever.
        better = most > worth[chosen] + 1e-9 * (1 + np.abs(most))
        if not better.any():
            break
        leaders = np.flatnonzero(worth >= most[decisions.state])
        _, at = np.unique(decisions.state[leaders], return_index=True)
        chosen = np.where(better, leaders[at], chosen)
        g, h = _evaluate(decisions, chosen)
    return float(g) / system.quantum_s


def optimality_gap(system: System, n: int, under: Solution) -> float | None:
    """Return the share of the best policy's T that the windows of `under` lose; None where the chain is too large."""
    if system.n_models > MOST_MODELS:
        return None
    try:
        best = best_throughput(system, n)
    except TooManyStates:
        return None
    return max(0.0, 1 - under.tokens_per_s / best)


def most_requests(system: System, most_states: int = MOST_STATES) -> int | None:
    """Return the largest number of requests, up to 4, whose decisions can all be listed; None where none can."""
    fits = None
    if system.n_models > MOST_MODELS:
        return None
    for n in range(1, min(MOST_REQUESTS, system.n) + 1):
        try:
            _decisions(system, n, most_states)
        except TooManyStates:
            break
        fits = n
    return fits


def _evaluate(decisions: Decisions, chosen: npt.NDArray[np.intp]) -> tuple[float, Floats]:
    """Return g in tokens by quantum and h of a policy; the start is state 0."""
    size = len(chosen)
    tau = csr_array(decisions.tau[chosen][:, None])
    h_part = eye_array(size) - (1 - EPS) * decisions.q[chosen]
    # Unknowns: h of every state, then g. The last row says h(start) = 0.
    pin = csr_array(([1.0], ([0], [0])), shape=(1, size + 1))
    whole = vstack([hstack([h_part, tau]), pin]).tocsc()
    found = splu(whole).solve(np.append(decisions.commits[chosen], 0.0))
    return float(found[-1]), found[:-1]


def _decisions(system: System, n: int, most_states: int) -> Decisions:
    """Return all decisions that can be met from the start, breadth first."""
    routing, registry = Routing(system), Registry(most_states)
    frontier = start(system, n)
    registry.number(frontier)
    state, tau, commits, sources, targets, weights = [], [], [], [], [], []
    expanded = listed = 0
    while expanded < len(registry):
        owner, after = _choices(system, frontier)
        event = advance(system, after)
        state.append(owner + expanded)
        tau.append(event.tau)
        commits.append(system.gain @ event.done)
        ways = branch(routing, after, event.done, most_states)
        number, fresh = registry.number(ways.state)
        sources.append(ways.source + listed)
        targets.append(number)
        weights.append(ways.p)
        expanded += frontier.k.shape[1]
        listed += len(owner)
        frontier = ways.state.take(fresh)
    entries = (np.concatenate(weights), (np.concatenate(sources), np.concatenate(targets)))
    return Decisions(
        np.concatenate(state),
        np.concatenate(tau),
        np.concatenate(commits),
        csr_array(entries, shape=(listed, expanded)),
    )


def _choices(system: System, frontier: State) -> tuple[npt.NDArray[np.intp], State]:
    """Return every allowed choice in every column: its column, and the state right after it.

    The last choice of a column launches every model that can be launched, or the last of them where they step in turn.
    """
    can = (frontier.r == IDLE) & (by_model(system, frontier.k) > 0)
    columns, masks = [], []
    for bits in range(2**system.n_models):
        if system.in_turn and bits.bit_count() > 1:
            continue
        mask = np.array([bool(bits >> m & 1) for m in range(system.n_models)])[:, None]
        runs = ((frontier.r != IDLE) | mask).any(axis=0)
        at = np.flatnonzero(runs & (can | ~mask).all(axis=0))
        columns.append(at)
        masks.append(np.repeat(mask, len(at), axis=1))
    owner = np.concatenate(columns)
    order = np.argsort(owner, kind="stable")
    owner, due = owner[order], np.concatenate(masks, axis=1)[:, order]
    after = frontier.take(owner)
    launch(system, after, due)
    return owner, after
