"""Captured steps on a CPU, where a replay is a call over the same buffers: padding, what is left from the step before, buckets."""

import random

import pytest
import torch

from tests.factories import prompts, save_model, vocabulary_size
from tests.models.harness import ours, patch
from tests.runtime import tiny
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.graphs import TOKENS, Wanted, buckets, counted
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.model import Extension
from tokenrouter.runtime.model.static import Bucket, Static
from tokenrouter.runtime.runner import ModelRunner

PAGE, PAGES = 8, 40
FAMILIES = {
    "llama": {},
    "qwen3, tied and padded": {"family": "qwen3", "tied": True, "padding": 13, "seed": 1},
    "mistral with a sliding window": {"family": "mistral", "seed": 2},
    "another family": {"family": "olmo2", "seed": 3},
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    made = {}

    def get(name, *, deterministic=False):
        key = (name, deterministic)
        if key not in made:
            path = tmp_path_factory.mktemp("graphs")
            save_model(path, **FAMILIES[name])
            if "sliding" in name:
                patch(path, sliding_window=5)
            dtype = "float32" if deterministic else "float64"
            made[key] = ours(path, dtype, deterministic=deterministic)
        return made[key]

    return get


def runner(model, *, captured, most=16, context=64, hidden=True):
    wanted = Wanted(buckets(most), context, hidden) if captured else None
    made = ModelRunner(model, PAGES * PAGE, PAGE, vocabulary_size(), graphs=wanted)
    for tensor in (*made.cache.keys, *made.cache.values):
        tensor.fill_(1e3)  # what nobody must read
    return made


class Requests:
    """Requests that grow by random extends, and the pages that each has, of all there are and in disorder."""

    def __init__(self, n, seed):
        self.random = random.Random(seed)
        pages = list(range(PAGES))
        self.random.shuffle(pages)
        self.texts = prompts(n, seed=seed, longest=24)
        self.at = [0] * n
        each = PAGES // n
        self.pages = [pages[r * each : (r + 1) * each] for r in range(n)]

    def some(self, most_tokens):
        """A batch of some requests: each with 1 to `most_tokens` tokens, most of them sampling."""
        chosen = [r for r in range(len(self.texts)) if self.random.random() < 0.7] or [0]
        batch = []
        for r in chosen:
            n = self.random.randint(1, most_tokens)
            if self.at[r] + n > len(self.pages[r]) * PAGE:
                continue
            new = [self.random.randrange(4, vocabulary_size()) for _ in range(n)]
            # Only the pages that the tokens need: behind them stands nothing of this request.
            held = self.pages[r][: -(-(self.at[r] + n) // PAGE)]
            batch.append(Extension(new, self.at[r], held, int(self.random.random() < 0.9)))
            self.at[r] += n
        return batch


@pytest.mark.parametrize("name", FAMILIES)
def test_a_captured_step_gives_what_an_eager_one_gives(models, name):
    eager, captured = (runner(models(name), captured=on) for on in (False, True))
    requests = Requests(8, seed=1)
    used = set()
    for _ in range(60):
        batch = requests.some(random.Random(len(used)).choice([1, 1, 2, 5, 8]))
        if not batch:
            break
        one, two = (each.read(batch, hidden=True) for each in (eager, captured))
        for a, b in zip(one, two, strict=True):
            torch.testing.assert_close(b, a, rtol=0, atol=1e-11)
        used |= set(captured.graphs.replays)

    assert len(used) >= 4, used
    assert sum(captured.graphs.replays.values()) > 10
    # The pages of requests hold the same: padding wrote to the page behind them alone.
    for a, b in zip(eager.cache.keys, captured.cache.keys, strict=True):
        torch.testing.assert_close(b[: PAGES * PAGE], a, rtol=0, atol=1e-11)


def test_what_a_step_gave_does_not_change_with_the_next(models):
    captured = runner(models("llama"), captured=True)
    pages = [[0, 1], [2, 3]]

    first = captured.read([Extension([5, 6], 0, pages[0])], hidden=True)
    kept = [first.logits.clone(), first.hidden.clone()]
    captured.read([Extension([9, 7], 0, pages[1])], hidden=True)

    assert torch.equal(first.logits, kept[0]) and torch.equal(first.hidden, kept[1])


def test_nothing_of_a_larger_batch_is_left_for_a_smaller_one(models):
    captured, fresh = (runner(models("llama"), captured=True) for _ in range(2))
    full = [Extension([9, 8, 7, 6], 0, [at]) for at in range(3)]
    captured.read(full, hidden=True)
    less = [Extension([5, 4, 3], 0, [10]), Extension([2], 0, [11])]

    assert captured.graphs.find(full) == captured.graphs.find([*less, less[1]]) == Bucket(4, 4)
    again = captured.read([*less, Extension([2], 0, [12])], hidden=True)
    alone = fresh.read([*less, Extension([2], 0, [12])], hidden=True)

    assert torch.equal(again.logits, alone.logits)


def test_in_deterministic_mode_captured_and_eager_steps_give_the_same_bits(models):
    model = models("llama", deterministic=True)
    eager, captured = (runner(model, captured=on) for on in (False, True))
    batch = [Extension([9, 8, 7], 0, [3]), Extension([5], 0, [1])]

    one, two = (each.read(batch, hidden=True) for each in (eager, captured))

    assert captured.graphs.replays == {Bucket(2, 4): 1}
    assert torch.equal(one.logits, two.logits) and torch.equal(one.hidden, two.hidden)


@pytest.mark.parametrize(
    ("extensions", "expected"),
    [
        ([(1, 0)], Bucket(1, 1)),
        ([(1, 0)] * 3, Bucket(4, 1)),
        ([(1, 0), (3, 7)], Bucket(2, 4)),
        ([(8, 0)] * 16, Bucket(16, 8)),
        ([(1, 0)] * 17, "requests"),
        ([(9, 0)], "tokens"),
        ([(1, 63)], Bucket(1, 1)),
        ([(1, 71), (5, 3)], "context"),
    ],
    ids=str,
)
def test_a_batch_takes_the_smallest_bucket_that_holds_it(models, extensions, expected):
    graphs = runner(models("llama"), captured=True).graphs
    batch = [Extension([4] * n, start, list(range(10))) for n, start in extensions]

    assert graphs.find(batch) == expected


def test_what_no_captured_step_holds_runs_eagerly_and_is_counted(models):
    captured, eager = (runner(models("llama"), captured=on) for on in (True, False))
    batches = [
        [Extension(list(range(4, 16)), 0, [0, 1])],
        [Extension([4, 5, 6], 0, [2], samples=3)],
        [Extension([4], 0, [3]) for _ in range(17)],
        [Extension([4], 12, [0, 1])],
    ]
    for batch in batches:
        one, two = (each.read(batch, hidden=True) for each in (eager, captured))
        torch.testing.assert_close(two.logits, one.logits, rtol=0, atol=1e-11)

    assert counted(captured) == ([(1, 1, 1)], {"tokens": 1, "scored": 1, "requests": 1})
    assert counted(eager) == ([], {})


def test_padding_lies_on_the_scratch_page_and_behind_a_requests_tokens():
    static = Static.new(Bucket(3, 4), 5, PAGE, scratch=99)

    static.fill([Extension([7, 8], 15, [20, 21, 22]), Extension([9], 0, [4])])

    parts = static.on_device
    assert parts.token_ids.tolist() == [[7, 8, 0, 0], [9, 0, 0, 0], [0, 0, 0, 0]]
    assert parts.positions.tolist() == [[15, 16, 17, 18], [0, 1, 2, 3], [0, 1, 2, 3]]
    scratch = [99 * PAGE + at for at in range(4)]
    assert parts.slots.tolist() == [[21 * PAGE + 7, 22 * PAGE, *scratch[2:]], [4 * PAGE, *scratch[1:]], scratch]  # fmt: skip
    assert parts.rows.tolist() == [1, 4, 8]
    assert parts.lengths.tolist() == [19, 4, 4]
    assert parts.table.tolist() == [[20, 21, 22, 99, 99], [4, 99, 99, 99, 99], [99] * 5]


def test_buckets_are_powers_of_two_up_to_what_may_be_active():
    assert {b.requests for b in buckets(5)} == {1, 2, 4, 8}
    assert {b.requests for b in buckets(1)} == {1}
    assert max(b.requests for b in buckets(1000)) == 64
    assert {b.tokens for b in buckets(5)} == set(TOKENS)
    assert buckets(5)[0] == Bucket(8, 8)  # the largest first, whose memory the others share


def test_an_engine_with_captured_steps_writes_the_same_and_tells_how_often_they_ran(tmp_path):
    plan = tiny.real(tiny.PLANS["ping_pong"](), tiny.save(tmp_path))
    sampled = [Sampling(max_tokens=20, seed=at, temperature=float(at % 2)) for at in range(6)]

    def written(mode):
        engine = Engine(plan, graphs=mode)
        made = engine.generate(prompts(6, seed=2), sampled)
        engine.check_integrity()
        return [(c.ids, c.models) for c in made], [s.report() for s in engine.subservers]

    plain, without = written("auto")  # on a CPU, nothing is captured by itself
    captured, reports = written("on")

    assert captured == plain
    assert [r.captured for r in without] == [[], []]
    for report in reports:
        assert sum(n for _, _, n in report.captured) + sum(report.eager.values()) == report.steps
        assert sum(n for _, _, n in report.captured) > report.steps / 2
