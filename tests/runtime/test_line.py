"""The line of models in turn: who steps next, and with which hand-offs."""

import os
import select
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from tests.runtime import toy
from tests.runtime.test_turns import TAKER, until, waits
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.line import Line
from tokenrouter.runtime.messages import (
    Admit,
    Handoff,
    Held,
    RouteState,
    Sampling,
    decode_to_front_end,
)
from tokenrouter.runtime.process import IDLE_MS, Post, serve
from tokenrouter.runtime.state import initial
from tokenrouter.runtime.transport import FRONT_END, Sockets, endpoint
from tokenrouter.runtime.turns import FILE, Turns

TABLE = "table"


class Model:
    """One model's end of the line; what is on its way to it arrives when it waits."""

    def __init__(self, directory, model, n_models=2):
        self.inbox = 0  # hand-offs that have arrived
        self.on_its_way = 0
        self.waited = 0  # times
        self.steps = []  # hand-offs that were there, by step
        self.again = 0  # steps that are due after the next one
        self.here = 0
        self.is_due = True
        self.looked = 0  # steps that found nothing due
        self.left = []  # steps so far, by time that there was something to send
        self.line = Line(Turns(directory / FILE), directory / TABLE, n_models, model, self.take_in)

    def take_in(self, wait_ms):
        if wait_ms:
            self.waited += 1
            self.arrive()
        for _ in range(self.inbox):
            self.line.took()
        self.here += self.inbox
        self.inbox = 0

    def arrive(self):
        self.inbox += self.on_its_way
        self.on_its_way = 0

    def step(self):
        """Run where something is due; all but the first step of a turn were asked for by `due`."""
        if not self.is_due:
            self.looked += 1
            self.is_due = True  # when it stands in line again
            return False
        self.steps.append(self.here)
        return True

    def due(self):
        self.again -= 1
        self.is_due = self.again >= 0
        return self.is_due

    def leave(self):
        self.left.append(len(self.steps))

    def run(self):
        self.line.run(self.step, self.due, self.leave)

    def send(self, receiver, n=1, *, lost=False):
        """Hand requests over in a step of one's own."""

        def step():
            if self.looked:
                return False
            self.looked = 1
            for _ in range(n):
                self.line.sent(receiver.line.model)
            if not lost:
                receiver.on_its_way += n
            return True

        self.looked = 0
        self.line.run(step, lambda: False, self.leave)


@pytest.fixture
def pair(tmp_path):
    return Model(tmp_path, 0), Model(tmp_path, 1)


def test_a_model_waits_at_its_turn_for_hand_offs_of_the_steps_that_have_ended(pair):
    small, large = pair

    small.send(large, 3)
    large.run()

    assert large.steps == [3]
    assert large.waited == 1


def test_a_model_to_which_nothing_is_on_its_way_does_not_wait(pair):
    small, large = pair
    small.send(large)
    large.arrive()

    large.run()
    small.run()

    assert (large.steps, large.waited, small.waited) == ([1], 0, 0)


def test_a_hand_off_that_died_with_its_sender_is_waited_for_once(pair):
    small, large = pair
    small.send(large, lost=True)

    large.run()
    waited = large.waited
    large.run()
    small.send(large)
    large.run()

    assert waited >= 1
    assert large.steps == [0, 0, 1]
    assert large.waited == waited + 1


def test_a_model_that_was_started_again_waits_for_what_is_sent_from_then_on(pair, tmp_path):
    small, large = pair
    small.send(large, 2)
    again = Model(tmp_path, 1)
    again.on_its_way = large.on_its_way  # sent to the one before
    again.arrive()
    again.run()

    small.send(again)
    again.run()

    assert again.steps == [2, 3]
    assert again.waited == 1


def test_what_arrives_while_a_model_stands_in_line_is_part_of_its_batch(pair, tmp_path):
    small, large = pair

    with ThreadPoolExecutor(1) as other:
        with Turns(tmp_path / FILE):
            stepped = other.submit(large.run)
            until(lambda: waits(os.getpid()))
            small.line.sent(1)
            large.inbox += 1
            assert not large.steps
        stepped.result(60)

    assert large.steps == [1]
    assert large.waited == 0


