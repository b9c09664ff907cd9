"""Exact and sampled against published values, against each other, and against a plain simulation."""

import math

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import chi2

from tests.throughput.events import figures, simulate
from tests.throughput.specs import pair, random_spec
from tokenrouter.throughput import branches, exact, sampled
from tokenrouter.throughput.branches import Routing, TooManyStates
from tokenrouter.throughput.check import check
from tokenrouter.throughput.choose import solve
from tokenrouter.throughput.gap import best_throughput
from tokenrouter.throughput.spec import BusyRates, Spec, SpecError
from tokenrouter.throughput.system import build

SURE = 4.5  # standard errors


@pytest.mark.parametrize(
    ("n", "windows", "tokens_per_s"),
    [
        (2, [1, 1], 99.0),
        (2, [1, 2], 110.3),
        (3, [1, 1], 142.3),
        (3, [1, 2], 158.1),
        (3, [1, 3], 151.9),
    ],
)
def test_the_published_values_come_out(n, windows, tokens_per_s):
    system = build(pair(n))

    solved = exact.solve(system, windows)
    guessed = sampled.solve(system, windows)

    assert solved.tokens_per_s == pytest.approx(tokens_per_s, abs=0.05)
    assert abs(guessed.tokens_per_s - solved.tokens_per_s) < SURE * guessed.stderr
    assert guessed.stderr < 0.003 * tokens_per_s


def distances(seeds, copies, events, *, in_turn=False):
    """Return how many standard errors apart the solvers are on each specification that has any randomness."""
    out = []
    for seed in seeds:
        spec = random_spec(seed, in_turn=in_turn)
        system = build(spec)
        solved = exact.solve(system, spec.windows)
        guessed = sampled.solve(system, spec.windows, copies=copies, events=events, seed=seed)
        if guessed.stderr < 1e-9 * solved.tokens_per_s:
            # A fixed rhythm: all copies do the same, and the run cuts one round short.
            assert guessed.tokens_per_s == pytest.approx(solved.tokens_per_s, rel=10 / events)
            continue
        out.append((guessed.tokens_per_s - solved.tokens_per_s) / guessed.stderr)
    return np.array(out)


def check_distances(z, least):
    assert len(z) >= least
    assert np.abs(z).max() < SURE
    tail = chi2.cdf((z**2).sum(), len(z))
    assert 1e-3 < tail < 1 - 1e-3, tail


def test_exact_and_sampled_agree_on_random_systems():
    check_distances(distances(range(40), copies=96, events=400), least=30)


def test_exact_and_sampled_agree_on_random_systems_in_turn():
    check_distances(distances(range(300, 330), copies=96, events=400, in_turn=True), least=22)


@pytest.mark.slow
def test_exact_and_sampled_agree_on_200_random_systems_in_turn():
    # In system 438 one request can wait for ever for a second one, or not: it has no one steady state.
    seeds = [seed for seed in range(300, 501) if seed != 438]
    check_distances(distances(seeds, copies=256, events=1500, in_turn=True), least=140)


@pytest.mark.slow
def test_exact_and_sampled_agree_on_200_random_systems():
    check_distances(distances(range(200), copies=256, events=1500), least=160)


@pytest.mark.parametrize("seed", range(12))
def test_exact_equals_a_plain_simulation(seed):
    spec = random_spec(seed)
    solved = exact.solve(build(spec), spec.windows)

    same_as_simulated(solved, spec, seed)


@pytest.mark.parametrize("seed", range(300, 315))
def test_exact_equals_a_plain_simulation_in_turn(seed):
    spec = random_spec(seed, in_turn=True)

    same_as_simulated(exact.solve(build(spec), spec.windows), spec, seed)


