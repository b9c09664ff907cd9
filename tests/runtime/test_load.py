"""What a subserver is made of before its first step: compiled kernels where they will be asked, and a pool that fits its machine."""

import pytest

from tests.runtime import tiny, toy
from tokenrouter.runtime import load
from tokenrouter.runtime.route import Router
from tokenrouter.runtime.settings import Settings
from tokenrouter.runtime.subserver import Subserver
from tokenrouter.runtime.vocabulary import Vocabulary


def test_kernels_that_draws_ask_are_compiled_before_the_first_step(tmp_path, monkeypatch):
    plan = tiny.real(tiny.PLANS["ping_pong"](), tiny.save(tmp_path))
    seen = []
    monkeypatch.setattr(load, "kernels", lambda: seen.append("library"))

    load.load_runner(plan, 0, Settings(deterministic=True))

    assert seen


@pytest.mark.parametrize(("device", "spared"), [("cpu", 51), ("cuda:0", 128)])
def test_on_a_cpu_prefixes_may_keep_two_fifths_of_the_memory_and_on_a_gpu_all_of_it(device, spared):
    plan = toy.ping_pong(tau=2.0)
    router = Router(plan, 0, Vocabulary(toy.SIZE))
    made = Subserver(
        plan,
        0,
        toy.ToyModel(0),
        router,
        lambda to, message: None,
        lambda: 0.0,
        settings=Settings(device=device),
    )

    assert (made.scheduler.pool.total, made.scheduler.pool.spared) == (128, spared)
