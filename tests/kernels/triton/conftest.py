"""Every kernel here runs in the interpreter, may touch its arguments only, and must write all of its results."""

import pytest
import torch

from tests.kernels.triton.bounds import checked


@pytest.fixture(autouse=True)
def within_bounds():
    with checked() as memory:
        yield memory


@pytest.fixture
def loaded(within_bounds):
    """A function that returns how many elements of a tensor kernels have loaded."""
    return within_bounds.loaded


@pytest.fixture
def stored(within_bounds):
    """A function that returns how many elements of a tensor kernels have stored."""
    return within_bounds.stored


@pytest.fixture
def apart():
    """A function that returns a tensor of the same values, the rows of which lie apart from each other."""

    def move(x: torch.Tensor, gap: int = 3) -> torch.Tensor:
        room = torch.empty(*x.shape[:-1], x.shape[-1] + gap, dtype=x.dtype)
        room.fill_(float("nan") if x.is_floating_point() else 10**6)
        view = room[..., : x.shape[-1]]
        view.copy_(x)
        return view

    return move
