"""Random numbers against the published vectors and against the plain-Python twin that the front end uses."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenrouter_kernels import CHANCE, MIX, SAMPLE, philox, seeds, uniform

from tokenrouter.runtime import random as twin

# From the known-answer file of the authors' library (Random123, philox4x32, 10 rounds): counter, key, output.
VECTORS = {
    "zeros": ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    "ones": (
        (0xFFFFFFFF,) * 4,
        (0xFFFFFFFF,) * 2,
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    "pi": (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
}


def words(values):
    return tuple(torch.tensor([value]) for value in values)


@pytest.mark.parametrize("name", VECTORS)
def test_philox_gives_the_published_words(name):
    counter, key, expected = VECTORS[name]

    got = philox.philox(words(key), words(counter))

    assert tuple(int(word) for word in got) == expected


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 8),
    st.sampled_from([SAMPLE, MIX, CHANCE]),
)
def test_a_draw_equals_that_of_the_plain_python_twin(seed, position, model, purpose):
    got = uniform(seeds([seed]), torch.tensor([position]), model, purpose)

    assert got.tolist() == [twin.uniform(seed, position, model, purpose)]


def test_purposes_are_numbered_as_in_the_twin():
    assert (SAMPLE, MIX, CHANCE) == (twin.SAMPLE, twin.MIX, twin.CHANCE)


def test_a_draw_depends_on_seed_position_model_and_purpose_alone():
    seed, position = seeds(list(range(50))), torch.arange(50) * 7

    crowd = uniform(seed, position, 1, SAMPLE)
    alone = torch.cat([uniform(seed[i : i + 1], position[i : i + 1], 1, SAMPLE) for i in range(50)])

    assert torch.equal(crowd, alone)
    others = [
        uniform(seed + 1, position, 1, SAMPLE),
        uniform(seed, position + 1, 1, SAMPLE),
        uniform(seed, position, 2, SAMPLE),
        uniform(seed, position, 1, CHANCE),
    ]
    assert all(not (crowd == other).any() for other in others)


def test_draws_are_spread_evenly_over_the_unit_interval():
    draws = uniform(seeds([3] * 100_000), torch.arange(100_000), 0, SAMPLE)

    assert draws.min() >= 0 and draws.max() < 1
    counts = torch.histc(draws, 100, 0, 1)
    chi_square = float(((counts - 1000) ** 2 / 1000).sum())
    assert chi_square < 160  # 99 degrees of freedom; the draws never change
