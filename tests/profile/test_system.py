"""A plan's closed system: rules become P and C, stays become phases, measured times become L(b) and rates."""

import numpy as np
import pytest

from tests.compiler.irs import (
    COMMIT,
    ENTROPY,
    STOP,
    automaton,
    borrow,
    cmp,
    mix,
    param,
    r2r,
    r_stitch,
    retry,
    then,
)
from tests.compiler.plans import plan_of
from tests.profile.profiles import figure, in_turn, profile_of, replace
from tokenrouter.compiler.expr import SignalOf
from tokenrouter.plan import structs as s
from tokenrouter.profile.reference import REFERENCES, step_ms
from tokenrouter.profile.structs import Move, Stays
from tokenrouter.profile.system import Unmodelled, by_size, of_plan, of_profile, quantum, spec_of
from tokenrouter.throughput import exact
from tokenrouter.throughput.check import check
from tokenrouter.throughput.system import build

UNSURE = cmp(ENTROPY, ">", 2)  # assumed on a quarter of the steps


def chance(p):
    return cmp(SignalOf("chance"), "<", p)


def test_rules_become_shares_and_a_dropped_candidate_commits_nothing():
    system = of_plan(plan_of(r_stitch()))

    assert system.p == [[0.75, 0.25], [0.75, 0.25]]
    assert system.c == [[1.0, 0.0], [1.0, 1.0]]
    assert system.entry == [1.0, 0.0]
    assert system.model_of == [0, 1]


def test_two_rules_that_share_a_way_commit_a_fraction_on_it():
    policy = automaton(
        ("small", (chance(0.3), retry("large")), (chance(0.5), then("large")), (None, COMMIT)),
        ("large", (None, then("small"))),
    )

    system = of_plan(plan_of(policy))

    assert system.p[0] == pytest.approx([0.5, 0.5])
    assert system.c[0] == pytest.approx([1.0, 0.2 / 0.5])


def test_a_mixture_goes_by_its_weights_from_the_start_on():
    weights = mix(a=0.5, b=0.3, c=0.2)
    policy = automaton(*((name, (None, weights)) for name in "abc"), start=weights[1])

    system = of_plan(plan_of(policy))

    assert system.p == [[0.5, 0.3, 0.2]] * 3
    assert system.entry == [0.5, 0.3, 0.2]


def test_a_stopped_request_makes_place_for_one_at_the_start():
    policy = automaton(
        ("small", (chance(0.1), STOP), (None, then("large"))), ("large", (None, COMMIT))
    )

    system = of_plan(plan_of(policy))

    assert system.p[0] == pytest.approx([0.1, 0.9])
    assert system.c[0] == [1.0, 1.0]


def test_a_borrowed_stay_is_as_many_stations_of_its_lender_as_it_has_steps():
    system = of_plan(plan_of(r2r(3)))

    assert system.model_of == [
        0,
        1,
        1,
        1,
        1,
    ]  # of which the second is the lender's own, where nobody comes
    third, second, first = 4, 3, 2
    assert system.p[0][third] == 0.25
    assert system.c[0][third] == 0.0
    assert system.p[third][second] == system.p[second][first] == system.p[first][0] == 1.0
    assert system.c[third][second] == system.c[first][0] == 1.0


def test_the_length_of_a_stay_can_be_a_dial():
    decl, n = param("n", 4, 1, 8, unit="count")
    policy = automaton(
        ("small", (UNSURE, borrow("large", n)), (None, COMMIT)), ("large",), params=(decl,)
    )

    assert of_plan(plan_of(policy)).model_of == [0, 1, 1, 1, 1, 1]


def mean_stay(system):
    """Steps at the lender from each coming to the return."""
    lender = np.flatnonzero(np.array(system.model_of) == 1)
    p = np.array(system.p)
    steps = np.linalg.solve(np.eye(len(lender)) - p[np.ix_(lender, lender)], np.ones(len(lender)))
    come = p[0, lender] / p[0, lender].sum()
    return float(come @ steps)


@pytest.mark.parametrize("n", [1, 5, 16, 17, 40, 300])
def test_a_stay_of_any_length_keeps_its_mean_in_few_phases(n):
    system = of_plan(plan_of(r2r(n)))

    assert mean_stay(system) == pytest.approx(n)
    assert len(system.model_of) <= 2 + 16


def test_a_stay_until_something_is_assumed_to_last_half_its_most():
    policy = automaton(
        ("small", (UNSURE, borrow("large", 8, cmp(SignalOf("maxprob"), ">", 0.9))), (None, COMMIT)),
        ("large",),
    )

    assert mean_stay(of_plan(plan_of(policy))) == pytest.approx(4)


def test_the_tokens_of_a_system_add_up_to_the_shares_that_the_plan_expects():
    plan = plan_of(r2r(3), max_active=1)
    system = of_plan(plan)

    solved = exact.solve(build(check(spec_of(system))), [1, 1])

    per_s = [model.steps_per_s for model in solved.per_model]
    kept_by_small = 0.75 * per_s[0]
    share = kept_by_small / (kept_by_small + per_s[1])
    assert share == pytest.approx(plan.estimates.by_model[0].share, abs=2e-3)
    assert solved.tokens_per_s == pytest.approx(kept_by_small + per_s[1])


