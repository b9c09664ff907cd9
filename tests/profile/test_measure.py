"""Measuring: the timed batch is what it says, counts are those of the tokens, and the verb goes all the way."""

import json
import os
import random
import time
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

from tests.factories import save_model
from tests.runtime import toy
from tokenrouter import cli
from tokenrouter.plan.io import read
from tokenrouter.profile import io
from tokenrouter.runtime.counting import count, stay_lengths, unread
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.stepper import Alone, Stepper, dealt
from tokenrouter.runtime.timing import figure, sizes


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("name", toy.PLANS)
def test_every_timed_step_runs_the_whole_batch_whatever_the_rules_do(name):
    plan = toy.PLANS[name](capacity=4096)
    for model, runner in enumerate(toy.toys(plan, 4096)):
        seen = []

        class Watched:
            capacity_tokens = runner.capacity_tokens

            def run(self, chunks, *, hidden, seen=seen, runner=runner):
                seen.append([chunk.n for chunk in chunks if chunk.samples])
                return runner.run(chunks, hidden=hidden)

        stepper = Stepper(plan, model, Settings(), Watched())
        stepper.load(5, 20)
        for _ in range(100):
            seen.clear()
            assert stepper.step() > 0
            assert len(seen[-1]) == 5
            assert max(seen[-1]) <= 3  # a decode or a return, never a prompt


@pytest.mark.parametrize(("name", "unseen"), [("coin", 10), ("ping_pong", 9)])
def test_a_request_comes_back_with_as_many_tokens_as_it_was_away_for(name, unseen):
    plan = toy.PLANS[name](capacity=8192)
    runner, seen = toy.toys(plan, 8192)[0], []

    class Watched:
        capacity_tokens = runner.capacity_tokens

        def run(self, chunks, *, hidden):
            seen.append([chunk.n for chunk in chunks if chunk.samples])
            return runner.run(chunks, hidden=hidden)

    stepper = Stepper(plan, 0, Settings(), Watched())
    stepper.load(3, 20, unread=(9,))
    sizes = Counter()
    for _ in range(60):
        stepper.step()
        sizes[tuple(seen[-1])] += 1

    # Nine of others and its own where that was kept; a request that stayed brings one.
    assert set().union(*sizes) == {1, unseen}
    assert sum(n for size, n in sizes.items() if unseen in size) >= 40


