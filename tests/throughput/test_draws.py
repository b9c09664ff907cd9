"""Random routing: the right law, and luck that depends on its key alone."""

import numpy as np
import pytest
from scipy.stats import binom

from tests.throughput.specs import pair
from tokenrouter.throughput.draws import Router, binomial, binomial_steps, uniform
from tokenrouter.throughput.system import build


@pytest.mark.parametrize("q", [1e-20, 0.01, 0.35, 0.5, 0.999])
def test_a_uniform_number_becomes_its_quantile(q):
    steps = binomial_steps(300, q)
    b = np.array([0, 1, 2, 7, 64, 299, 300])

    for u in (0.0, 0.1, 0.45, 0.77, 1 - 2.0**-40):
        x = binomial(steps, b, np.full(len(b), u))
        assert ((x >= 0) & (x <= b)).all()
        if 0 < u < 0.9:
            assert x.tolist() == binom.ppf(u, b, q).clip(0).tolist()


def test_uniform_numbers_look_uniform_and_differ_by_key_and_place():
    keys = np.arange(50, dtype=np.uint64) * np.uint64(2**40 + 7)
    u = np.array([uniform(keys, np.full(50, at)) for at in range(2000)])

    counts, _ = np.histogram(u, 100, (0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < 170  # chi-square, 99 degrees
    assert abs(np.corrcoef(u[:-1].ravel(), u[1:].ravel())[0, 1]) < 0.015
    assert len(np.unique(u)) == u.size


def test_luck_belongs_to_copy_and_completion_not_to_the_order_of_asking():
    system = build(pair(8))
    both = Router(system, np.array([0, 1]), seed=5)
    alone = Router(system, np.array([1]), seed=5)

    def step(router, done, finished):
        k = np.zeros((2, done.shape[1]), dtype=np.int64)
        router.route(k, done, finished)
        return k

    first = np.array([[0, 5], [3, 0]])  # copy 0 finishes at model 1 meanwhile, copy 1 at model 0
    seen = step(both, first, first > 0)
    assert seen.sum(axis=0).tolist() == [3, 5]
    assert step(alone, first[:, 1:], first[:, 1:] > 0).tolist() == seen[:, 1:].tolist()
    second = np.array([[6, 6], [0, 0]])
    later = step(both, second, second > 0)
    assert step(alone, second[:, 1:], second[:, 1:] > 0).tolist() == later[:, 1:].tolist()


def test_batches_split_by_the_rows_of_p():
    p = [[0.2, 0.5, 0.3], [1, 0, 0], [1, 0, 0]]
    system = build(pair(8, step_ms=[1.0, 1.0, 1.0], p=p, c=[[1, 1, 1]] * 3))
    router = Router(system, np.arange(4000), seed=1)
    k = np.zeros((3, 4000), dtype=np.int64)
    done = np.array([[8], [0], [0]]) * np.ones((1, 4000), dtype=np.int64)

    router.route(k, done, done > 0)

    assert (k.sum(axis=0) == 8).all()
    for count, share in zip(k, p[0], strict=True):
        assert count.mean() == pytest.approx(8 * share, abs=4.5 * (8 * 0.25 / 4000) ** 0.5)
        assert count.var() == pytest.approx(8 * share * (1 - share), rel=0.15)


@pytest.mark.parametrize("p", [[[0.4, 0.6], [0.4, 0.6]], [[1.0, 0.0], [1.0, 0.0]]], ids=str)
def test_nobody_is_lost_where_two_stations_that_finish_together_have_one_target(p):
    # Two stations of one model, whose rows are alike, so that they are drawn as one group.
    steps = {"step_ms": [1.0], "model_of": [0, 0], "c": [[1, 1]] * 2, "entry": [0.5, 0.5]}
    system = build(pair(9, p=p, **steps))
    router = Router(system, np.arange(200), seed=2)
    k = np.zeros((2, 200), dtype=np.int64)
    done = np.array([[4], [5]]) * np.ones((1, 200), dtype=np.int64)

    router.route(k, done, np.ones((1, 200), dtype=np.bool_))

    assert (k.sum(axis=0) == 9).all()


@pytest.mark.parametrize(
    "row", [[1.0, 1e-17, 1e-17], [0.5, 0.5, 1e-17, 1e-17], [0.1] * 10 + [1e-18] * 3], ids=str
)
def test_shares_that_are_lost_beside_the_others_are_drawn_from_all_the_same(row):
    size = len(row)
    p = [row, *[[1.0] + [0.0] * (size - 1)] * (size - 1)]
    system = build(pair(4, step_ms=[1.0] * size, p=p, c=[[1] * size] * size))
    router = Router(system, np.arange(200), seed=1)
    k = np.zeros((size, 200), dtype=np.int64)
    done = np.zeros((size, 200), dtype=np.int64)
    done[0] = 4

    router.route(k, done, done > 0)

    assert (k.sum(axis=0) == 4).all()
    assert not k[[at for at, share in enumerate(row) if share < 1e-6]].any()
