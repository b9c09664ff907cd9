"""What one decision makes of a request's routing state, by the fine print of the language."""

from math import inf, nan

import msgspec
import pytest

from tokenrouter.runtime.messages import RouteState, Sampling
from tokenrouter.runtime.state import Decision, Limits, advance, count_down, whole


def state(**fields):
    return RouteState(**{"owner": 0, "counts": [0, 0, 0], **fields})


def test_commit_counts_for_the_model_that_wrote():
    after = advance(state(position=4, counts=[4, 0, 0]), Decision(True, 0), [], ended=False)

    assert (after.position, after.counts, after.owner) == (5, [5, 0, 0], 0)
    assert (after.since_switch, after.switches) == (1, 0)


def test_commit_then_hands_the_next_position_over():
    after = advance(state(since_switch=7), Decision(True, 2), [], ended=False)

    assert (after.owner, after.position, after.switches, after.since_switch) == (2, 1, 1, 0)


def test_retry_keeps_the_position_and_remembers_who_had_a_turn():
    after = advance(state(position=3, tried=0b100), Decision(False, 1), [], ended=False)

    assert (after.position, after.tried, after.counts) == (3, 0b101, [0, 0, 0])


def test_a_commit_gives_every_model_its_turn_back():
    after = advance(state(owner=1, tried=0b001), Decision(True, 1), [], ended=False)

    assert after.tried == 0


def test_a_borrowed_stay_comes_home_after_its_tokens():
    now = advance(state(), Decision(False, 1, rule=0, borrowed=2), [], ended=False)
    assert (now.owner, now.home, now.remaining) == (1, 0, 2)

    now = advance(now, count_down(now, reached=False), [], ended=False)
    assert (now.owner, now.home, now.remaining, now.since_switch) == (1, 0, 1, 1)

    now = advance(now, count_down(now, reached=False), [], ended=False)
    assert (now.owner, now.home, now.remaining, now.since_switch) == (0, None, 0, 0)
    assert (now.position, now.counts, now.switches) == (2, [0, 2, 0], 2)


def test_a_borrowed_stay_comes_home_when_its_condition_holds():
    now = state(owner=1, home=0, remaining=9, until=0)

    after = advance(now, count_down(now, reached=True), [], ended=False)

    assert (after.owner, after.home, after.until, after.position) == (0, None, None, 1)


@pytest.mark.parametrize("decision", [Decision(True, 1), Decision(True, 1, borrowed=3)])
def test_the_last_token_hands_nothing_off(decision):
    after = advance(state(), decision, [], ended=True)

    assert (after.owner, after.switches, after.home, after.remaining) == (0, 0, None, 0)


def test_set_takes_effect_with_the_decision():
    after = advance(state(vars=[1.0]), Decision(True, 0, vars=[2.0]), [], ended=False)

    assert after.vars == [2.0]


def test_a_transition_leaves_the_old_state_as_it_was():
    before = state(position=1, counts=[1, 0, 0], vars=[1.0])
    copy = msgspec.msgpack.encode(before)

    advance(before, Decision(True, 1, vars=[3.0]), [], ended=False)

    assert msgspec.msgpack.encode(before) == copy


@pytest.mark.parametrize(
    ("most", "n"), [(0.99, 0), (-3.0, 0), (nan, 0), (-inf, 0), (1.0, 1), (2.7, 2), (inf, 2**31 - 1)]
)
def test_a_stay_has_whole_tokens_and_below_one_is_none(most, n):
    assert whole(most) == n


LIMITS = Limits(frozenset({7}), context=20)


@pytest.mark.parametrize(
    ("token", "n_output", "n_tokens", "sampling", "end"),
    [
        (1, 1, 9, Sampling(max_tokens=5), None),
        (7, 1, 9, Sampling(max_tokens=5), "stop"),
        (7, 1, 9, Sampling(max_tokens=5, ignore_eos=True), None),
        (7, 5, 9, Sampling(max_tokens=5), "stop"),
        (1, 5, 9, Sampling(max_tokens=5), "length"),
        (1, 2, 20, Sampling(max_tokens=5), "length"),
        (3, 1, 9, Sampling(max_tokens=5, stop_ids=[3], ignore_eos=True), "stop"),
    ],
)
def test_a_request_ends_by_token_or_by_length(token, n_output, n_tokens, sampling, end):
    assert LIMITS.end(token, n_output, n_tokens, sampling) == end
