"""Whatever arrives at a socket: what is no message, or none for this plan, is thrown away, and both sides go on serving."""

import logging
import math
import random
from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime import plain, toy
from tokenrouter.plan import structs as plan_
from tokenrouter.runtime import messages as m
from tokenrouter.runtime.book import MOST_LOSSES
from tokenrouter.runtime.checks import MessageCheck, sampling_fault
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.errors import RequestRefused
from tokenrouter.runtime.messages import Admit, Handoff, Lost, RouteState, Sampling
from tokenrouter.runtime.transport import parse_for_front_end, parse_for_subserver

ODD = [-(2**63), -7, -1, 0, 1, 2, 3, 23, 24, 2**31, 2**40, 2**63, 2**64 - 1]
ODD += [math.nan, math.inf, -math.inf, 0.5, 1e308, None, True, "", "Admit", b"\x80", [], {}, [[]]]
FRESH = 2**41  # the wire number of a request above all odd ones that are taken
PROMPT, SAMPLING = [3, 1, 4, 1, 5, 9, 2, 6], toy.greedy(30, ignore_eos=True)


PARAM = plan_.Param(name="tau", unit="nats", value=1.5, low=0.0, high=4.0)
VAR = plan_.Var(name="best", unit="number", value=0.0)


def started():
    """An engine over toys in the midst of work, and its requests."""
    plan = toy.ping_pong(prefill=["eager", "lazy"], params=[PARAM], vars_=[VAR])
    made = Engine(plan, models=toy.toys(plan))
    for prompt in toy.prompts(3):
        made.submit(prompt, toy.greedy(24, ignore_eos=True, top_logprobs=2))
    return made


