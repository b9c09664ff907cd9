"""The front end's record alone: what it refuses, what it tells whom, and in what order it delivers."""

import pytest

from tests.runtime.toy import ping_pong
from tokenrouter.plan import structs as s
from tokenrouter.runtime.book import LONG, Book
from tokenrouter.runtime.errors import RequestRefused
from tokenrouter.runtime.messages import (
    Abort,
    Active,
    Admit,
    Commits,
    Held,
    Ready,
    RouteState,
    Sampling,
    Scores,
    Token,
)

TEN = Sampling(max_tokens=10)
TAU = s.Param(name="tau", unit="nats", value=1.5, low=0.0, high=4.0)


def book(**fields):
    """A book with both subservers up, and what it has sent since."""
    max_waiting = fields.pop("max_waiting", 8)
    sent = []
    made = Book(ping_pong(params=[TAU], **fields), lambda to, m: sent.append((to, m)), max_waiting)
    for model in range(2):
        made.ready(Ready(model=model, epoch=1, capacity_tokens=512))
    sent.clear()
    return made, sent


def told(sent, kind):
    return [(to, m) for to, m in sent if isinstance(m, kind)]


def token(wire, position, model=0, finish=None):
    state = RouteState(owner=0, position=position, counts=[position, 0])
    return Token(
        request=wire,
        token=100 + position,
        model=model,
        rule=0,
        logprob=0.0,
        state=state,
        finish=finish,
    )


def commit(made, *tokens, model=0):
    return [
        (t.request, t.token)
        for t in made.commits(Commits(model=model, epoch=1, tokens=list(tokens)))
    ]


def test_everybody_hears_of_a_request_and_of_how_many_there_are():
    made, sent = book()

    made.submit([1, 2], TEN)

    assert [to for to, _ in told(sent, Admit)] == [0, 1]
    assert told(sent, Active) == [(0, Active(n=1)), (1, Active(n=1))]


def test_tokens_that_overtake_each_other_are_delivered_in_order():
    made, _ = book()
    entry = made.submit([1, 2], TEN)

    assert commit(made, token(1, 2, model=1), model=1) == []
    assert commit(made, token(1, 3)) == []
    assert commit(made, token(1, 1)) == [(1, 101), (1, 102), (1, 103)]
    assert entry.output == [101, 102, 103]


def test_the_end_is_told_to_all_but_the_one_that_brought_it():
    made, sent = book()
    made.submit([1, 2], TEN)

    commit(made, token(1, 2, model=1, finish="stop"), model=1)
    commit(made, token(1, 1, model=0))

    assert told(sent, Abort) == [(0, Abort(request=1))]
    assert not made.entries


def test_what_comes_after_the_end_falls_on_nothing():
    made, _ = book()
    made.submit([1, 2], TEN)
    made.abort(1)

    assert commit(made, token(1, 1)) == []
    made.abort(1)


def test_a_request_goes_on_under_a_new_number_after_a_restart():
    made, sent = book()
    made.submit([1, 2], TEN)
    commit(made, token(1, 1))
    made.down(1)
    sent.clear()

    made.ready(Ready(model=1, epoch=2, capacity_tokens=512))

    assert told(sent, Abort) == [(0, Abort(request=1)), (1, Abort(request=1))]
    (_, again), _ = told(sent, Admit)
    assert (again.request, again.output, again.epochs) == (2, [101], [1, 2])
    assert commit(made, token(1, 2)) == []
    assert commit(made, token(2, 2)) == [(1, 102)]


def test_nothing_is_admitted_while_a_subserver_is_down():
    made, sent = book()
    made.down(0)

    made.submit([1], TEN)
    assert sent == []

    made.ready(Ready(model=0, epoch=2, capacity_tokens=512))
    assert len(told(sent, Admit)) == 2


def test_no_more_requests_are_admitted_than_the_windows_know():
    made, sent = book(max_active=2, max_waiting=3)
    for _ in range(5):
        made.submit([1], TEN)
    assert (made.n_running, len(made.waiting)) == (2, 3)

    with pytest.raises(RequestRefused, match="waiting already") as caught:
        made.submit([1], TEN)
    assert caught.value.kind == "overloaded"

    made.abort(1)
    assert (made.n_running, len(made.waiting)) == (2, 2)
    made.abort(5)
    assert (made.n_running, len(made.waiting)) == (2, 1)
    assert max(m.n for _, m in told(sent, Active)) == 2


