"""What the running system shows of P, C and L, when that counts as drift, and what becomes of it."""

import asyncio
import logging
import math
import os
import random
import subprocess
import sys
import time
from itertools import pairwise

import msgspec
import pytest

from tests.factories import prompts as real_prompts
from tests.runtime import tiny
from tests.runtime.toy import borrowing, coin, greedy, prompts, toys
from tokenrouter.plan.structs import System
from tokenrouter.runtime import adapt
from tokenrouter.runtime.adapt import Adapter
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.gate import infeasible_count
from tokenrouter.runtime.messages import Move, RouteState, Sampling, StepTime, Tally
from tokenrouter.runtime.meter import Meter, station
from tokenrouter.runtime.online import SPAN, Online, drift, problem
from tokenrouter.runtime.resolve import solve, solve_here
from tokenrouter.runtime.settings import Settings
from tokenrouter.throughput.check import check
from tokenrouter.throughput.table import Table


def tally(model, *, n=1000, there=0.3, times=None, after=None, epoch=1, ended=10):
    """What a subserver of `coin` would count after n steps, each of which leaves with a probability."""
    leaving = round(n * there)
    ways = [(model, n - leaving), (1 - model, leaving)]
    return Tally(
        model=model,
        epoch=epoch,
        steps=n,
        n_active=4,
        window=1,
        waiting=0,
        launches={},
        batch_sizes={},
        delays=[],
        delay_sum_ms=0.0,
        entered=ended if model == 0 else 0,
        ended=ended,
        ended_tokens=ended * 50,
        moves=[
            Move(home=-1, left=0, target=to, target_home=-1, target_left=0, n=count, kept=count)
            for to, count in ways
            if count
        ],
        times=[
            StepTime(size=size, n=n, median_ms=ms)
            for size, ms in sorted((times or {1: 2.0 + model, 4: 5.0 + model}).items())
        ]
        + [StepTime(size=s, after=True, n=n, median_ms=ms) for s, ms in (after or {}).items()],
    )


def estimate(plan, *tallies):
    online = Online(plan)
    for each in tallies:
        online.take(each)
    return online.look()


def test_the_numbers_come_out_as_they_were_counted():
    plan = coin(max_active=8)
    found = problem(plan, estimate(plan, tally(0, there=0.25), tally(1, there=0.5)))

    spec = check(found.spec)
    assert spec.p == [[0.75, 0.25], [0.5, 0.5]]
    assert spec.c == [[1.0, 1.0], [1.0, 1.0]]
    assert spec.entry == [1.0, 0.0]
    assert spec.mean_output_tokens == 50
    assert found.models == [0, 1]
    # On a line between 1 and 4, and on the same line beyond.
    assert spec.step_ms[0] == pytest.approx([2, 3, 4, 5, 6, 7, 8, 9])


