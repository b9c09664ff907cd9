"""Kernel tests run on one thread unless they are about threads, and with unwritten memory poisoned.

With deterministic algorithms on, torch fills what `torch.empty` returns with NaN, so an output that a kernel leaves
unwritten fails its test.
"""

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread_and_poison():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
    torch.set_num_threads(threads)


@pytest.fixture
def two_threads():
    torch.set_num_threads(2)