def test_rules_that_read_the_load_are_not_modelled():
    plan = plan_of(r_stitch())
    program = replace(
        plan.programs[0], nodes=[*plan.programs[0].nodes, s.Signal(name="queue", args=[1])]
    )
    plan = replace(plan, programs=[program, plan.programs[1]])

    with pytest.raises(Unmodelled, match="its rules read `queue`"):
        of_plan(plan)


def test_the_stated_machine_reads_weights_for_small_batches_and_computes_for_large_ones():
    model = s.Model(
        name="m", use="", fingerprint="", family="llama", dtype="float32", stop_ids=[], prefill="eager",
        vocab_size=1, context=1, layers=10, hidden_size=1, kv_bytes_per_token=0, weight_bytes=4 * 10**8,
    )  # fmt: skip

    row = step_ms(model, REFERENCES["cpu"], 64)

    assert row[0] == pytest.approx(10 * 0.1 + 1000 * 4e8 / 20e9)
    assert row[63] == pytest.approx(10 * 0.1 + 1000 * 2 * 1e8 * 64 / 200e9)
    assert sorted(row) == row


@pytest.mark.parametrize(
    ("shortest", "longest", "delta"), [(6.0, 28.0, 0.1), (0.05, 30.0, 0.001), (100.0, 900.0, 2.0)]
)
def test_the_quantum_is_round_and_a_fiftieth_of_the_shortest_step_at_most(shortest, longest, delta):
    assert quantum([[shortest, longest]]) == delta


def test_counts_outweigh_what_is_assumed_and_leave_it_possible():
    plan = plan_of(r_stitch())

    system = of_profile(plan, profile_of(plan))

    assert system.p[0][1] == pytest.approx((30 + 0.25) / 101)
    assert system.p[1][0] == pytest.approx((30 + 0.75) / 31)
    assert system.p[1][1] > 0  # never seen, and yet not impossible
    assert system.c[0] == [1.0, 0.0]
    assert system.mean_output_tokens == pytest.approx((1000 + 256) / (4 + 1))


def test_what_was_decided_before_the_first_token_has_ways_of_its_own():
    plan = plan_of(r_stitch())
    profile = profile_of(plan)
    first = [
        Move(model=0, rule=0, keep=False, to=1, n=9),
        Move(model=0, rule=1, keep=True, to=0, n=1),
    ]

    system = of_profile(plan, replace(profile, ways=replace(profile.ways, first=first)))

    assert system.p[0][1] == pytest.approx((30 + 0.25) / 101)
    # Beside them what is true of all decisions weighs as much as one.
    assert system.first_p[0] == pytest.approx([(1 + 0.7005) / 11, (9 + 0.2995) / 11], abs=1e-4)
    assert system.first_p[1] == pytest.approx(system.p[1])  # none was seen
    assert system.first_c == system.c
    assert of_profile(plan, profile).first_p == []  # of a profile that did not count them apart


def test_a_first_token_that_is_borrowed_begins_a_stay_like_any_other():
    plan = plan_of(until())
    first = [Move(model=0, rule=0, keep=False, to=1, n=30)]
    profile = with_counted(plan, 1, 1)

    system = of_profile(plan, replace(profile, ways=replace(profile.ways, first=first)))

    phases = [s for s, model in enumerate(system.model_of) if s >= 2]
    assert [len(row) for row in system.first_p] == [len(system.model_of)] * 2
    assert (
        sum(system.first_p[0][s] for s in phases) > 0.96 > 0.1 > sum(system.p[0][s] for s in phases)
    )


def test_requests_that_a_rule_stopped_are_no_ends_by_themselves():
    policy = automaton(
        ("small", (chance(0.1), STOP), (None, then("large"))), ("large", (None, COMMIT))
    )
    plan = plan_of(policy)
    moves = ((0, 0, True, None, 3), (0, 1, True, 1, 30), (1, 0, True, 1, 300))

    system = of_profile(plan, profile_of(plan, moves=moves))

    # Four ended, three of them by the rule, whose way is in P already.
    assert system.mean_output_tokens == pytest.approx((1000 + 256) / (1 + 1))


def until(most=40):
    """A policy whose stays end by themselves, most of them long before the most."""
    return automaton(
        (
            "small",
            (UNSURE, borrow("large", most, cmp(SignalOf("maxprob"), ">", 0.9))),
            (None, COMMIT),
        ),
        ("large",),
    )


def with_counted(plan, *lengths):
    """A profile in which small borrowed large for stays of so many tokens; entry k - 1 counts those of k."""
    profile = profile_of(plan, moves=((0, 0, False, 1, 5), (0, 1, True, 0, 95)))
    stays = [Stays(home=0, lender=1, lengths=list(lengths))]
    return replace(profile, ways=replace(profile.ways, stays=stays))