def same_as_simulated(solved, spec, seed):
    parts = simulate(spec, spec.windows, seed=seed, completions=700)

    # Rounding to quanta happens only where busy models slow each other; the simulation does not round.
    slack = 0.03 if spec.busy else 1e-3
    close(solved.tokens_per_s, figures(parts, lambda s: 1000 * s.tokens / s.time), slack)
    for m, model in enumerate(solved.per_model):
        close(model.utilisation, figures(parts, lambda s, m=m: s.busy[m] / s.time), slack)
        if any(part.through[m] == 0 for part in parts):
            continue  # seen only at the start, or hardly ever
        close(model.mean_batch, figures(parts, lambda s, m=m: s.through[m] / s.batches[m]), slack)
        close(
            model.admission_delay_ms,
            figures(parts, lambda s, m=m: s.delay[m] / s.through[m]),
            slack,
        )


def close(value, figure, slack):
    mean, error = figure
    assert abs(value - mean) < SURE * error + slack * abs(value) + 1e-9, (value, mean, error)


def test_models_in_turn_never_run_at_once_and_know_who_went_before():
    """By hand: one request, so a cycle is small's steps to the first hand-over, large's step, and a longer step of small."""
    spec = pair(1, step_ms=[4.0, 10.0], after_ms=[6.0, 13.0], in_turn=True, windows=[1, 1])

    solved = exact.solve(build(spec), spec.windows)

    steps = 1 / 0.35  # of small, to a hand-over
    cycle = 6 + (steps - 1) * 4 + 13
    small, large = solved.per_model
    assert solved.tokens_per_s == pytest.approx(1000 * steps / cycle)
    assert small.utilisation + large.utilisation == pytest.approx(1)
    assert large.utilisation == pytest.approx(13 / cycle)


def test_a_batch_in_turn_takes_all_who_came_while_it_stood_in_line():
    """Two models that always hand over, of two requests each: large waits for small's turn to end, and both meet there."""
    spec = pair(
        2,
        step_ms=[5.0, 5.0],
        p=[[0, 1], [1, 0]],
        c=[[1, 1], [1, 1]],
        in_turn=True,
        windows=[1, 1],
    )

    solved = exact.solve(build(spec), spec.windows)

    assert [model.mean_batch for model in solved.per_model] == [2.0, 2.0]
    assert solved.tokens_per_s == pytest.approx(400)


def test_who_made_the_step_stands_in_line_before_those_it_makes_due():
    """Half of small's requests go on to large; small goes first, so large's batch is of two of its steps."""
    spec = pair(
        3,
        step_ms=[1.0, 8.0, 8.0],
        p=[[0.5, 0.25, 0.25], [1, 0, 0], [1, 0, 0]],
        c=[[1, 1, 1]] * 3,
        in_turn=True,
        windows=[1, 1, 1],
    )

    solved = exact.solve(build(spec), spec.windows)

    same_as_simulated(solved, spec, seed=5)


def test_the_busy_rates_of_a_fine_quantum_equal_a_simulation_without_quanta():
    spec = pair(3, windows=[1, 2], busy=[BusyRates(models=[0, 1], rates=[0.6, 0.45])])

    solved = exact.solve(build(spec), spec.windows)

    assert solved.tokens_per_s < 158.0  # which it is at full rates
    parts = simulate(spec, spec.windows, seed=3, completions=1500)
    close(solved.tokens_per_s, figures(parts, lambda s: 1000 * s.tokens / s.time), 1e-3)


@pytest.mark.parametrize("solver", [exact, sampled], ids=["exact", "sampled"])
@pytest.mark.parametrize("windows", [[1, 1], [1, 3], [2, 2]], ids=str)
def test_what_goes_in_comes_out(solver, windows):
    steps = [[5.0, 6.0, 6.5, 8.0], [20.0, 21.0, 24.0, 30.0]]
    solved = solver.solve(build(pair(4, step_ms=steps, mean_output_tokens=50.0)), windows)
    slack = 1e-9 if solver is exact else 0.01

    small, large = solved.per_model
    # Little's law for all: what is in the system is what goes through times how long it stays.
    inside = sum(
        m.steps_per_s * (m.admission_delay_ms + m.step_ms) / 1000 for m in solved.per_model
    )
    assert inside == pytest.approx(4, rel=slack)
    # Every step at the large model follows one of the small model whose token was dropped.
    assert large.steps_per_s == pytest.approx(0.35 * small.steps_per_s, rel=10 * slack)
    kept = 0.65 * small.steps_per_s + large.steps_per_s
    assert solved.tokens_per_s == pytest.approx(kept, rel=slack)


