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


def test_the_fitted_mean_takes_a_degree_of_freedom_and_so_does_the_total():
    # Four pools, of 34.1, 15.9, 7.4 and, with all that is longer, 6.5 expected.
    verdict = looks_geometric([32, 16, 8, 8])

    assert verdict.degrees == 2
    by_hand = ((32 - 34.13) ** 2 / 34.13, (16 - 15.93) ** 2 / 15.93, (8 - 7.43) ** 2 / 7.43)
    assert verdict.chi_square == pytest.approx(sum(by_hand) + (8 - 6.51) ** 2 / 6.51, abs=0.01)


def test_too_few_runs_say_nothing():
    assert looks_geometric([]).tail is None
    assert looks_geometric([3, 1]).degrees == 0
    assert looks_geometric([50]).tail is None
