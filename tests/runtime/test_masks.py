"""Grammars that take long: their requests wait, all others go on, and nobody's tokens change."""

import random
import threading
import time

import msgspec
import pytest

from tests.runtime.toy import EOS, PLANS, SIZE, greedy, prompts, toys
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.grammar import Grammars, of_regex

LETTERS = [bytes([96 + id_]) for id_ in range(SIZE)]
PATTERN = of_regex("[a-f]{3}[g-m]{1,40}x")


class Letters:
    """A tokenizer whose ids are letters; reading it may be made to last."""

    special_ids = frozenset({EOS})

    def __init__(self, *, ready=True):
        self.ready = threading.Event()
        if ready:
            self.ready.set()

    def encode(self, text):
        assert self.ready.wait(60)
        return [byte - 96 for byte in text.encode()]

    def id_to_bytes(self, id_):
        assert self.ready.wait(60)
        return LETTERS[id_]


def engine_of(name, tokenizer, *, aside, patience_ms=0.0):
    plan = PLANS[name]()
    engine = Engine(plan, models=toys(plan))
    for subserver in engine.subservers:
        subserver.masks.grammars = Grammars(lambda: tokenizer, SIZE, [EOS])
        if aside:
            subserver.masks.go_aside(patience_ms)
    return engine


def submit(engine, *, grammars):
    sampling = greedy(30)
    bound = msgspec.structs.replace(sampling, grammar=PATTERN)
    return [
        engine.submit(prompt, bound if at in grammars else sampling)
        for at, prompt in enumerate(prompts(6))
    ]


def finish(engine):
    """Let things happen until all is over; where only a thread can go on, wait for it."""
    deadline = time.monotonic() + 120
    while engine.book.entries or engine.queues.waiting():
        if not engine.step():
            assert any(sub.scheduler.barred for sub in engine.subservers), "nothing can happen"
            assert time.monotonic() < deadline, "hangs"
            time.sleep(0.001)
    engine.check_integrity()


def written(engine, requests):
    return [(engine.completions[r].ids, engine.completions[r].models) for r in requests]


@pytest.fixture(params=PLANS, ids=str)
def name(request):
    return request.param


@pytest.mark.parametrize("patience_ms", [0, 1000])
def test_masks_from_threads_change_no_token(name, patience_ms):
    both = []
    for aside in (False, True):
        engine = engine_of(name, Letters(), aside=aside, patience_ms=patience_ms)
        requests = submit(engine, grammars={0, 2, 3})
        finish(engine)
        both.append(written(engine, requests))

    assert both[0] == both[1]
    for at in (0, 2, 3):
        assert all(1 <= id_ <= 6 for id_ in both[0][at][0][:3])


def test_others_write_to_their_end_while_a_grammar_is_compiled(name):
    tokenizer = Letters(ready=False)
    engine = engine_of(name, tokenizer, aside=True)
    bound, *free = requests = submit(engine, grammars={0})

    while any(engine.completions[request].finish is None for request in free):
        assert engine.step(), "a request waits for another one's grammar"

    assert not engine.completions[bound].tokens
    assert sum(subserver.scheduler.barred for subserver in engine.subservers) == 1
    tokenizer.ready.set()
    finish(engine)
    plain = engine_of(name, Letters(), aside=False)
    again = submit(plain, grammars={0})
    finish(plain)
    assert written(engine, requests) == written(plain, again)


def test_a_request_that_waits_for_its_grammar_is_held_back_from_the_windows():
    tokenizer = Letters(ready=False)
    engine = engine_of("ping_pong", tokenizer, aside=True)
    submit(engine, grammars={0})
    while engine.step():
        pass

    [barred] = [sub for sub in engine.subservers if sub.scheduler.barred]
    assert len(barred.scheduler.held()) == 1 and not barred.scheduler.gated()
    assert 0 < barred.wait_ms() <= 1
    assert barred.gate.n_active == 0
    tokenizer.ready.set()
    finish(engine)


@pytest.mark.parametrize("seed", range(4))
def test_a_request_given_up_while_its_grammar_is_compiled_leaves_nothing(seed):
    tokenizer = Letters(ready=False)
    engine = engine_of("ping_pong", tokenizer, aside=True)
    requests = submit(engine, grammars={0, 1, 2})
    for _ in range(random.Random(seed).randrange(60)):
        engine.step()

    for request in requests[:3]:
        engine.abort(request)
    tokenizer.ready.set()

    finish(engine)
    assert all(engine.completions[r].finish for r in requests[3:])


def test_a_grammar_that_cannot_be_followed_is_refused_from_a_thread_too():
    engine = engine_of("ping_pong", Letters(), aside=True)
    [prompt] = prompts(1)
    bound = engine.submit(prompt, msgspec.structs.replace(greedy(30), grammar=of_regex("[0-9]")))

    while bound not in engine.refusals:
        engine.step()

    assert "it allows no text" in engine.refusals[bound]
    engine.check_integrity()
