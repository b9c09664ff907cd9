"""The exact solver: every reachable state, and the stationary distribution over them.

    pi = pi Q,   sum pi = 1                       Q the transition matrix between events
    T(B) = E[commits] / E[tau]                    commits of an event: sum over A(s) of b_s sum_j P[s, j] C[s, j]
    utilisation_m = E[tau; m busy] / E[tau]
    X_m = E[b_m; m in A] / E[tau]                 requests that finish a step at m, by time
    W_m = E[tau k_m] / E[tau] / X_m               mean admission delay, by Little's law at the gate

Source: arXiv 2610.12242, appendix D. States are looked at after every launch that is due.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array, eye_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu

from tokenrouter.throughput.branches import Registry, Routing, branch
from tokenrouter.throughput.measures import Totals, joined, solution
from tokenrouter.throughput.spec import Solution, SpecError
from tokenrouter.throughput.system import Floats, System, advance, launch_due, start

MOST_STATES = 100_000
NEVER = 1e-16  # a probability that is lost beside 1: what hangs together by it alone makes a singular system


class Rhythms(SpecError):  # noqa: N818 - reads as what it says
    """Under these windows there is no one steady state; others may have one."""


def solve(
    system: System,
    windows: Sequence[int],
    *,
    n: int | None = None,
    most_states: int = MOST_STATES,
    routing: Routing | None = None,
) -> Solution:
    """Return the long run under `windows`; raises TooManyStates, and Rhythms where there is no one steady state.

    `n` is the number of active requests where it is not the system's; `routing` may be shared by calls on one system.
    """
    q, visits = enumerate_chain(
        system, windows, n or system.n, most_states, routing or Routing(system)
    )
    pi = stationary(q)
    return solution(system, windows, visits.weighted(pi), states=len(pi))


def enumerate_chain(
    system: System, windows: Sequence[int], n: int, most_states: int, routing: Routing
) -> tuple[csr_array, Totals]:
    """Return Q on the states that are reached from the start, breadth first, and what one visit of each adds."""
    gates = np.array(windows, dtype=np.int64)[:, None]
    registry = Registry(most_states)
    frontier = start(system, n)
    launch_due(system, frontier, gates)
    registry.number(frontier)
    rows, columns, weights, visits = [], [], [], []
    expanded = 0
    while expanded < len(registry):
        size = frontier.k.shape[1]
        event = advance(system, frontier)
        visit = Totals.zero(system, size)
        visit.add(system, frontier, event)
        visits.append(visit)
        after = branch(routing, frontier, event.done, most_states)
        launch_due(system, after.state, gates)
        number, fresh = registry.number(after.state)
        rows.append(after.source + expanded)
        columns.append(number)
        weights.append(after.p)
        expanded += size
        frontier = after.state.take(fresh)
    entries = (np.concatenate(weights), (np.concatenate(rows), np.concatenate(columns)))
    return csr_array(entries, shape=(expanded, expanded)), joined(visits)


def stationary(q: csr_array) -> Floats:
    """Return pi with pi = pi Q; raises Rhythms where Q has several closed sets of states.

    One state of the closed set keeps the weight 1 and leaves a regular system for the others, which is then scaled.
    """
    q = csr_array(q, copy=True)
    q.data[q.data < NEVER] = 0.0
    q.eliminate_zeros()
    parts, label = connected_components(q, directed=True, connection="strong")
    coo = q.tocoo()
    crossing = label[coo.row] != label[coo.col]
    closed = np.setdiff1d(np.arange(parts), label[coo.row[crossing]])
    if len(closed) > 1:
        raise Rhythms(
            f"the requests settle into one of {len(closed)} rhythms that never mix, so there is no one steady state; "
            f"give `mean_output_tokens`, after which requests end and others start"
        )
    members = np.flatnonzero(label == closed[0])
    inside = q[members][:, members].T.tocsc()
    weight = np.ones(len(members))
    if len(members) > 1:
        rest = (eye_array(len(members) - 1) - inside[1:, 1:]).tocsc()
        weight[1:] = splu(rest).solve(inside[1:, [0]].toarray().ravel())
    pi = np.zeros(q.shape[0])
    pi[members] = weight / weight.sum()
    return pi