@pytest.mark.parametrize("solver", [exact, sampled], ids=["exact", "sampled"])
def test_a_model_is_busy_for_as_long_as_its_batches_take(solver):
    solved = solver.solve(build(pair(4)), [1, 2])
    slack = 1e-9 if solver is exact else 0.005

    for model, step_ms in zip(solved.per_model, [6.0, 27.9], strict=True):
        batches_per_s = model.steps_per_s / model.mean_batch
        assert model.utilisation == pytest.approx(batches_per_s * step_ms / 1000, rel=slack)
        assert model.step_ms == pytest.approx(step_ms, rel=slack)


def test_paired_differences_are_surer_than_the_estimates():
    system = build(pair(8))
    jobs = [sampled.Job(8, (1, 3)), sampled.Job(8, (1, 4))]

    runs = sampled.run(system, jobs, copies=128, events=600)

    difference = runs.difference(1, 0)
    alone = math.hypot(runs.solution(0).stderr, runs.solution(1).stderr)
    assert difference.stderr < 0.75 * alone
    true = exact.solve(system, (1, 4)).tokens_per_s - exact.solve(system, (1, 3)).tokens_per_s
    assert abs(difference.value - true) < SURE * difference.stderr


def test_the_solver_goes_by_the_size_of_the_chain_and_says_so(monkeypatch):
    system = build(pair(4))
    assert solve(system, [1, 1]).solver == "exact"
    assert solve(system, [1, 1]).states == 715

    monkeypatch.setattr("tokenrouter.throughput.choose.AUTO_STATES", 714)

    guessed = solve(system, [1, 1])
    assert (guessed.solver, guessed.states) == ("sampled", None)
    assert solve(system, [1, 1], solver="exact").solver == "exact"


def test_a_chain_beyond_the_limit_is_one_clear_line():
    with pytest.raises(TooManyStates, match="more than 100 states; take the sampled solver"):
        exact.solve(build(pair(4)), [1, 1], most_states=100)


def test_a_batch_with_more_outcomes_than_states_are_allowed_is_given_up_before_they_are_listed():
    spec = Spec(n=24, step_ms=[5.0] * 6, p=[[1 / 6] * 6] * 6, c=[[1.0] * 6] * 6)
    system = build(check(spec))
    routing = Routing(system)

    with pytest.raises(TooManyStates, match="more than 100 states"):
        exact.solve(system, (1,) * 6, most_states=100, routing=routing)
    with pytest.raises(TooManyStates, match="more than 100 states"):
        best_throughput(system, 24, most_states=100)

    largest = max(map(len, routing.made.values()))
    assert largest <= 100  # of some 119,000 ways to share 24 out


def test_what_many_states_branch_into_at_once_is_counted_before_it_is_listed(monkeypatch):
    system = build(pair(40, p=[[0.6, 0.4], [0.5, 0.5]]))
    monkeypatch.setattr(branches, "MOST_WAYS", 300)

    with pytest.raises(TooManyStates, match="more than 300 ways"):
        exact.solve(system, (1, 1))


def test_a_state_that_floats_never_come_back_to_is_left_for_good():
    """Such as one of a model of which every token is handed on: 2^-64 is lost beside 1, and the system was singular."""
    q = csr_array([[0.0, 1.0, 0.0], [2.0**-64, 0.0, 1.0], [0.0, 1.0, 0.0]])

    assert exact.stationary(q).tolist() == pytest.approx([0.0, 0.5, 0.5])
    assert q.nnz == 4  # as it was


def test_rhythms_that_never_mix_are_told():
    # After the first step the requests are split for good over two stations that swap places for ever.
    spec = pair(
        2,
        step_ms=[5.0, 7.0, 7.0],
        p=[[0, 0.5, 0.5], [0, 0, 1], [0, 1, 0]],
        c=[[1, 1, 1]] * 3,
    )
    with pytest.raises(SpecError, match=r"rhythms that never mix.*mean_output_tokens"):
        exact.solve(build(spec), [1, 1, 1])
