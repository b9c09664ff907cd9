"""Searching windows, filling the table, the gap to the best policy, and what is kept on disk."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.throughput.specs import pair, random_spec
from tokenrouter.throughput import cache, exact, gap, search, table
from tokenrouter.throughput.branches import Routing
from tokenrouter.throughput.candidates import count, every, feasible, grid, neighbours
from tokenrouter.throughput.sampled import warm_up_events
from tokenrouter.throughput.spec import SpecError, Speed
from tokenrouter.throughput.system import build


@given(n=st.integers(1, 12), n_models=st.integers(1, 3))
def test_every_feasible_vector_is_listed_once(n, n_models):
    by_hand = [
        b for b in itertools.product(range(1, n + 1), repeat=n_models) if sum(b) - n_models < n
    ]

    assert sorted(every(n, n_models)) == sorted(by_hand)
    assert count(n, n_models) == len(by_hand)


@given(n=st.integers(1, 300), n_models=st.integers(1, 6))
def test_grids_and_neighbours_hold_feasible_vectors_only(n, n_models):
    coarse = grid(n, n_models)

    assert (1,) * n_models in coarse
    assert len(coarse) <= 500
    assert all(feasible(b, n) for b in coarse)
    near = neighbours(coarse[-1], 1.4, n)
    assert coarse[-1] in near
    assert all(feasible(b, n) for b in near)


def test_the_search_finds_the_published_windows():
    found = search.search(build(pair(3)), [1, 2, 3])

    assert [s.windows for s in found] == [[1, 1], [1, 2], [1, 2]]
    assert {s.solver for s in found} == {"exact"}


@pytest.mark.parametrize(
    "spec", [pair(6), pair(8, delta_ms=0.3), random_spec(2)], ids=["6", "8", "random"]
)
def test_a_sampled_search_loses_next_to_nothing_against_all_windows_solved_exactly(spec):
    system = build(spec)
    routing = Routing(system)
    speeds = [
        exact.solve(system, b, routing=routing).tokens_per_s for b in every(spec.n, system.n_models)
    ]

    found = search.search(system, [spec.n], solver="sampled")[0]

    assert found.solver == "sampled"
    truly = exact.solve(system, found.windows, routing=routing).tokens_per_s
    assert truly > 0.996 * max(speeds)


@pytest.mark.parametrize(
    "large", [[8.0 + b for b in range(20)], [10.0] * 20], ids=["grows", "flat"]
)
def test_many_requests_in_turn_are_solved_exactly_and_lose_next_to_nothing(large):
    spec = pair(
        20,
        step_ms=[[3.0 + 0.1 * b for b in range(20)], large],
        after_ms=[[5.0 + 0.1 * b for b in range(20)], large],
        in_turn=True,
    )
    system = build(spec)
    routing = Routing(system)
    speeds = [exact.solve(system, b, routing=routing).tokens_per_s for b in every(20, 2)]

    found = search.search(system, [20])[0]

    assert count(20, 2) > search.MOST_EXACT
    assert found.solver == "exact"
    assert found.tokens_per_s >= max(speeds) * 0.998


def test_a_large_chain_in_turn_is_sampled(monkeypatch):
    spec = pair(12, in_turn=True, step_ms=[4.0, 9.0])
    monkeypatch.setattr(search, "CLIMB_STATES", 10)

    assert search.search(build(spec), [12])[0].solver == "sampled"


@pytest.mark.parametrize("solver", ["auto", "exact"])
@pytest.mark.parametrize("most", [60, 0], ids=["every vector", "climbed"])
def test_windows_under_which_nothing_settles_do_not_keep_the_others_from_being_solved(
    monkeypatch, solver, most
):
    # Under 2, 1 one request may wait at the first model for ever for another that never comes back, or none may.
    system = build(pair(2, step_ms=[5.0, 5.0], p=[[0.5, 0.5], [0.0, 1.0]], c=[[1.0, 1.0]] * 2))
    with pytest.raises(SpecError, match="settle into one of 2 rhythms"):
        exact.solve(system, [2, 1])
    monkeypatch.setattr(search, "MOST_EXACT", most)

    found = search.search(system, [2], solver=solver)[0]

    assert (found.windows, found.solver) == ([1, 1], "exact")


@pytest.mark.parametrize("most", [60, 0], ids=["every vector", "climbed"])
def test_where_nothing_settles_under_any_windows_that_is_told(monkeypatch, most):
    # Two stations of one model swap places for ever, and its requests are in one of them or in both.
    p = [[0.0, 0.5, 0.5], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    system = build(pair(2, step_ms=[5.0], model_of=[0, 0, 0], p=p, c=[[1.0] * 3] * 3))
    monkeypatch.setattr(search, "MOST_EXACT", most)

    with pytest.raises(SpecError, match="rhythms that never mix"):
        search.search(system, [2])


def test_too_many_windows_for_the_exact_solver_are_told():
    with pytest.raises(SpecError, match="45760 vectors of windows are too many"):
        search.search(build(random_spec(2)), [64], solver="exact")


def test_among_equals_the_smallest_sum_wins():
    assert search.pick([100.0, 99.95, 99.8], [[1, 9], [2, 2], [1, 1]]) == 1
    assert search.pick([-10.0, -10.005, -10.2], [[1, 9], [2, 2], [1, 1]]) == 1


def test_latency_shortens_the_longest_pause_and_throughput_need_not():
    system = build(pair(4))

    fast = search.search(system, [4])[0]
    prompt = search.search(system, [4], "latency")[0]
    sampled = search.search(system, [4], "latency", "sampled")[0]

    delays = [exact.solve(system, b).worst_delay_ms for b in every(4, 2)]
    assert prompt.worst_delay_ms == pytest.approx(min(delays))
    assert prompt.worst_delay_ms < fast.worst_delay_ms
    assert exact.solve(system, sampled.windows).worst_delay_ms < 1.02 * min(delays)


def test_a_bound_on_speed_is_met_up_to_some_number_of_requests():
    spec = pair(6, objective=Speed(speed_at_least=51.0), delta_ms=0.3)

    solved = table.solve_table(spec, cached=False)

    speeds = [t / n for n, t in enumerate(solved.tokens_per_s, 1)]
    at = solved.enough_speed_up_to
    assert 0 < at < 6
    assert speeds[at - 1] >= 51.0
    assert all(speed < 51.0 for speed in speeds[at:])


@given(st.data())
def test_every_entry_of_a_filled_table_is_feasible_for_its_own_n(data):
    counts = table.solved_counts(data.draw(st.integers(1, 200)))
    n_models = data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    rows = []
    for n in counts:
        windows = np.ones(n_models, dtype=int)
        for _ in range(int(rng.integers(0, n))):
            windows[rng.integers(0, n_models)] += 1
        rows.append(windows.tolist())

    filled = table.fill_windows(counts, rows)

    for n in range(1, counts[-1] + 1):
        assert feasible([by_n[n - 1] for by_n in filled], n)
    for n, row in zip(counts, rows, strict=True):
        assert [by_n[n - 1] for by_n in filled] == row


def test_a_table_covers_every_number_of_requests():
    solved = table.solve_table(pair(11), cached=False)

    assert [len(by_n) for by_n in solved.windows] == [11, 11]
    assert len(solved.tokens_per_s) == 11
    assert solved.tokens_per_s == sorted(solved.tokens_per_s)
    assert [by_n[2] for by_n in solved.windows] == [1, 2]
    assert solved.enough_speed_up_to == 11
    assert solved.gap_at == 4
    assert solved.optimality_gap == pytest.approx(0.0029, abs=1e-4)


def best_by_trying(system, n):
    """Return the best T over all stationary policies, each solved by hand; for tiny systems only."""
    decisions = gap._decisions(system, n, 1000)
    choices = [np.flatnonzero(decisions.state == s) for s in range(decisions.q.shape[1])]
    best = 0.0
    for chosen in itertools.product(*choices):
        rows = np.array(chosen)
        q = decisions.q[rows].toarray()
        # The long-run mix from the start, also where a policy has several closed sets.
        lazy = np.linalg.matrix_power((q + np.eye(len(q))) / 2, 4096)[0]
        best = max(best, lazy @ decisions.commits[rows] / (lazy @ decisions.tau[rows]))
    return best / system.quantum_s


def test_policy_iteration_finds_what_trying_all_policies_finds():
    system = build(pair(2))

    assert gap.best_throughput(system, 2) == pytest.approx(best_by_trying(system, 2), rel=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_no_windows_beat_the_best_policy(seed):
    spec = random_spec(seed)
    system = build(spec)

    best = gap.best_throughput(system, spec.n, 50_000)

    for windows in every(spec.n, system.n_models):
        assert exact.solve(system, windows).tokens_per_s <= best * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(300, 308))
def test_no_windows_in_turn_beat_the_best_policy(seed):
    spec = random_spec(seed, in_turn=True)
    system = build(spec)
    best = gap.best_throughput(system, spec.n)

    speeds = [exact.solve(system, b).tokens_per_s for b in every(spec.n, system.n_models)]

    assert max(speeds) <= best * (1 + 1e-6)


def test_the_best_policy_in_turn_is_that_of_one_request_where_it_decides_nothing():
    """One request leaves no choice, so any windows are the best policy; two side by side would be faster than in turn."""
    one = build(pair(1, in_turn=True))
    no_gain = {"step_ms": [[6.0, 12.0], [28.0, 56.0]]}  # by batching
    two, side_by_side = build(pair(2, in_turn=True, **no_gain)), build(pair(2, **no_gain))

    alone = exact.solve(one, [1, 1]).tokens_per_s
    assert gap.best_throughput(one, 1) == pytest.approx(alone)
    assert gap.best_throughput(two, 2) == pytest.approx(alone, rel=0.01)
    assert gap.best_throughput(side_by_side, 2) > 1.2 * alone


def test_the_gap_is_unknown_where_the_decisions_are_too_many(monkeypatch):
    system = build(pair(4))
    solved = exact.solve(system, [1, 3])
    assert gap.optimality_gap(system, 4, solved) == pytest.approx(0.00293, abs=1e-5)

    monkeypatch.setattr(gap, "MOST_STATES", 700)

    assert gap.optimality_gap(system, 4, solved) is None


def test_a_solved_table_is_kept_and_found_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path))
    first = table.solve_table(pair(3))
    (kept,) = (tmp_path / "throughput").iterdir()
    monkeypatch.setattr(table, "_solve", lambda spec: pytest.fail("solved again"))

    assert table.solve_table(pair(3)) == first
    assert table.solve_table(pair(3, windows=[1, 3])) == first  # its own windows do not matter

    monkeypatch.undo()
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path))
    kept.write_bytes(b'{"windows": [[1')
    assert table.solve_table(pair(3)) == first
    table.solve_table(pair(2))
    assert len(list((tmp_path / "throughput").iterdir())) == 2


def test_every_number_that_matters_is_in_the_key():
    keys = {
        cache.key("table", spec)
        for spec in (
            pair(3),
            pair(4),
            pair(3, delta_ms=0.2),
            pair(3, step_ms=[6.0, 28.0]),
            pair(3, mean_output_tokens=9.0),
            pair(3, objective="latency"),
        )
    }
    assert len(keys) == 6


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TOKENROUTER_CACHE", str(blocked))

    assert table.solve_table(pair(2)).windows == [[1, 1], [1, 2]]


def test_the_cache_lies_where_the_user_says(monkeypatch, tmp_path):
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "own"))
    assert cache.directory() == tmp_path / "own" / "throughput"
    monkeypatch.delenv("TOKENROUTER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.directory() == tmp_path / "xdg" / "tokenrouter" / "throughput"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.directory() == tmp_path / ".cache" / "tokenrouter" / "throughput"


def test_slowly_mixing_systems_are_warmed_up_longer():
    quick = build(pair(4, mean_output_tokens=200.0))
    by_query = {"p": [[1, 0], [0, 1]], "c": [[1, 0], [0, 1]], "entry": [0.5, 0.5]}
    slow = build(pair(4, mean_output_tokens=200.0, **by_query))

    assert warm_up_events(quick) < 300
    assert warm_up_events(slow) > 1500
