"""One set of tiny models for all end-to-end tests, and torch on one thread."""

import pytest
import torch

from tests.factories import save_bench


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def bench(tmp_path_factory):
    return save_bench(tmp_path_factory.mktemp("bench"))