@pytest.mark.parametrize("n", [1, 5, 8, 32, 61])
def test_few_returns_in_a_row_stand_for_all(n):
    values = [at * at for at in range(n)]
    seen = set()
    for seed in range(5):
        order = dealt(values, random.Random(seed))
        seen.add(tuple(order))

        assert sorted(order) == values
        eighth = [
            next(k for k in range(8) if values.index(value) < n * (k + 1) // 8) for value in order
        ]
        for at in range(n // 8):  # whole rounds
            assert len(set(eighth[8 * at : 8 * at + 8])) == 8
    assert len(seen) > 1 or n == 1


def test_a_stay_that_the_end_of_a_request_cut_short_has_no_length():
    def token(model, owner, *, home=None, rule=None, finish=None):
        state = SimpleNamespace(owner=owner, home=home)
        return SimpleNamespace(model=model, rule=rule, finish=finish, state=state)

    begins = token(0, 1, home=0, rule=0)
    whole = [begins, token(1, 1, home=0), token(1, 0)]
    cut = [begins, token(1, 1, home=0), token(1, 0, finish="length")]

    assert stay_lengths([SimpleNamespace(tokens=whole)]) == {(0, 1): Counter({2: 1})}
    assert stay_lengths([SimpleNamespace(tokens=cut)]) == {}


def test_what_was_written_elsewhere_between_two_tokens_of_a_model_is_what_it_must_read():
    def written(*models, asked_back=()):
        owners = [*models[1:], models[-1]]
        tokens = [
            SimpleNamespace(
                model=model, state=SimpleNamespace(owner=1 - model if at in asked_back else owner)
            )
            for at, (model, owner) in enumerate(zip(models, owners, strict=True))
        ]
        return SimpleNamespace(tokens=tokens)

    done = [written(0, 0, 0, 1, 0, 0, 1, 1, 0), written(1, 0, 0, 0, 0, 1, 0)]

    # Model 0 comes back to 1, 2 and 1 tokens, and once to the first; model 1 to 3, 2 and 4.
    assert unread(done, 3) == [[1, 1, 1, 2], [2, 3, 4], [1]]
    # Model 1 left after the second of its two tokens in a row, and came back to nothing.
    assert unread([written(0, 1, 1, 0, asked_back=(1,))], 2) == [[2], [0, 1]]


class Given(Alone):
    """A turn that followed another's at a given time, and notes what is said in it."""

    def __init__(self, since):
        super().__init__()
        self.since, self.said = since, []

    def send(self, receiver, message):
        self.said.append((receiver, type(message)))


def test_a_step_in_turn_counts_from_the_end_of_anothers_for_who_stood_in_line_then():
    plan = toy.ping_pong(capacity=4096)
    stepper = Stepper(plan, 0, Settings(), toy.toys(plan, 4096)[0])
    stepper.load(2, 20)

    assert stepper.step() > 0 and not stepper.followed
    stepper.turn = Given(time.monotonic() + 1000)  # later than this step began
    assert stepper.step() < 0 and stepper.followed
    stepper.turn = Given(time.monotonic() - 1000)  # long before
    assert 0 < stepper.step() < 1e6 and stepper.followed
    assert stepper.turn.said  # a hand-off or a commit, of each request


def test_what_no_pool_holds_is_not_measured():
    plan = toy.ping_pong(capacity=512)
    stepper = Stepper(plan, 0, Settings(), toy.toys(plan, 512)[0])

    assert stepper.fits(4, 20)
    assert not stepper.fits(8, 20)
    assert not stepper.fits(1, 250)


def borrowed_first(ways):
    """How many requests had their first token from a model that was borrowed."""
    lenders = {(stay.home, stay.lender) for stay in ways.stays}
    return sum(m.n for m in ways.first if not m.keep and (m.model, m.to) in lenders)


@pytest.mark.parametrize("name", toy.PLANS)
def test_counted_moves_and_stays_add_up_to_the_tokens(name):
    plan = toy.PLANS[name]()
    engine = Engine(plan, models=toy.toys(plan))

    ways, _ = count(
        engine, toy.prompts(12, longest=20), Sampling(max_tokens=40, temperature=1.0), "toys"
    )

    firsts = sum(move.n for move in ways.first if move.keep)
    assert firsts + borrowed_first(ways) == 12  # a first token each
    tokens = Counter()
    for request in range(1, 13):
        assert request not in engine.completions
    decided = sum(move.n for move in ways.moves if move.keep)
    stays = {(stay.home, stay.lender): stay.lengths for stay in ways.stays}
    borrowed = sum(k * n for lengths in stays.values() for k, n in enumerate(lengths, 1))
    tokens["all"] = decided + borrowed
    cut = ways.tokens - tokens["all"]  # of stays that an end cut short
    assert 0 <= cut <= 5 * 12
    if not name.startswith("borrow"):
        assert cut == 0 and not stays
    if name == "borrow_three":
        assert set(stays) == {(0, 1)} and [n > 0 for n in stays[0, 1]] == [False, False, True]
    if name == "borrow_one":
        assert [n > 0 for n in stays[0, 1]] == [True]


def test_moves_of_a_coin_come_out_at_its_odds():
    plan = toy.coin(p=0.3)
    engine = Engine(plan, models=toy.toys(plan))

    prompts = toy.prompts(60, longest=10)
    ways, _ = count(
        engine, prompts, Sampling(max_tokens=40, temperature=1.0, ignore_eos=True), "toys"
    )

    for model in (0, 1):
        gone = sum(m.n for m in ways.moves if m.model == model and m.to != model)
        every = sum(m.n for m in ways.moves if m.model == model)
        assert abs(gone / every - 0.3) < 4.5 * (0.21 / every) ** 0.5
    assert all(runs.tail is None or runs.tail > 1e-4 for runs in ways.runs)


def test_sizes_of_batches_reach_the_largest():
    assert sizes(1, 2) == [1]
    assert sizes(16, 2) == [1, 2, 4, 8, 16]
    assert sizes(20, 4) == [1, 4, 16, 20]
    assert sizes(16, 2**0.5) == [1, 2, 3, 4, 6, 8, 11, 16]
    assert sizes(64, 2**0.5, 4) == [1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64]
    assert sizes(4, 2**0.5, 16) == [1, 2, 3, 4]


def test_a_figure_is_a_mean_and_a_median_with_quartiles():
    found = figure([5.0, 1.0, 2.0, 3.0, 4.5])

    assert (found.low, found.median, found.high, found.n) == (2.0, 3.0, 4.5, 5)
    assert found.mean == 3.1


def test_a_step_that_something_else_interrupted_is_left_out_of_the_mean():
    found = figure([5.0, 1.0, 2.0, 3.0, 4.0, 80.0])

    assert (found.mean, found.n) == (3.0, 6)


def test_requests_come_back_with_each_number_of_tokens_as_often():
    plan = toy.ping_pong(capacity=8192)
    runner, seen = toy.toys(plan, 8192)[0], Counter()

    class Watched:
        capacity_tokens = runner.capacity_tokens

        def run(self, chunks, *, hidden):
            seen.update(chunk.n for chunk in chunks if chunk.samples)
            return runner.run(chunks, hidden=hidden)

    stepper = Stepper(plan, 0, Settings(), Watched())
    stepper.load(2, 21, unread=(2, 4, 11))
    seen.clear()
    for _ in range(60):
        stepper.step()

    returns = [seen.pop(n) for n in (2, 4, 11)]
    assert set(seen) <= {1}  # of one that stayed
    assert min(returns) > 10
    assert max(returns) - min(returns) <= 2


POLICY = """route 1

model small { use "small" }
model large { use "large" }

policy two {
  start small
  at small {
    when chance < 0.25 -> borrow large for 3
    otherwise          -> commit
  }
}
"""


@pytest.mark.parametrize("turns", [False, True], ids=["beside", "in turn"])
def test_a_plan_is_profiled_and_compiled_again_with_what_was_measured(tmp_path, capfd, turns):
    for seed, name in enumerate(("small", "large")):
        save_model(tmp_path / name, seed=seed, layers=1)
    policy, plan, profile, tuned, prompts = (
        tmp_path / name
        for name in ("two.route", "plan.json", "profile.json", "tuned.json", "p.jsonl")
    )
    policy.write_text(POLICY)
    prompts.write_text('{"prompt": "The sea"}\n{"prompt": "1 2 3"}\n')

    def trc(*args):
        assert cli.main([str(arg) for arg in args]) == 0

    trc("compile", policy, "-o", plan, "--max-active", 4)
    quick = ("--quick", "--prompts", prompts, "--max-tokens", 30)
    threads = len(os.sched_getaffinity(0)) + 1 if turns else 1
    trc("profile", plan, "-o", profile, *quick, "--threads", threads)
    said = capfd.readouterr()
    trc("compile", policy, "-o", tuned, "--max-active", 4, "--profile", profile)

    assert "small: batch 4, 64 tokens: " in said.err
    assert "use it with `trc compile --profile" in said.out
    found = io.read(profile)
    assert [model.name for model in found.models] == ["small", "large"]
    assert found.machine.in_turn == ("they step in turn" in said.err) == turns
    assert all((step.busy is None) == turns for m in found.models for step in m.steps)
    assert all((step.after is not None) == turns for m in found.models for step in m.steps)
    assert (" ms after another model's" in said.err) == turns
    assert (" ms while others are busy" in said.err) != turns
    assert {step.context for m in found.models for step in m.steps} > {64}
    for at, m in enumerate(found.models):
        beside = {(s.by, s.context, s.batch): s.step for s in m.slowed}
        timed = {(1 - at, s.context, s.batch): s.busy for s in m.steps}
        assert beside == ({} if turns else timed)
    assert found.ways.prompts == "p.jsonl" and found.ways.requests == 2
    assert json.loads(profile.read_text())["machine"]["cores"] >= 1
    after = read(tuned)
    assert after.windows.source == after.estimates.source == "profile"
    assert after.program_hash == read(plan).program_hash
    assert len(after.windows.system.model_of) == 2 + 3
    assert after.windows.system.in_turn == bool(after.windows.system.after_ms) == turns
    assert after.windows.machine.endswith("models step in turn") == turns
