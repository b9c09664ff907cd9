"""Windows in a plan: solved, told, sealed, and 1 with a reason where the model cannot tell."""

import pytest

from tests.compiler.irs import COMMIT, ENTROPY, automaton, cmp, r2r, r_stitch, retry, then
from tests.compiler.plans import plan_of
from tests.profile.profiles import in_turn, profile_of, replace
from tokenrouter.compiler.expr import SignalOf
from tokenrouter.plan.hash import hashes
from tokenrouter.plan.show import show
from tokenrouter.plan.verify import verify
from tokenrouter.profile.system import of_plan, spec_of
from tokenrouter.profile.windows import with_windows
from tokenrouter.throughput import cache, exact
from tokenrouter.throughput.check import check
from tokenrouter.throughput.system import build


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path))
    return tmp_path / "throughput"


def test_a_plan_gets_the_best_windows_and_what_they_are_expected_to_do():
    plan = plan_of(r_stitch())

    tuned = with_windows(plan)

    assert verify(tuned) == []
    windows = tuned.windows
    assert (windows.source, windows.note) == ("analytic", "")
    system = build(check(spec_of(of_plan(plan))))
    for n in range(1, 5):
        own = [row[n - 1] for row in windows.table]
        best = max(
            exact.solve(system, [a, b], n=n).tokens_per_s
            for a in range(1, n + 1)
            for b in range(1, n + 2 - a)
        )
        speed = exact.solve(system, own, n=n).tokens_per_s
        assert speed >= 0.999 * best
        assert tuned.estimates.tokens_per_s[n - 1] == pytest.approx(speed, rel=0.005)


def test_windows_change_the_tuning_hash_and_nothing_of_the_meaning():
    plan = plan_of(r_stitch())

    tuned = with_windows(plan)

    assert tuned.windows.table != plan.windows.table
    assert (tuned.program_hash, tuned.tuning_hash) == hashes(tuned)
    assert tuned.program_hash == plan.program_hash
    assert tuned.tuning_hash != plan.tuning_hash


def test_the_table_does_not_depend_on_what_the_cache_holds(empty_cache):
    plan = plan_of(r_stitch())
    fresh = with_windows(plan)
    [entry] = empty_cache.iterdir()

    assert with_windows(plan) == fresh
    for rubbish in (b"", b"\x00\xff", b"{}", entry.read_bytes()[:-9]):
        entry.write_bytes(rubbish)
        assert with_windows(plan) == fresh
    assert with_windows(plan, cached=False) == fresh


def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "file"))

    assert cache.directory().parent.is_file()
    assert with_windows(plan_of(r_stitch())).windows.source == "analytic"


def test_a_profile_gives_windows_shares_and_says_so():
    plan = plan_of(r_stitch())

    tuned = with_windows(plan, profile_of(plan))

    assert verify(tuned) == []
    assert tuned.windows.source == "profile"
    assert tuned.windows.machine == "a machine, 2 cores, 1 threads a model"
    estimates = tuned.estimates
    assert estimates.source == "profile"
    assert estimates.rules[0] == [0.3, 0.7]
    # Of each round, 70 / 30 tokens of small and about one of large.
    assert estimates.by_model[0].share == pytest.approx(0.7, abs=0.02)
    assert "from profile probabilities" in show(tuned)


def test_a_profile_of_models_that_step_in_turn_says_so():
    plan = plan_of(r_stitch())

    tuned = with_windows(plan, in_turn(profile_of(plan)))

    assert verify(tuned) == []
    assert tuned.windows.system.in_turn and tuned.windows.system.after_ms
    assert "step times of a machine, 2 cores, 1 threads a model, models step in turn\n" in show(
        tuned
    )
    # Two models share one machine: never more than all of it is busy.
    assert all(sum(m.utilisation for m in load.by_model) < 1.002 for load in tuned.estimates.loads)


def test_a_machine_can_be_stated():
    plan = plan_of(r_stitch())

    assert "GPU" in with_windows(plan, machine="gpu").windows.machine


def test_a_patient_plan_waits_for_longer_than_its_windows_delay():
    plan = plan_of(r_stitch(), max_active=16)
    slow = profile_of(plan)

    given, raised = with_windows(plan, slow), with_windows(plan, slow, patient=True)

    longest = max(m.admission_delay_ms for load in raised.estimates.loads for m in load.by_model)
    assert given.windows.max_wait_ms == 50
    assert raised.windows.max_wait_ms == pytest.approx(4 * longest, rel=0.06)


def test_models_that_are_never_reached_leave_windows_of_one_and_a_reason():
    never = cmp(SignalOf("chance"), "<", 0.0)
    plan = plan_of(
        automaton(
            ("small", (never, retry("large")), (None, COMMIT)), ("large", (None, then("small")))
        )
    )

    tuned = with_windows(plan)

    assert tuned.windows.table == [[1] * 4] * 2
    assert tuned.windows.source == "none"
    assert tuned.windows.note.startswith("not solved: model 1 cannot be reached")
    assert verify(tuned) == []
    assert "not solved" in show(tuned)


def test_the_objective_reaches_the_solver():
    plan = plan_of(r_stitch(), max_active=6)

    def objective(text):
        return with_windows(replace(plan, windows=replace(plan.windows, objective=text)))

    fast, short = objective("throughput"), objective("latency")

    def longest(tuned):
        return max(m.admission_delay_ms for m in tuned.estimates.loads[-1].by_model)

    assert longest(short) < longest(fast)
    assert objective("throughput where speed >= 1").windows.note == ""
    each = [load.tokens_per_s / load.n for load in fast.estimates.loads]
    some = objective(f"throughput where speed >= {(each[1] + each[-1]) / 2:.3f}").windows
    assert "is expected up to N=" in some.note
    none = objective("throughput where speed >= 1000000").windows
    assert none.note == "the speed that the objective asks for is not expected at any N"


def test_a_plan_for_more_requests_than_are_solved_keeps_the_last_windows(monkeypatch):
    monkeypatch.setattr("tokenrouter.profile.system.MOST_REQUESTS", 4)
    monkeypatch.setattr("tokenrouter.plan.verify_predictions.MOST_SIZES", 4)
    plan = plan_of(r2r(2), max_active=7)

    tuned = with_windows(plan)

    assert verify(tuned) == []
    for row in tuned.windows.table:
        assert row[4:] == [row[3]] * 3


def test_the_shares_of_a_policy_do_not_hide_its_rules():
    policy = automaton(
        ("small", (cmp(ENTROPY, ">", 2), retry("large")), (None, COMMIT)),
        ("large", (None, then("small"))),
    )

    tuned = with_windows(plan_of(policy))

    assert tuned.estimates.rules == [[0.25, 0.75], [1.0]]
    assert tuned.windows.system.p == [[0.75, 0.25], [1.0, 0.0]]