def test_a_model_that_is_due_again_goes_on_where_nobody_waits(pair):
    small, _ = pair
    small.again = 2

    small.run()

    assert len(small.steps) == 3
    assert small.left == [1, 2, 3]  # what a step has to say does not wait for the next
    assert small.line.turns.since is None


def test_whoever_waits_comes_before_a_model_that_is_due_again(tmp_path):
    small = Model(tmp_path, 0)
    small.again = 2
    takers, heard = [], []

    def step():
        if not takers:
            command = [sys.executable, "-c", TAKER, str(tmp_path / FILE)]
            takers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            until(lambda: waits(takers[0].pid))
        elif len(small.steps) == 1:
            heard.append(select.select([takers[0].stdout], [], [], 0)[0])
        return small.step()

    small.line.run(step, small.due, small.leave)

    assert len(small.steps) == 3
    assert heard[0], "it was overtaken"
    assert takers[0].communicate(timeout=60)[0] == b"held\nheld\n"


def test_a_model_looks_once_more_before_it_leaves_and_says_that_nothing_is_due(pair):
    small, _ = pair

    small.run()

    assert (small.steps, small.looked, small.left) == ([0], 1, [1])


def test_a_look_that_finds_something_due_after_all_steps_in_the_same_turn(pair):
    small, _ = pair
    ran = [True, True, False]  # the second though nothing seemed due: time has passed

    small.line.run(lambda: ran.pop(0), lambda: False, small.leave)

    assert not ran
    assert len(small.left) == 1


def test_a_turn_tells_since_when_it_follows_that_of_another_process(tmp_path):
    turn = Turns(tmp_path / FILE)
    with turn:
        first = turn.since
    with turn:
        second = turn.since
    command = [sys.executable, "-c", TAKER, str(tmp_path / FILE)]
    subprocess.run(command, stdout=subprocess.PIPE, check=True)
    with turn:
        after = turn.since
    with turn:
        again = turn.since

    assert (first, second, again) == (None, None, None)
    assert after is not None


def test_subservers_tell_the_line_of_the_hand_offs_that_leave_and_come(tmp_path):
    plan = toy.ping_pong()
    engine = Engine(plan, models=toy.toys(plan))
    endpoints = {at: endpoint(tmp_path, at) for at in (FRONT_END, 0, 1)}
    posts, waited = [], []
    for model in (0, 1):
        post = Post(Sockets(model, endpoints, b"key"), plan, model)
        post.subserver = engine.subservers[model]

        def take_in(wait_ms, post=post):
            waited.append(wait_ms)
            post.take_in(wait_ms)

        post.line = Line(Turns(tmp_path / FILE), tmp_path / TABLE, 2, model, take_in)
        posts.append(post)
    small, large = posts
    state = RouteState(owner=1, position=1, counts=[1, 0])
    for request in (1, 2):
        small.send(
            1, Handoff(request=request, epoch=1, start=0, tokens=[1], seen=[1, 1], state=state)
        )

    large.line.complete()
    lost, waited[:] = len(waited) > 1, []
    small.sockets.flush()
    large.take_in(60_000)
    small.send(1, Handoff(request=3, epoch=1, start=0, tokens=[1], seen=[1, 1], state=state))
    small.sockets.flush()
    large.take_in(60_000)
    large.line.complete()

    assert lost, "it knew of none that is on its way"
    assert waited == [0.0], "it knew of none that had come"
    for post in posts:
        post.sockets.close()


def test_only_the_first_step_of_a_turn_follows_anothers(tmp_path):
    small = Model(tmp_path, 0)
    small.again = 1
    command = [sys.executable, "-c", TAKER, str(tmp_path / FILE)]
    subprocess.run(command, stdout=subprocess.PIPE, check=True)
    since = []

    def step():
        since.append(small.line.turns.since is not None)
        return small.step()

    small.line.run(step, small.due, small.leave)

    assert since == [True, False, False]


