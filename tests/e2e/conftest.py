"""One set of tiny models for all end-to-end tests, and torch on one thread.

The reference's models are shared too, and remember their answers: the same prefixes come again under many conditions.
"""

import pytest
import torch

from tests.factories import save_bench
from tokenrouter.plan.structs import Model
from tokenrouter.runtime.reference.load import load


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    return save_bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="session")
def float64(bench):
    """A function from plan models to the reference's models in float64, each loaded once."""
    loaded = {}

    def models(wanted: list[Model]):
        for model in wanted:
            if model.use not in loaded:
                (loaded[model.use],) = load([model], bench.root, torch.float64)
        return [loaded[model.use] for model in wanted]

    return models
