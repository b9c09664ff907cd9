"""The scheduler alone: what goes into a batch, who gives pages up, and that everybody's turn comes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenrouter.runtime.messages import RouteState, Sampling
from tokenrouter.runtime.pace import KNOWN, Allowance, Pace
from tokenrouter.runtime.scheduler import Scheduler
from tokenrouter.runtime.sequence import Sequence


def seq(request, n, *, owned=True, read_ahead=0, token=None):
    """A request of `n` tokens, unlike any other unless `token` says so."""
    return Sequence(
        request=request,
        n_prompt=n,
        tokens=[request if token is None else token] * n,
        sampling=Sampling(),
        params=[],
        metadata={},
        state=RouteState(owner=0, counts=[0, 0]),
        epochs=[1, 1],
        seen=[n, n],
        traced=False,
        owned=owned,
        read_ahead=read_ahead,
    )


def scheduler(*sequences, pages=64, size=4, max_tokens=32):
    made = Scheduler(pages * size, size, max_tokens)
    for sequence in sequences:
        add(made, sequence)
    return made


def add(made, sequence):
    made.add(sequence)
    if sequence.owned:
        made.arrive(sequence)


def come(made, request):
    made.sequences[request].owned = True
    made.arrive(made.sequences[request])


def run(made, *, gate_open=True):
    chunks = made.next_batch(gate_open=gate_open)
    made.done(chunks)
    made.check()
    return [(c.sequence.request, c.start, c.n, c.samples) for c in chunks]


def settle(made):
    while any(s.unseen > 1 for s in made.sequences.values()):
        assert run(made)


def test_one_batch_mixes_decodes_returns_and_prefill():
    made = scheduler(seq(1, 10), seq(2, 12))
    settle(made)
    made.sequences[1].tokens.append(5)
    made.sequences[2].tokens += [5, 5, 5]
    add(made, seq(3, 20))

    assert run(made) == [(1, 10, 1, True), (2, 12, 3, True), (3, 0, 20, True)]


@pytest.mark.parametrize(("away", "waits"), [(1, True), (9, True), (64, True), (65, False)])
def test_a_return_waits_at_the_gate_until_its_absence_was_very_long(away, waits):
    made = scheduler(seq(1, 10), max_tokens=128)
    settle(made)
    made.sequences[1].owned = False
    run(made)
    made.sequences[1].tokens += [5] * (away - 1)
    made.sequences[1].tokens.append(6)
    made.sequences[1].cached = 10
    come(made, 1)

    assert [s.request for s in made.gated()] == ([1] if waits else [])
    assert run(made, gate_open=False) == ([] if waits else [(1, 10, away, True)])


@pytest.mark.parametrize(("n", "waits"), [(8, True), (9, False)])
def test_a_prompt_passes_the_gate_only_where_it_is_no_longer_than_a_few_tokens(n, waits):
    made = scheduler(seq(1, n))

    assert bool(made.gated()) == waits
    assert bool(run(made, gate_open=False)) != waits


def test_a_long_prompt_is_cut_and_does_not_stop_decoding():
    made = scheduler(seq(1, 4), max_tokens=32)
    settle(made)
    add(made, seq(2, 70))

    batches = []
    for _ in range(3):
        made.sequences[1].tokens.append(5)
        batches.append(run(made))

    assert [chunk for batch in batches for chunk in batch if chunk[0] == 2] == [
        (2, 0, 31, False),
        (2, 31, 31, False),
        (2, 62, 8, True),
    ]
    assert all(batch[0][0] == 1 and batch[0][3] for batch in batches)


def test_half_of_what_a_batch_reads_is_for_prompts_that_are_sooner_read_than_the_oldest():
    made = scheduler(*(seq(n, 100) for n in (1, 2, 3)), pages=512, max_tokens=32)
    add(made, seq(4, 9))
    add(made, seq(5, 12))

    assert run(made) == [(1, 0, 16, False), (4, 0, 9, True), (5, 0, 7, False)]
    made.sequences[4].tokens.append(5)
    assert run(made) == [(1, 16, 26, False), (4, 9, 1, True), (5, 7, 5, True)]
    made.remove(4)
    made.remove(5)
    assert run(made) == [(1, 42, 32, False)]  # not for those that have as much before them


def test_nothing_is_kept_for_a_short_prompt_that_finds_no_pages():
    made = scheduler(seq(2, 24), pages=11, max_tokens=16)
    settle(made)
    add(made, seq(1, 40))  # its place is before the other's
    made.sequences[1].rank = -1
    made.sequences = dict(sorted(made.sequences.items()))
    assert run(made)[0] == (1, 0, 15, False)
    add(made, seq(3, 9))
    assert made.pool.available == 1

    assert run(made) == [(1, 15, 15, False)]


def test_a_batch_reads_no_more_of_prompts_than_is_allowed_and_always_something():
    made = scheduler(seq(1, 4), seq(2, 400), pages=512, max_tokens=64)
    run(made)
    while made.sequences[2].cached < 200:
        made.sequences[1].tokens.append(5)
        run(made)
    at = made.sequences[2].cached

    def read(work):
        made.sequences[1].tokens.append(5)
        chunks = made.next_batch(gate_open=True, allowance=Allowance(work, deep=float(at)))
        made.done(chunks)
        return [(c.sequence.request, c.n) for c in chunks]

    assert read(30.0) == [(1, 1), (2, 15)]  # each token costs what two cost at the beginning
    assert read(1.0) == [(1, 1), (2, 1)]
    made.sequences[1].tokens.append(5)
    assert [(request, n) for request, _, n, _ in run(made)] == [(1, 1), (2, 63)]


def test_requests_that_are_away_are_skipped_and_keep_their_pages():
    made = scheduler(seq(1, 6), seq(2, 6))
    settle(made)
    made.sequences[1].owned = False
    made.sequences[2].tokens.append(5)

    assert run(made) == [(2, 6, 1, True)]
    assert made.sequences[1].cached == 6


def test_the_gate_holds_back_decodes_and_lets_prefill_through():
    made = scheduler(seq(1, 6))
    settle(made)
    made.sequences[1].tokens.append(5)
    add(made, seq(2, 20))

    assert [s.request for s in made.gated()] == [1]
    assert [s.request for s in made.held()] == [2]
    assert run(made, gate_open=False) == [(2, 0, 20, True)]


def test_reading_ahead_stops_before_the_last_token_and_samples_nothing():
    made = scheduler(seq(1, 9, owned=False, read_ahead=8))

    assert run(made) == [(1, 0, 8, False)]
    assert run(made) == []

    come(made, 1)
    assert run(made) == [(1, 8, 1, True)]


def test_a_request_that_returns_with_nothing_new_reads_its_last_token_again():
    made = scheduler(seq(1, 9))
    settle(made)
    run(made)

    assert run(made) == [(1, 8, 1, True)]


def test_a_known_prompt_is_not_read_again():
    made = scheduler(seq(1, 13))
    settle(made)
    made.remove(1)
    add(made, seq(2, 13, token=1))

    assert run(made) == [(2, 12, 1, True)]


def test_two_requests_share_the_pages_of_one_prompt():
    made = scheduler(seq(1, 13))
    settle(made)
    add(made, seq(2, 13, token=1))
    run(made)

    assert made.sequences[2].pages[:3] == made.sequences[1].pages[:3]


def test_a_full_pool_drops_cached_prefixes_first():
    made = scheduler(seq(1, 12), pages=4)
    settle(made)
    made.remove(1)
    add(made, seq(2, 16))

    settle(made)

    assert made.n_preempted == 0


def test_pending_requests_are_preempted_before_running_ones_and_the_youngest_first():
    made = scheduler(*(seq(n, 4) for n in (1, 2, 3, 4)), pages=4)
    settle(made)
    made.sequences[2].owned = made.sequences[3].owned = False
    made.sequences[1].tokens.append(5)

    assert run(made)[0] == (1, 4, 1, True)
    assert [len(s.pages) for s in made.sequences.values()] == [2, 1, 0, 1]


def test_a_preempted_request_reads_its_tokens_again_and_goes_on():
    made = scheduler(seq(1, 4), seq(2, 4), pages=2)
    settle(made)
    made.sequences[1].tokens.append(5)
    made.sequences[2].tokens.append(6)

    assert run(made) == [(1, 4, 1, True)]
    made.remove(1)
    assert run(made) == [(2, 0, 5, True)]


def test_a_prefill_never_takes_the_pages_of_an_older_pending_request():
    made = scheduler(seq(1, 8), pages=3)
    settle(made)
    made.sequences[1].owned = False
    add(made, seq(2, 12))

    assert run(made) == [(2, 0, 4, False)]
    assert run(made) == []
    assert made.sequences[1].cached == 8


def test_reading_ahead_that_lost_its_pages_to_a_later_request_leaves_the_batch():
    made = scheduler(seq(1, 9, owned=False, read_ahead=8), seq(2, 8), pages=2)

    assert run(made) == [(2, 0, 8, True)]
    assert (made.sequences[1].pages, made.sequences[1].cached) == ([], 0)


def test_what_cannot_fit_the_empty_pool_does_not_fit():
    made = scheduler(pages=4, size=4)

    assert made.fits(16)
    assert not made.fits(17)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(4, 9), st.integers(2, 12))
def test_every_request_ends_whatever_the_pool(seed, pages, n):
    """Random lengths, random absences, a pool that holds one or two requests: all end, and no page is lost."""
    rng = random.Random(seed)
    made = scheduler(pages=pages, size=2, max_tokens=8)
    goal = {r: rng.randint(1, 2 * pages) for r in range(1, n + 1)}
    arrivals = [seq(r, rng.randint(1, goal[r])) for r in goal]
    for _ in range(5000):
        if arrivals and rng.random() < 0.5:
            add(made, arrivals.pop(0))
        for sequence in made.sequences.values():
            if not sequence.owned and rng.random() < 0.3:  # it comes home
                if len(sequence.tokens) < goal[sequence.request]:
                    sequence.tokens.append(0)
                come(made, sequence.request)
        chunks = made.next_batch(gate_open=True)
        made.done(chunks)
        made.check()
        for chunk in chunks:
            sequence = chunk.sequence
            if not chunk.samples:
                continue
            if len(sequence.tokens) >= goal[sequence.request]:
                made.remove(sequence.request)
            elif rng.random() < 0.3:
                sequence.owned = False
            else:
                sequence.tokens.append(0)
        if not made.sequences and not arrivals:
            break
    assert not made.sequences and not arrivals
    assert made.pool.n_free + made.pool.n_kept == made.pool.total


def test_prefill_goes_on_beside_a_decode_that_finds_no_page_in_batches_of_two():
    """All pages are with the old request, whose prefill must end before anybody gets one."""
    made = scheduler(seq(1, 32), pages=8, max_tokens=2)
    while made.pool.available:
        assert run(made)
    add(made, seq(2, 5))

    assert run(made)[0][0] == 1


def test_a_batch_without_prompts_is_tried_only_where_others_can_run():
    made = scheduler(seq(1, 60), seq(2, 8), pages=15, max_tokens=40)
    made.done(made.next_batch(gate_open=True))
    assert made.gated() == [made.sequences[2]]
    made.release(made.sequences[2])
    made.sequences[
        2
    ].prefilling = False  # it waits at the gate without pages, and the prompt has them all
    made.sequences[1].pages += made.pool.take(made.pool.available)
    pace = Pace(100.0, 1000)
    for _ in range(KNOWN):
        pace.took([(0, 100)], 100.0)

    chunks = made.paced(pace, gate_open=True, writing=True)

    assert [c.sequence.request for c in chunks] == [1]