def test_counted_stays_last_as_long_as_they_did_and_not_half_their_most():
    plan = plan_of(until())

    assert mean_stay(of_plan(plan)) == pytest.approx(20, rel=1e-3)
    assert mean_stay(of_profile(plan, with_counted(plan, 3, 1, 1))) == pytest.approx(1.6)
    assert mean_stay(of_profile(plan, with_counted(plan, 0, 0, 2, 0))) == pytest.approx(3)


def test_stays_of_which_none_was_counted_to_its_end_last_as_assumed():
    plan = plan_of(until())

    for lengths in ((), (0, 0)):
        assert mean_stay(of_profile(plan, with_counted(plan, *lengths))) == pytest.approx(
            20, rel=1e-3
        )


def test_measured_steps_are_joined_by_lines_that_go_on():
    plan = plan_of(r_stitch(), max_active=8)

    assert by_size(profile_of(plan).models[0], 8) == [2.0 * (1 + b) for b in range(1, 9)]


def test_a_busy_neighbour_slows_a_model_at_the_measured_rate():
    plan = plan_of(r_stitch())

    system = of_profile(plan, profile_of(plan, busy=(2.0, 1.25)))
    quiet = of_profile(plan, profile_of(plan, busy=(1.0, 1.01)))

    assert system.busy == [s.BusySet(models=[0, 1], rates=[0.5, 0.8])]
    assert quiet.busy == []


def test_a_rate_is_that_of_the_context_at_which_both_were_timed():
    plan = plan_of(r_stitch())
    profile = profile_of(plan, busy=(2.0, 1.0))
    first = profile.models[0]
    # Steps at the longer context take three times as long, beside the other as well.
    steps = [
        replace(st, idle=figure(3 * st.idle.mean)) if st.context == 512 else st
        for st in first.steps
    ]
    far = [replace(slow, context=512, step=figure(3 * slow.step.mean)) for slow in first.slowed]
    models = [replace(first, steps=steps, slowed=far), profile.models[1]]

    system = of_profile(plan, replace(profile, models=models))

    assert system.busy == [s.BusySet(models=[0, 1], rates=[0.5, 1.0])]


def test_one_size_of_batch_beside_which_something_else_ran_sets_no_rate():
    plan = plan_of(r_stitch())
    profile = profile_of(plan, busy=(2.0, 1.0))
    first = profile.models[0]
    disturbed = replace(first.slowed[0], batch=2, step=figure(900.0))
    models = [replace(first, slowed=[*first.slowed, disturbed]), profile.models[1]]

    system = of_profile(plan, replace(profile, models=models))

    assert system.busy == [s.BusySet(models=[0, 1], rates=[0.5, 1.0])]


def test_models_that_step_in_turn_have_two_times_for_a_step_and_no_rates():
    plan = plan_of(r_stitch(), max_active=3)
    measured = in_turn(profile_of(plan, busy=(2.0, 1.25)), later=(1.5, 1.25))

    system = of_profile(plan, measured)

    assert system.in_turn and system.busy == []
    assert system.step_ms == [[4.0, 6.0, 8.0], [16.0, 24.0, 32.0]]
    assert system.after_ms == [[6.0, 9.0, 12.0], [20.0, 30.0, 40.0]]
    spec = check(spec_of(system, n=2))
    assert spec.in_turn and spec.after_ms == [[6.0, 9.0], [20.0, 30.0]]
    beside = of_profile(plan, profile_of(plan, busy=(1.0, 1.0)))
    assert not beside.in_turn and beside.after_ms == []


def test_steps_after_another_that_were_not_measured_are_as_long_as_the_others():
    plan = plan_of(r_stitch(), max_active=4)
    measured = in_turn(profile_of(plan))
    first = measured.models[0]
    steps = [replace(st, after=None) if st.batch == 4 else st for st in first.steps]
    measured = replace(measured, models=[replace(first, steps=steps), measured.models[1]])

    system = of_profile(plan, measured)

    assert system.after_ms[0] == [6.0, 9.0, 9.5, 10.0]


def test_the_quantum_is_small_against_steps_of_either_kind():
    plan = plan_of(r_stitch(), max_active=2)

    system = of_profile(plan, in_turn(profile_of(plan), later=(0.25, 1.0)))

    assert system.delta_ms == 0.02  # of 1 ms, and not of 4


def test_one_request_takes_as_long_as_its_steps_in_turn():
    plan = plan_of(r_stitch(), max_active=1)
    system = of_profile(plan, in_turn(profile_of(plan)))

    told = exact.solve(build(check(spec_of(system))), [1, 1]).tokens_per_s

    (stay, leave), (to_small, at_large) = system.p
    share = to_small / (leave + to_small)  # of the steps, at small
    took = share * (stay * 4 + leave * 20) + (1 - share) * (to_small * 6 + at_large * 16)
    kept = share * stay + (1 - share)
    assert told == pytest.approx(1000 * kept / took, rel=0.02)