def traffic():
    """One message of each kind that travels, and more of those that carry most, as plain values by receiver."""
    made = started()
    found = {}
    while waiting := made.queues.waiting() or made.step():
        if waiting is True:
            continue
        _, data = made.queues.channels[waiting[0]][0]
        value = msgspec.msgpack.decode(data)
        found.setdefault((waiting[0][1] < 0, value["type"]), []).append(value)
        made.step()
    for kind in (m.Refused, m.Lost, m.Scores, m.Tally, m.Report, m.Failed, m.Windows, m.Flush):
        to_front = kind in get_args(m.ToFrontEnd)
        found.setdefault((to_front, kind.__name__), []).append(plainly(SAMPLES[kind]))
    return {
        side: [each[at] for (front, _), each in sorted(found.items()) if front == side for at in
               sorted({0, len(each) // 2, len(each) - 1})]
        for side in (False, True)
    }  # fmt: skip


def plainly(message):
    return msgspec.msgpack.decode(m.encode(message))


SAMPLES = {
    m.Refused: m.Refused(request=1, model=0, reason="x"),
    m.Lost: m.Lost(request=2, model=1),
    m.Scores: m.Scores(request=1, start=1, places=[(-0.5, [(3, -0.5)])]),
    m.Tally: m.Tally(
        model=0,
        epoch=1,
        steps=4,
        n_active=2,
        window=1,
        waiting=0,
        launches={"window": 4},
        batch_sizes={1: 4},
        delays=[4] + [0] * 10,
        delay_sum_ms=2.0,
        entered=1,
        ended=1,
        ended_tokens=9,
        moves=[m.Move(home=-1, left=0, target=1, target_home=-1, target_left=0, n=3, kept=2)],
        times=[m.StepTime(size=1, n=4, median_ms=1.0)],
    ),
    m.Report: m.Report(
        model=0,
        epoch=1,
        running=0,
        pending=0,
        pages=9,
        free=8,
        kept=1,
        preempted=0,
        steps=3,
        handoffs=[(1, -1, 2)],
    ),
    m.Failed: m.Failed(model=0, epoch=1, reason="x"),
    m.Windows: m.Windows(windows=[1, 1]),
    m.Flush: m.Flush(),
}
TRAFFIC = traffic()
KINDS = {False: get_args(m.ToSubserver), True: get_args(m.ToFrontEnd)}


def mutate(value, rng):
    """Return a value with something of it, deep or not, replaced, dropped, doubled or cut."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        changed = dict(value)
        if rng.random() < 0.1:
            del changed[key]
        else:
            changed[key] = mutate(value[key], rng)
        return changed
    if isinstance(value, list) and value and rng.random() < 0.8:
        at = rng.randrange(len(value))
        kind = rng.choice(["change", "drop", "double", "cut"])
        if kind == "change":
            return [*value[:at], mutate(value[at], rng), *value[at + 1 :]]
        return {"drop": value[:at] + value[at + 1 :], "double": value * 2, "cut": value[:at]}[kind]
    if isinstance(value, int) and rng.random() < 0.4:
        return min(max(value + rng.choice([-1, 1]), -(2**63)), 2**64 - 1)
    return rng.choice(ODD)


def of_type(kind, rng):
    """Return a plain value as a type's decoder takes it, drawn anew."""
    info = msgspec.inspect.type_info(kind) if isinstance(kind, type) else kind
    match info:
        case msgspec.inspect.StructType():
            fields = {f.encode_name: of_type(f.type, rng) for f in info.fields}
            return fields if info.tag is None else {"type": info.tag, **fields}
        case msgspec.inspect.ListType():
            return [of_type(info.item_type, rng) for _ in range(rng.choice([0, 1, 2, 2, 5]))]
        case msgspec.inspect.TupleType():
            return [of_type(each, rng) for each in info.item_types]
        case msgspec.inspect.DictType():
            return {of_type(info.key_type, rng): of_type(info.value_type, rng) for _ in range(2)}
        case msgspec.inspect.UnionType():
            return of_type(rng.choice(info.types), rng)
        case msgspec.inspect.LiteralType():
            return rng.choice(info.values)
        case msgspec.inspect.IntType():
            return rng.choice([0, 1, 2, *(odd for odd in ODD if type(odd) is int)])
        case msgspec.inspect.FloatType():
            return rng.choice([odd for odd in ODD if type(odd) is float])
        case msgspec.inspect.BoolType():
            return rng.random() < 0.5
        case msgspec.inspect.StrType():
            return rng.choice(["", "window", "x" * 300])
        case _:
            return None


def hostile(rng, to_front_end):
    """Return bytes that somebody might send."""
    match rng.randrange(8):
        case 0:
            return rng.randbytes(rng.randrange(60))
        case 1 | 2:
            return msgspec.msgpack.encode(of_type(rng.choice(KINDS[to_front_end]), rng))
        case 3:
            data = bytearray(msgspec.msgpack.encode(rng.choice(TRAFFIC[to_front_end])))
            data[rng.randrange(len(data))] = rng.randrange(256)
            return bytes(data)
        case 4:
            return msgspec.msgpack.encode(rng.choice(TRAFFIC[not to_front_end]))
        case _:
            value = rng.choice(TRAFFIC[to_front_end])
            for _ in range(rng.choice([1, 1, 1, 2, 4])):
                value = mutate(value, rng)
            return msgspec.msgpack.encode(value)


def served_as_ever(made):
    """What is under way ends or is given up, and a request of now gets its own tokens and gives all pages back."""
    for request in list(made.book.entries):
        made.abort(request)
    while made.queues.waiting():
        made.step()
    for subserver in made.subservers:
        subserver.scheduler.check()
    made.book._wires = FRESH
    request = made.submit(PROMPT, SAMPLING)
    while made.completions[request].finish is None:
        assert made.step()
    completion = made.completions[request]
    assert list(zip(completion.ids, completion.models, strict=True)) == WANTED
    for subserver in made.subservers:
        subserver.scheduler.check()
        assert FRESH + 1 not in subserver.scheduler.sequences or made.queues.waiting()


WANTED = plain.serve(toy.ping_pong(params=[PARAM], vars_=[VAR]), PROMPT, SAMPLING)


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32), to_front_end=st.booleans())
def test_no_message_whatever_it_holds_stops_a_handler_or_what_comes_after(seed, to_front_end):
    rng = random.Random(seed)
    made = started()
    for _ in range(rng.choice([3, 12, 40, 90])):
        made.step()

    for _ in range(12):
        data = hostile(rng, to_front_end)
        model = rng.randrange(2)
        if to_front_end:
            message = parse_for_front_end(data, made.check)
            if message is not None and not isinstance(message, Lost):
                made._receive(message)
        else:
            message = parse_for_subserver(data, made.check, model)
            if message is not None:
                made.subservers[model].receive(message)
        made.step()

    served_as_ever(made)


def admit(**changes):
    fields = {
        "request": 9,
        "prompt": [1, 2, 3],
        "sampling": Sampling(),
        "params": [1.5],
        "state": RouteState(owner=0, counts=[0, 0], vars=[0.0]),
        "epochs": [1, 1],
    }
    return Admit(**{**fields, **changes})


def handoff(**changes):
    state = RouteState(owner=1, position=1, counts=[1, 0], vars=[0.0])
    fields = {"request": 1, "epoch": 1, "start": 3, "tokens": [4], "seen": [4, 4], "state": state}
    return Handoff(**{**fields, **changes})


STATE = {"owner": 0, "counts": [0, 0], "vars": [0.0]}


@pytest.mark.parametrize(
    "message",
    [
        admit(epochs=[1]),
        admit(epochs=[]),
        admit(params=[]),
        admit(prompt=[]),
        admit(prompt=[24]),
        admit(prompt=[-1]),
        admit(prompt=[1] * 257),
        admit(request=-1),
        admit(queues=[1]),
        admit(output=[5]),
        admit(sampling=Sampling(temperature=math.nan)),
        admit(sampling=Sampling(top_logprobs=-1)),
        admit(sampling=Sampling(logit_bias={99: 1.0})),
        admit(state=RouteState(**{**STATE, "owner": 2})),
        admit(state=RouteState(**{**STATE, "owner": -1})),
        admit(state=RouteState(**{**STATE, "counts": [0]})),
        admit(state=RouteState(**{**STATE, "vars": []})),
        admit(state=RouteState(**STATE, home=2)),
        admit(state=RouteState(**STATE, until=0, home=1)),
        admit(state=RouteState(**STATE, windows=[[], [], []])),
        handoff(state=RouteState(**STATE)),
        handoff(tokens=[77]),
        handoff(start=-1),
        handoff(seen=[4]),
        handoff(seen=[4, 400]),
        handoff(start=256, tokens=[1]),
        m.Windows(windows=[]),
        m.Windows(windows=[0]),
        m.Active(n=-1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_to_a_subserver_that_its_plan_cannot_have_is_one_line(message, caplog):
    check = started().check

    with caplog.at_level(logging.WARNING, logger="tokenrouter"):
        assert parse_for_subserver(m.encode(message), check, 1) is None

    assert [type(message).__name__ in r.getMessage() for r in caplog.records] == [True]


TOKEN = m.Token(
    request=1,
    token=1,
    model=0,
    rule=0,
    logprob=0.0,
    state=RouteState(owner=0, position=1, counts=[1, 0], vars=[0.0]),
)


def commits(model=0, **changes):
    token = msgspec.structs.replace(TOKEN, **changes)
    return m.Commits(model=model, epoch=1, tokens=[token])


@pytest.mark.parametrize(
    "message",
    [
        commits(model=2),
        commits(model=-1),
        commits(token=24),
        commits(token=-1),
        commits(rule=7),
        commits(top=[(99, 0.0)]),
        commits(state=RouteState(owner=5, position=1, counts=[1, 0], vars=[0.0])),
        commits(state=RouteState(owner=0, position=0, counts=[1, 0], vars=[0.0])),
        m.Scores(request=1, start=0, places=[]),
        m.Scores(request=1, start=1, places=[(0.0, [(99, 0.0)])]),
        m.Held(model=2, epoch=1, requests=[]),
        m.Gated(model=7, epoch=1, waiting=1),
        m.Gated(model=0, epoch=1, waiting=-1),
        m.Ready(model=3, epoch=1, capacity_tokens=1),
        m.Failed(model=2, epoch=1, reason="x"),
        m.Refused(request=1, model=-2, reason="x"),
        msgspec.structs.replace(SAMPLES[m.Report], pages=0),
        msgspec.structs.replace(SAMPLES[m.Report], handoffs=[(2, 0, 1)]),
        msgspec.structs.replace(SAMPLES[m.Tally], delays=[]),
        msgspec.structs.replace(SAMPLES[m.Tally], delay_sum_ms=math.nan),
        msgspec.structs.replace(SAMPLES[m.Tally], batch_sizes={0: 1}),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_to_the_front_end_that_its_plan_cannot_have_is_one_line(message, caplog):
    check = started().check

    with caplog.at_level(logging.WARNING, logger="tokenrouter"):
        assert parse_for_front_end(m.encode(message), check) is None

    assert [type(message).__name__ in r.getMessage() for r in caplog.records] == [True]


def test_nesting_without_end_is_no_message(caplog):
    deep = b"\x82\xa4type\xa5Flush\xa1x" + b"\x91" * 200_000 + b"\xc0"

    assert parse_for_subserver(deep, started().check, 0) is None


def test_a_hand_off_that_leaves_a_gap_costs_the_request_nothing():
    made = started()
    request = next(iter(made.book.entries))
    while not any(not s.owned for s in made.subservers[1].scheduler.sequences.values()):
        made.step()
    while made.book.entries[request].wire not in made.subservers[1].scheduler.sequences:
        made.step()
    sequence = made.subservers[1].scheduler.sequences[made.book.entries[request].wire]
    state = RouteState(owner=1, position=3, counts=[3, 0], vars=[0.0])
    n = len(sequence.tokens)
    gap = handoff(request=sequence.request, start=n + 2, tokens=[4], seen=[n, n + 3], state=state)
    wire = sequence.request

    made.subservers[1].receive(gap)
    made.run()

    tokens = made.completions[request].tokens
    wanted = plain.serve(made.plan, toy.prompts(3)[0], toy.greedy(24, ignore_eos=True))
    assert [(t.token, t.model) for t in tokens] == wanted
    assert wire not in made.subservers[1].scheduler.sequences
    made.check_integrity()


def test_a_request_that_is_lost_again_and_again_ends():
    made = started()
    while not made.book._by_wire:
        made.step()
    request = next(iter(made.book.entries))

    ended = [made.book.lost(made.book.wire_of(request)) for _ in range(MOST_LOSSES + 1)]

    assert [entry is not None for entry in ended] == [False] * MOST_LOSSES + [True]
    assert request not in made.book.entries


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=math.inf),
        Sampling(temperature=-0.1),
        Sampling(top_p=0.0),
        Sampling(min_p=1.1),
        Sampling(top_k=-1),
        Sampling(seed=2**64),
        Sampling(presence_penalty=math.nan),
        Sampling(repetition_penalty=0.0),
        Sampling(logit_bias={24: 0.0}),
        Sampling(logit_bias={2: math.inf}),
        Sampling(prompt_logprobs=-1),
    ],
    ids=str,
)
def test_what_a_subserver_would_throw_away_is_refused_where_it_is_submitted(sampling):
    with pytest.raises(RequestRefused):
        started().submit([1], sampling)


def test_a_sampling_of_the_defaults_has_no_fault():
    assert sampling_fault(Sampling(), 24) is None
    assert MessageCheck(toy.ping_pong()).to_subserver(m.Flush(), 0) is None