def test_a_step_that_did_not_run_ends_the_turn(pair):
    small, _ = pair
    small.again = 10

    small.line.run(lambda: False, small.due, small.leave)

    assert small.again == 10
    assert len(small.left) == 1


@pytest.fixture
def served(tmp_path):
    """The first model of two with its post; the front end's end; what a step sends goes through the sockets."""
    plan = toy.ping_pong(tau=99)  # it stays where it is
    engine = Engine(plan, models=toy.toys(plan))
    endpoints = {at: endpoint(tmp_path, at) for at in (FRONT_END, 0, 1)}
    post = Post(Sockets(0, endpoints, b"key"), plan, 0)
    post.subserver = engine.subservers[0]
    post.subserver.send = post.subserver.gate.send = post.send
    front = Sockets(FRONT_END, endpoints, b"key")
    yield plan, post, front
    front.close()
    post.sockets.close()


def admitted(plan, request, n_prompt):
    return Admit(
        request=request,
        prompt=[1] * n_prompt,
        sampling=Sampling(),
        params=[],
        state=initial(plan, 0),
        epochs=[1, 1],
    )


@pytest.mark.parametrize("in_turn", [True, False])
def test_who_cannot_reach_the_gate_is_told_before_the_batch_runs(served, tmp_path, in_turn):
    plan, post, front = served
    if in_turn:
        post.line = Line(Turns(tmp_path / FILE), tmp_path / TABLE, 2, 0, post.take_in)
    heard, run = [], post.subserver.runner.run

    def running(chunks, *, hidden):
        front.wait(2000)
        heard.extend(type(decode_to_front_end(data)) for data in front.receive())
        return run(chunks, hidden=hidden)

    post.subserver.runner.run = running
    post.subserver.receive(admitted(plan, 1, 20))

    post.step()

    assert Held in heard


class Due:
    """A subserver whose gate is open by the time that it says how long to wait."""

    is_empty = True

    def __init__(self, waits, rounds):
        self.waits = waits
        self.rounds = rounds

    @property
    def draining(self):
        return len(self.waits) == self.rounds

    def wait_ms(self):
        return 0.0


@pytest.mark.parametrize(
    ("ran", "waited"),
    [
        ([False] * 4, [0.0, 0.0, IDLE_MS, 0.0]),  # pages are short
        ([False, True, True, False], [0.0, 0.0, 0.0, 0.0]),  # each opened behind the batch before
    ],
)
def test_a_gate_that_opened_since_the_look_is_not_slept_over(ran, waited):
    waits = []
    post = SimpleNamespace(take_in=waits.append, ran=False)

    def step():
        post.ran = ran[len(waits) - 1]
        return False

    post.step = step

    serve(Due(waits, len(waited)), post, os.getppid())

    assert waits == waited


def test_a_request_whose_mask_has_come_steps_in_its_turn(served, tmp_path):
    plan, post, _ = served
    post.subserver.receive(admitted(plan, 1, 4))
    post.step()  # without a line, as far as its first token
    turns, masks = [], Masked()
    post.line = SimpleNamespace(
        run=lambda step, due, leave: bool(turns.append(1)), sent=lambda receiver: None
    )
    post.subserver.masks = masks
    batches = counted(post.subserver)

    post.step()
    masks.come = True
    before = len(turns)
    post.step()

    assert (before, len(turns)) == (0, 1)
    assert not batches


class Masked:
    """Masks of which all come at one moment."""

    come = False

    def begin(self, sequences, now_ms):
        for sequence in sequences:
            sequence.barred = not self.come


def test_nobody_steps_out_of_turn_though_a_gate_opens_behind_the_look(served):
    plan, post, _ = served
    post.subserver.receive(admitted(plan, 1, 4))
    post.line = SimpleNamespace(run=None, sent=lambda receiver: None)
    post.due = lambda: False  # a moment ago
    batches = counted(post.subserver)

    assert not post.step()
    assert not batches


def counted(subserver):
    """Return the batches that a subserver runs from now on."""
    batches, run = [], subserver.runner.run

    def running(chunks, *, hidden):
        batches.append(chunks)
        return run(chunks, hidden=hidden)

    subserver.runner.run = running
    return batches