def test_dropped_candidates_commit_nothing():
    plan = coin(max_active=4)
    small = tally(0, there=0.25)
    moves = [
        msgspec.structs.replace(move, kept=0 if move.target == 1 else move.n // 3)
        for move in small.moves
    ]

    spec = problem(plan, estimate(plan, msgspec.structs.replace(small, moves=moves), tally(1))).spec

    assert spec.c == [[pytest.approx(1 / 3), 0.0], [1.0, 1.0]]


def test_the_plans_curve_is_scaled_by_what_was_measured():
    plan = coin(max_active=4)
    system = System(
        step_ms=[[10.0, 11.0, 13.0, 20.0]] * 2,
        p=[[0.5, 0.5]] * 2,
        c=[[1.0, 1.0]] * 2,
        model_of=[0, 1],
        entry=[1.0, 0.0],
        delta_ms=0.1,
    )
    windows = msgspec.structs.replace(plan.windows, system=system)
    plan = msgspec.structs.replace(plan, windows=windows)
    seen = estimate(plan, tally(0, times={2: 22.0}), tally(1, times={1: 5.0, 3: 13.0}))

    steps = problem(plan, seen).spec.step_ms

    assert steps[0] == pytest.approx([20, 22, 26, 40])
    assert steps[1] == pytest.approx([5, 11 * 0.75, 13, 20])


def solved_for(plan, step_ms, after_ms=()):
    """The plan with windows that were solved for such times, in turn where there are two."""
    system = System(
        step_ms=[step_ms] * 2,
        p=[[0.5, 0.5]] * 2,
        c=[[1.0, 1.0]] * 2,
        model_of=[0, 1],
        entry=[1.0, 0.0],
        delta_ms=0.1,
        in_turn=bool(after_ms),
        after_ms=[after_ms] * 2 if after_ms else [],
    )
    windows = msgspec.structs.replace(plan.windows, system=system, source="profile")
    return msgspec.structs.replace(plan, windows=windows)


def test_in_turn_steps_after_another_models_have_times_of_their_own():
    plan = coin(max_active=4)
    seen = estimate(plan, tally(0, after={1: 3.0, 4: 9.0}), tally(1, after={2: 7.0}))

    spec = check(problem(plan, seen, in_turn=True).spec)
    beside = problem(plan, seen).spec

    assert spec.in_turn
    assert spec.step_ms[0] == pytest.approx([2, 3, 4, 5])
    assert spec.after_ms[0] == pytest.approx([3, 5, 7, 9])
    assert spec.after_ms[1] == pytest.approx([7, 7, 7, 7])
    assert not beside.in_turn and beside.after_ms is None


def test_the_quantum_is_small_against_the_shortest_step_of_either_kind():
    plan = coin(max_active=2)
    seen = estimate(plan, tally(0, after={1: 0.6}), tally(1))

    assert problem(plan, seen, in_turn=True).spec.delta_ms == pytest.approx(0.01)


def test_each_of_the_plans_curves_is_scaled_by_its_own_kind():
    plan = solved_for(coin(max_active=4), [10.0, 11.0, 13.0, 20.0], [12.0, 14.0, 16.0, 30.0])
    seen = estimate(
        plan, tally(0, times={2: 22.0}, after={4: 15.0}), tally(1, times={1: 5.0, 3: 13.0})
    )

    spec = problem(plan, seen, in_turn=True).spec

    assert spec.step_ms[0] == pytest.approx([20, 22, 26, 40])
    assert spec.after_ms[0] == pytest.approx([6, 7, 8, 15])
    # None was seen after the other's: they are as much faster as the rest.
    assert spec.step_ms[1] == pytest.approx([5, 11 * 0.75, 13, 20])
    assert spec.after_ms[1] == pytest.approx([6, 14 * 0.75, 16, 30])


def test_a_model_that_only_ever_follows_the_other_scales_its_other_curve_too():
    plan = solved_for(coin(max_active=2), [10.0, 11.0], [12.0, 14.0])
    first = msgspec.structs.replace(
        tally(0, after={2: 28.0}), times=[StepTime(size=2, after=True, n=1000, median_ms=28.0)]
    )

    spec = problem(plan, estimate(plan, first, tally(1)), in_turn=True).spec

    assert spec.after_ms[0] == pytest.approx([24, 28])
    assert spec.step_ms[0] == pytest.approx([20, 22])


def test_a_plan_for_models_side_by_side_gives_both_kinds_of_steps_its_one_curve():
    plan = solved_for(coin(max_active=2), [10.0, 20.0])

    spec = problem(
        plan, estimate(plan, tally(0, times={1: 5.0}, after={1: 8.0}), tally(1)), in_turn=True
    ).spec

    assert spec.step_ms[0] == pytest.approx([5, 10])
    assert spec.after_ms[0] == pytest.approx([8, 16])


def test_a_drift_of_steps_after_another_models_is_one():
    plan = coin()
    then = estimate(plan, tally(0, after={1: 3.0}), tally(1))
    now = estimate(plan, tally(0, after={1: 6.0}), tally(1))

    assert drift(then, now).step == pytest.approx(math.log(2))
    assert not drift(then, then).matters


def test_requests_enter_where_they_were_seen_to_enter():
    plan = coin(max_active=4)
    first, second = tally(0, ended=10), msgspec.structs.replace(tally(1, ended=30), entered=30)

    assert problem(plan, estimate(plan, first, second)).spec.entry == [0.25, 0.75]


def test_a_size_of_batch_that_hardly_ran_of_late_has_no_time():
    plan = coin(max_active=4)
    online = Online(plan)

    def look(steps, n):
        for model in range(2):
            seen = tally(model, n=steps, after={1: 7.0})
            times = [msgspec.structs.replace(time, n=n) for time in seen.times]
            online.take(msgspec.structs.replace(seen, times=times))
        return online.look()

    for at in range(SPAN + 1):  # until differences from these counts are taken
        look(1000 + at, 1000)

    rarely, again = look(5000, 1004), look(9000, 1005)
    assert rarely.times == rarely.after == {}
    assert again.times == {(0, 1): 2.0, (0, 4): 5.0, (1, 1): 3.0, (1, 4): 6.0}
    assert again.after == {(0, 1): 7.0, (1, 1): 7.0}


def test_a_model_without_a_time_has_no_table():
    plan = coin(max_active=4)
    untimed = msgspec.structs.replace(tally(1), times=[])

    assert problem(plan, estimate(plan, tally(0), untimed)) is None


def test_step_times_never_fall_with_the_batch():
    plan = coin(max_active=4)
    falling = {1: 6.0, 2: 5.0, 4: 7.0}

    spec = problem(plan, estimate(plan, tally(0, times=falling), tally(1))).spec

    assert spec.step_ms[0] == [6.0, 6.0, 6.0, 7.0]


def test_where_nobody_was_seen_to_leave_a_model_it_is_none_yet():
    plan = coin(max_active=4)

    found = problem(plan, estimate(plan, tally(0, there=0.25)))

    assert found.models == [0]
    assert found.spec.p == [[1.0]]


def test_requests_that_enter_where_none_was_seen_to_leave_have_no_table_yet():
    plan = coin(max_active=4)
    ways = [Move(home=0, left=1, target=0, target_home=-1, target_left=0, n=300, kept=300)]
    lender = msgspec.structs.replace(tally(1), moves=ways, entered=3)

    assert problem(plan, estimate(plan, tally(0), lender)) is None
    assert problem(plan, estimate(plan, tally(0), msgspec.structs.replace(lender, entered=0)))


def test_the_objective_is_the_plans():
    plan = coin(max_active=4)
    windows = msgspec.structs.replace(plan.windows, objective="latency")
    plan = msgspec.structs.replace(plan, windows=windows)

    assert problem(plan, estimate(plan, tally(0), tally(1))).spec.objective == "latency"


def test_too_little_is_not_believed():
    plan = coin()

    assert estimate(plan, tally(0, n=100), tally(1, n=100)) is None
    assert estimate(plan, tally(0, n=300), tally(1, n=300)) is not None


def test_a_model_that_is_not_visited_keeps_a_window_of_one():
    plan = coin(max_active=4)
    found = problem(plan, estimate(plan, tally(0, there=0.0)))

    assert found.models == [0]
    assert found.table([[1, 2, 2, 3]], 2) == [[1, 2, 2, 3], [1, 1, 1, 1]]


def test_what_is_long_past_is_forgotten():
    plan = coin()
    online = Online(plan)
    for turn in range(1, 21):
        there = 0.1 if turn <= 10 else 0.6
        old, new = min(turn, 10) * 100, max(0, turn - 10) * 100
        leaving = old * 0.1 + new * 0.6
        for model in range(2):
            online.take(tally(model, n=turn * 100, there=leaving / (turn * 100)))
        seen = online.look()
    ways = seen.steps

    left = ways[(0, -1, 0), (1, -1, 0)][0]
    assert left / (left + ways[(0, -1, 0), (0, -1, 0)][0]) == pytest.approx(there, abs=0.01)


def test_an_estimate_is_of_the_latest_looks_all_of_them():
    plan = coin()
    online = Online(plan)
    for turn in range(1, 3 * SPAN):
        for model in range(2):
            online.take(tally(model, n=turn * 500))
        found = online.look()

    assert found.n_steps == SPAN * 2 * 500


def test_the_length_of_answers_long_past_is_forgotten_too():
    plan = coin()
    online = Online(plan)
    for turn in range(1, 21):
        old, new = min(turn, 10), max(0, turn - 10)
        for model in range(2):
            seen = tally(model, n=turn * 500, ended=old + new)
            online.take(msgspec.structs.replace(seen, ended_tokens=old * 90 + new * 20))
        found = online.look()

    assert problem(plan, found).spec.mean_output_tokens == 20


def test_a_restarted_subserver_counts_from_nothing_and_stays_right():
    plan = coin()
    online = Online(plan)
    for model in range(2):
        online.take(tally(model, n=5000))
    for _ in range(SPAN + 1):  # until differences from these counts are taken
        online.look()
    online.take(tally(0, n=700, epoch=2))
    online.take(tally(1, n=5600))

    seen = online.look()

    assert all(n > 0 for n, _ in seen.steps.values())
    assert sum(n for (source, _), (n, _) in seen.steps.items() if source[0] == 0) == 700


@pytest.mark.parametrize(
    ("there", "factor", "matters"),
    [(0.3, 1.0, False), (0.32, 1.1, False), (0.45, 1.0, True), (0.3, 1.4, True), (0.3, 0.6, True)],
)
def test_drift_is_told_from_noise(there, factor, matters):
    plan = coin()
    then = estimate(plan, tally(0), tally(1))
    times = {1: 2.0 * factor, 4: 5.0 * factor}
    now = estimate(plan, tally(0, there=there, times=times), tally(1))

    assert drift(then, now).matters == matters


@pytest.mark.parametrize("n", [220, 600])
def test_counts_of_one_law_are_no_drift(n):
    rng = random.Random(1)
    plan = coin()

    def drawn():
        leaving = [sum(rng.random() < 0.3 for _ in range(n)) / n for _ in range(2)]
        return estimate(plan, *(tally(m, n=n, there=leaving[m]) for m in range(2)))

    assert not any(drift(a, b).matters for a, b in pairwise(drawn() for _ in range(40)))


def test_a_drift_where_hardly_anybody_comes_is_none():
    plan = coin()
    then = estimate(plan, tally(0, n=4000), tally(1, n=40, there=0.1))
    now = estimate(plan, tally(0, n=4000), tally(1, n=40, there=0.9))

    assert 0 < drift(then, now).p < 0.01


def test_steps_where_there_were_none_are_a_drift():
    plan = coin()
    then, now = estimate(plan, tally(0)), estimate(plan, tally(0), tally(1))

    assert drift(then, now).matters
    assert not drift(then, then).matters


def test_an_outlier_does_not_move_a_step_time():
    meter = Meter(0, 1)
    for at in range(25):
        meter.timed(2, 900.0 if at % 5 == 0 else 4.0)

    (time,) = meter.tally(0.0, n_active=1, window=1, waiting=0).times

    assert time == StepTime(size=2, n=25, median_ms=4.0)


def test_steps_after_another_models_are_told_apart_and_counted_from_its_end():
    meter = Meter(0, 1)
    for at in range(30):
        meter.passed_ms = 0.5 if at % 3 == 0 else None
        meter.timed(2, 7.0 if at % 3 == 0 else 4.0)

    times = meter.tally(0.0, n_active=2, window=1, waiting=0).times

    assert times == [
        StepTime(size=2, n=20, median_ms=4.0),
        StepTime(size=2, after=True, n=10, median_ms=7.5),
    ]


def test_a_step_time_follows_a_lasting_change():
    meter = Meter(0, 1)
    for at in range(120):
        meter.timed(2, 4.0 if at < 100 else 9.0)

    (time,) = meter.tally(0.0, n_active=1, window=1, waiting=0).times

    assert time.median_ms == 9.0


def test_a_step_that_dropped_its_candidate_counts_as_a_step_and_keeps_none():
    meter = Meter(0, 1)
    here, there = (RouteState(owner=owner, counts=[0, 0]) for owner in (0, 1))
    meter.moved(here, there, kept=False)
    meter.moved(here, there, kept=True)
    meter.moved(here, here, kept=False)

    moves = meter.tally(0.0, n_active=1, window=1, waiting=0).moves

    assert {move.target: (move.n, move.kept) for move in moves} == {1: (2, 1), 0: (1, 0)}


def test_a_borrowed_stay_keeps_its_length():
    state = RouteState(owner=1, counts=[0, 0], home=0, remaining=3)
    open_ended = msgspec.structs.replace(state, until=0)
    long = msgspec.structs.replace(state, remaining=99)

    assert station(RouteState(owner=1, counts=[0, 0])) == (-1, 0)
    assert station(state) == (0, 3)
    assert station(open_ended) == station(long) == (0, -1)


def test_stays_of_a_real_run_become_phases():
    plan = borrowing(most=3, keep=True, max_active=8)
    engine = Engine(plan, models=toys(plan))
    engine.generate(prompts(40), greedy(30, ignore_eos=True))
    online = Online(plan)
    for subserver in engine.subservers:
        online.take(subserver.meter.tally(0.0, n_active=1, window=1, waiting=0))
    found = problem(plan, online.look())

    spec = check(found.spec)
    assert spec.model_of == [0, 1, 1, 1]
    # Stations in order of steps left: one step leads home, each other to the one before.
    assert spec.p[1] == [1.0, 0.0, 0.0, 0.0]
    assert spec.p[2] == [0.0, 1.0, 0.0, 0.0]
    assert spec.p[3] == [0.0, 0.0, 1.0, 0.0]
    assert spec.p[0][3] == pytest.approx(1 - spec.p[0][0])


# --- Solving again


def adapted(plan, *rounds):
    """The tables that were put in force, and the adapter after some looks."""
    tables = []
    adapter = Adapter(plan, "adaptive", tables.append)
    for tallies in rounds:
        for each in tallies:
            adapter.take(each)
        adapter.look_here()
    return tables, adapter.status


def steady(n, factor=1.0, there=0.35):
    """A fast model and one that gains from larger batches, as of the design's check table."""
    fast = {1: 6.0, 4: 6.0}
    slow = {1: 27.9 * factor, 4: 27.9 * factor}
    return tally(0, n=n, there=there, times=fast), tally(1, n=n, there=1.0, times=slow)


def test_a_table_is_solved_once_while_nothing_drifts():
    tables, status = adapted(coin(max_active=3), steady(1000), steady(2000), steady(3000))

    # The check table of the design page: B_1 = 2 at N = 2 and N = 3.
    assert tables == [[[1, 1, 1], [1, 2, 2]]]
    assert (status.swaps, status.source) == (1, "live")


def test_a_drift_of_step_times_is_solved_again_and_said():
    tables, status = adapted(coin(max_active=3), steady(1000), steady(2000, factor=0.2))

    assert len(tables) == status.swaps == 2
    assert tables[0] != tables[1]


def test_the_drift_that_is_told_is_that_from_the_table_in_force():
    _, near = adapted(coin(max_active=3), steady(1000), steady(2000, factor=1.1))
    _, far = adapted(coin(max_active=3), steady(1000), steady(2000, factor=0.2))

    assert (near.swaps, near.drift_step) == (1, pytest.approx(math.log(1.1)))
    assert (far.swaps, far.drift_step) == (2, 0.0)


def test_a_drift_that_has_been_answered_is_over():
    rounds = (steady(1000), steady(2000, factor=0.2), steady(3000, factor=0.2))

    _, status = adapted(coin(max_active=3), *rounds)

    assert status.swaps == 2


def test_a_model_that_nobody_visits_has_a_row_in_the_table_in_force():
    tables, _ = adapted(coin(max_active=4), [tally(0, there=0.0)])

    assert [len(row) for row in tables[0]] == [4, 4]
    assert tables[0][1] == [1, 1, 1, 1]


def test_a_table_that_somebody_chose_is_put_in_force_and_called_so():
    tables = []
    adapter = Adapter(coin(max_active=3), "fixed", tables.append)

    adapter.put([[1, 1, 1], [1, 2, 3]])

    assert tables == [[[1, 1, 1], [1, 2, 3]]] == [adapter.status.table]
    assert adapter.status.source == "given"


def test_every_table_in_force_is_feasible_for_each_of_its_counts():
    for there in (0.05, 0.5, 0.95):
        tables, _ = adapted(coin(max_active=12), steady(1000, there=there))
        assert infeasible_count(tables[0]) is None
        assert [len(row) for row in tables[0]] == [12, 12]


@pytest.mark.parametrize("mode", ["fixed", "off"])
def test_other_modes_never_solve(mode):
    adapter = Adapter(coin(), mode, lambda table: pytest.fail("a table was set"))
    for each in steady(5000):
        adapter.take(each)

    asyncio.run(adapter.run(0.0))


SHARED = Settings(threads=len(os.sched_getaffinity(0)) + 1)  # so models step in turn
ALONE = Settings(threads=1)


@pytest.mark.parametrize("mode", ["fixed", "off", "adaptive"])
@pytest.mark.parametrize("solved_in_turn", [False, True])
@pytest.mark.parametrize("settings", [SHARED, ALONE])
@pytest.mark.parametrize(("source", "level"), [("profile", "WARNING"), ("analytic", "INFO")])
def test_fixed_windows_for_another_sharing_of_the_cores_are_told_in_one_line(
    mode, solved_in_turn, settings, source, level, caplog
):
    caplog.set_level(logging.INFO, "tokenrouter")
    plan = solved_for(coin(max_active=2), [1.0, 2.0], [2.0, 3.0] if solved_in_turn else ())
    windows = msgspec.structs.replace(plan.windows, source=source)
    plan = msgspec.structs.replace(plan, windows=windows)
    adapter = Adapter(plan, mode, lambda table: None)

    async def begin():
        looking = asyncio.create_task(adapter.run(3600.0, settings))
        await asyncio.sleep(0)
        looking.cancel()

    asyncio.run(begin())

    told = mode == "fixed" and solved_in_turn != (settings is SHARED)
    assert [record.levelname for record in caplog.records] == [level] * told
    if told:
        assert "--windows adaptive" in caplog.text and "trc profile" in caplog.text
        there = "step in turn, and" if solved_in_turn else "run side by side, and"
        assert f"solved for models that {there} here they" in caplog.text


def test_windows_that_were_not_solved_are_not_compared(caplog):
    adapter = Adapter(coin(max_active=2), "fixed", lambda table: None)

    asyncio.run(adapter.run(3600.0, SHARED))

    assert not caplog.records


def test_an_adaptive_server_in_turn_solves_for_turns_whatever_the_plan_was_solved_for(monkeypatch):
    solved = []
    monkeypatch.setattr(adapt, "solve", lambda spec: solved.append(spec) or asyncio.sleep(0))
    plan = solved_for(coin(max_active=2), [6.0, 6.0])
    adapter = Adapter(plan, "adaptive", lambda table: None)
    for each in steady(1000):
        adapter.take(each)

    async def look():
        looking = asyncio.create_task(adapter.run(0.0, SHARED))
        while not solved:
            await asyncio.sleep(0.01)
        looking.cancel()

    asyncio.run(look())

    assert solved[0].in_turn and solved[0].after_ms is not None


def test_numbers_that_have_no_table_leave_the_windows_as_they_are(caplog):
    apart = [
        tally(model, there=0.0, ended=0) for model in range(2)
    ]  # nobody ever comes to the second

    tables, status = adapted(coin(max_active=3), apart)

    assert (tables, status.swaps, status.source) == ([], 0, "none")
    assert "the windows stay as they are" in caplog.text


def test_another_process_gives_the_same_table():
    plan = coin(max_active=3)
    spec = problem(plan, estimate(plan, *steady(1000))).spec

    assert asyncio.run(solve(spec)) == solve_here(spec)


def test_whoever_solves_gives_way_to_all_others():
    plan = coin(max_active=3)
    spec = problem(plan, estimate(plan, *steady(1000))).spec
    command = [sys.executable, "-P", "-m", "tokenrouter.runtime.resolve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        until = time.monotonic() + 60
        while os.getpriority(os.PRIO_PROCESS, process.pid) < 19 and time.monotonic() < until:
            time.sleep(0.02)
        given = os.getpriority(os.PRIO_PROCESS, process.pid)
        out, _ = process.communicate(msgspec.json.encode(spec))

    assert given == 19
    assert msgspec.json.decode(out, type=Table) == solve_here(spec)


def test_numbers_without_a_steady_state_are_no_table():
    plan = coin(max_active=3)
    spec = problem(plan, estimate(plan, *steady(1000))).spec
    torn = msgspec.structs.replace(
        spec, p=[[1.0, 0.0], [0.0, 1.0]], mean_output_tokens=None, entry=[0.5, 0.5]
    )

    assert solve_here(torn) is None
    assert asyncio.run(solve(torn)) is None


@pytest.mark.parametrize("settings", [ALONE, SHARED], ids=["beside", "in turn"])
def test_a_server_of_processes_swaps_its_windows_and_changes_no_token(tmp_path, settings):
    plan = tiny.real(tiny.PLANS["coin"](max_active=6), tiny.save(tmp_path))
    sampling = Sampling(max_tokens=40, ignore_eos=True)
    given = real_prompts(6)
    expected = [
        [(t.token, t.model) for t in c.tokens] for c in Engine(plan).generate(given, sampling)
    ]

    async def serve():
        client = Client(plan, windows="adaptive", threads=settings.threads)
        client.look_s = 0.2
        await client.start()
        try:
            async with asyncio.timeout(100):
                while client.windows.swaps == 0:
                    await asyncio.gather(*(write(client, at) for at in range(6)))
            await asyncio.gather(*(write(client, at) for at in range(6)))
            return client.windows, dict(client.tallies)
        finally:
            await client.close(1)

    async def write(client, at):
        tokens = [token async for token in client.submit(given[at], sampling)]
        assert [(token.token, token.model) for token in tokens] == expected[at]

    status, tallies = asyncio.run(serve())

    assert status.source == "live"
    assert infeasible_count(status.table) is None
    assert set(tallies) == {0, 1}
    assert all(each.times and each.moves for each in tallies.values())
    after = {time.after for each in tallies.values() for time in each.times}
    assert (True in after) == (settings is SHARED)
