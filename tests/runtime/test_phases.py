"""Where the time of a subserver goes: every moment counts once, and a step passes through the phases that it has."""

import itertools

import pytest

from tests.runtime import tiny
from tests.runtime.toy import greedy, ping_pong, prompts, toys
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.phases import PHASES, Phases


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_every_moment_counts_once_and_a_stopped_watch_counts_nothing():
    clock = Clock()
    phases = Phases(clock)

    for phase, seconds in [("gate", 1), ("model", 4), (None, 50), ("gate", 2), ("wait", 8)]:
        phases.at(phase)
        clock.now += seconds

    assert phases.seconds() == {**dict.fromkeys(PHASES, 0.0), "gate": 3, "model": 4, "wait": 8}
    clock.now += 1
    assert phases.seconds()["wait"] == 9  # the open one goes on


@pytest.fixture
def engine():
    plan = ping_pong()
    engine = Engine(plan, models=toys(plan))
    ticks = itertools.count()
    for subserver in engine.subservers:
        subserver.phases = Phases(
            lambda: float(next(ticks))
        )  # a phase lasts as long as it is changed
    return engine


def test_a_step_passes_through_all_phases_but_waiting_and_ends_in_none(engine):
    engine.generate(prompts(3), greedy())

    for subserver in engine.subservers:
        seconds = subserver.report().phases
        assert set(seconds) == set(PHASES)
        assert seconds.pop("wait") == 0
        assert all(spent > 0 for spent in seconds.values()), seconds
        assert subserver.report().phases == {**seconds, "wait": 0}  # nothing is open between steps


def test_the_model_has_its_own_phase_beside_the_building_of_its_batch(tmp_path):
    plan = tiny.real(tiny.PLANS["ping_pong"](), tiny.save(tmp_path))
    engine = Engine(plan)
    seen = []
    runner = engine.subservers[0].runner
    model, at = runner.model, runner.phases.at

    class Noting:
        def __getattr__(self, name):
            return getattr(model, name)

        def extend(self, *args, **kwargs):
            seen.append("here")
            return model.extend(*args, **kwargs)

    def noting(phase):
        seen.append(phase)
        at(phase)

    runner.model = Noting()
    runner.phases.at = noting
    engine.generate(prompts(1), greedy(4))

    calls = [i for i, what in enumerate(seen) if what == "here"]
    assert calls
    assert {seen[i - 1] for i in calls} == {"model"}
    assert {seen[i + 1] for i in calls} == {"build"}