def test_long_prompts_leave_places_to_those_behind_them_until_they_are_read():
    made, _ = book(max_active=8, max_waiting=64, context=4096)
    made.capacity = 4096
    long = [made.submit([1] * (LONG + 1), TEN) for _ in range(6)]
    short = [made.submit([1] * LONG, TEN) for _ in range(4)]
    assert [e.wire is not None for e in long] == [True] * 2 + [False] * 4
    assert [e.wire is not None for e in short] == [True] * 4

    commit(made, token(long[0].wire, 1))  # it has been read
    assert [e.wire is not None for e in long] == [True] * 3 + [False] * 3
    commit(made, token(long[0].wire, 2), token(short[0].wire, 1))
    assert made.n_running == 7

    made.abort(long[1].request)
    made.submit([1], TEN)
    assert [e.wire is not None for e in long] == [True, False, True, True, False, False]
    late = [made.submit([1], TEN) for _ in range(2)]
    assert made.n_running == 8 and [e.wire for e in late] == [None, None]
    for entry in [*long, *short, *late]:
        made.abort(entry.request)
    assert len(made.entries) == made.n_running == 1


def test_one_long_prompt_is_read_at_a_time_where_there_are_few_places():
    made, _ = book(max_active=2, max_waiting=64, context=4096)
    made.capacity = 4096
    entries = [made.submit([1] * (LONG + 1), TEN) for _ in range(2)]
    assert [e.wire is not None for e in entries] == [True, False]

    commit(made, token(entries[0].wire, 1, finish="stop"))

    assert entries[1].wire is not None


def test_requests_that_cannot_reach_a_gate_do_not_count_as_active():
    made, sent = book()
    made.submit([1], TEN)
    made.submit([2], TEN)
    sent.clear()

    made.told(Held(model=1, epoch=1, requests=[2]))
    made.told(Held(model=1, epoch=1, requests=[]))

    assert [m.n for to, m in told(sent, Active) if to == 0] == [1, 2]


@pytest.mark.parametrize(
    ("prompt", "sampling", "params", "says"),
    [
        ([], TEN, {}, "empty"),
        ([24], TEN, {}, "token 24 is not in the vocabulary of 24"),
        ([-1], TEN, {}, "token -1"),
        ([1], Sampling(max_tokens=0), {}, "max_tokens is 0"),
        ([1] * 40, TEN, {}, "leaves no room in the context of 40"),
        ([1] * 30, TEN, {}, "may take 39 tokens, and the smallest KV pool holds 32"),
        ([1], TEN, {"tua": 1.0}, "no param `tua`"),
        ([1], TEN, {"tau": 4.5}, "`tau` is 4.5, outside 0 to 4"),
        ([1], TEN, {"tau": float("nan")}, "`tau` is nan"),
        ([1], TEN, {"tau": True}, "`tau` does not take True"),
    ],
)
def test_what_can_never_be_served_is_refused_with_the_reason(prompt, sampling, params, says):
    made, sent = book(context=40, capacity=32)

    with pytest.raises(RequestRefused) as caught:
        made.submit(prompt, sampling, params)

    assert says in str(caught.value)
    assert sent == []


def test_what_just_fits_is_admitted():
    made, _ = book(context=40, capacity=32)

    made.submit([1] * 23, TEN)

    assert made.longest == 33


def test_a_prompt_that_is_scored_alone_may_fill_the_context_and_must_fit_the_pool():
    scored, written = Sampling(max_tokens=0, prompt_logprobs=0), Sampling(max_tokens=1)
    wide, _ = book(context=32, capacity=32)
    narrow, _ = book(context=40, capacity=32)

    wide.submit([1] * 32, scored)
    narrow.submit([1] * 32, scored)

    narrow.submit([1] * 32, written)
    for made, n, sampling in ((wide, 32, written), (wide, 33, scored), (narrow, 33, scored)):
        with pytest.raises(RequestRefused) as caught:
            made.submit([1] * n, sampling)
        assert caught.value.kind == "too_long"


def test_a_dial_is_set_for_one_request():
    made, sent = book()

    made.submit([1], TEN, {"tau": 0.25})
    made.submit([1], TEN)

    assert [m.params for to, m in told(sent, Admit) if to == 0] == [[0.25], [1.5]]


def test_scores_beyond_the_prompt_change_nothing():
    made, _ = book()
    asks = Sampling(max_tokens=10, prompt_logprobs=0)
    entry = made.submit([1, 2, 3], asks)

    made.commits(Scores(request=entry.wire, start=2, places=[(-1.0, []), (-1.0, [])]))
    made.commits(Scores(request=entry.wire, start=9, places=[(-1.0, [])]))

    assert entry.places == [None, None]
