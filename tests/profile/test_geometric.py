"""The test of run lengths tells geometric from other laws."""

import random

import pytest

from tokenrouter.profile.geometric import looks_geometric


def counted(lengths):
    return [lengths.count(k) for k in range(1, max(lengths) + 1)]


def geometric(rng, p):
    n = 1
    while rng.random() > p:
        n += 1
    return n


@pytest.mark.parametrize("p", [0.1, 0.35, 0.8])
def test_geometric_lengths_are_unsuspicious(p):
    tails = []
    for seed in range(40):
        rng = random.Random(seed)
        tails.append(looks_geometric(counted([geometric(rng, p) for _ in range(300)])).tail)

    assert min(tails) > 1e-4
    assert sum(tail < 0.5 for tail in tails) in range(8, 33)


def test_lengths_of_two_kinds_are_suspicious():
    rng = random.Random(1)

    verdict = looks_geometric(counted([rng.choice([4, 5, 6]) for _ in range(300)]))

    assert verdict.tail < 1e-9


def test_too_few_runs_say_nothing():
    assert looks_geometric([]).tail is None
    assert looks_geometric([3, 1]).degrees == 0
    assert looks_geometric([50]).tail is None
