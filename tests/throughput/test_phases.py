"""Stays of a fixed length: phases of one model share its server and its window."""

import pytest

from tokenrouter.throughput import exact, sampled
from tokenrouter.throughput.check import check
from tokenrouter.throughput.phases import Stay, exactly, with_stays
from tokenrouter.throughput.spec import Spec, SpecError
from tokenrouter.throughput.system import build


def borrowing(n, lengths):
    stay = Stay(source=0, at=1, back=0, p=0.2, lengths=lengths, kept=0.0)
    stations = with_stays([[0.8, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], [stay])
    # The lender's own station is never entered, since requests come to it on stays only.
    spec = Spec(n=n, step_ms=[5.0, 20.0], delta_ms=5.0, **stations._asdict())
    return build(check(spec))


def test_a_request_alone_takes_the_time_of_its_steps():
    # A round: one step at the borrower, and with 0.2 three steps at the lender.
    solved = exact.solve(borrowing(1, exactly(3)), [1, 1])

    tokens, ms = 0.8 + 0.2 * 3, 5 + 0.2 * 60
    assert solved.tokens_per_s == pytest.approx(1000 * tokens / ms)
    assert solved.per_model[1].utilisation == pytest.approx(12 / 17)


def test_lengths_follow_their_distribution():
    solved = exact.solve(borrowing(1, [0.5, 0.0, 0.5]), [1, 1])

    assert solved.tokens_per_s == pytest.approx(1000 * (0.8 + 0.2 * 2) / (5 + 0.2 * 40))


def test_phases_wait_at_one_window_and_run_in_one_batch():
    system = borrowing(3, exactly(2))
    solved = exact.solve(system, [1, 2])

    assert solved.per_model[1].mean_batch >= 2
    guessed = sampled.solve(system, [1, 2])
    assert abs(guessed.tokens_per_s - solved.tokens_per_s) < 4.5 * guessed.stderr


def test_two_that_wait_for_each_other_stay_together_where_the_length_is_fixed():
    fixed = exact.solve(borrowing(2, exactly(4)), [1, 2]).tokens_per_s
    spec = Spec(
        n=2,
        step_ms=[5.0, 20.0],
        delta_ms=5.0,
        p=[[0.8, 0.2], [0.25, 0.75]],
        c=[[1, 0], [1, 1]],
    )
    geometric = exact.solve(build(check(spec)), [1, 2]).tokens_per_s  # of the same mean length

    assert fixed > 1.08 * geometric


def test_lengths_that_are_no_distribution_are_told():
    stay = Stay(source=0, at=1, back=0, p=0.2, lengths=[0.5, 0.4], kept=0.0)
    with pytest.raises(SpecError, match="lengths of stay 0 must be probabilities"):
        with_stays([[0.8, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]], [stay])
