"""Candidates, signals and rules in the captured step: served so, over the real decoder, each policy does what the reference does.

The kernels of the rules run in Triton's interpreter and the captured steps on the CPU, in float64.
"""

from pathlib import Path

import pytest

from tests.e2e.compare import difference, requests, traces
from tests.e2e.serving import Conditions, under
from tokenrouter.runtime import load
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.kernel.router import CompiledRouter
from tokenrouter.runtime.reference import Reference

ROOT = Path(__file__).parents[2]
POLICIES = [ROOT / "examples/demo.route", ROOT / "examples/mixture.route", *sorted(Path(__file__).parent.glob("routes/by_*.route"))]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TOKENROUTER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def fused(plan, models):
    """An engine whose captured steps hold its routers."""
    engine = Engine(plan, models=models, graphs="on")
    for subserver in engine.subservers:
        plain = subserver.router
        router = CompiledRouter(
            plan, subserver.model, plain.evaluator.vocabulary, plain.evaluator.heads, "cpu"
        )
        subserver.router = router
        load.capture(engine.runners[subserver.model], router)
    return engine


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_what_a_captured_step_decides_is_what_the_reference_decides(
    compiled, float64, decoders, path
):
    plan = under(compiled(path), Conditions(capacity=256))
    wanted = requests(6, seed=4, most=10)
    expected = traces(Reference(plan, models=float64(plan.models)), wanted)
    engine = fused(plan, decoders(plan.models))

    numbers = [
        engine.submit(r.prompt, r.sampling, r.params, r.metadata, traced=True) for r in wanted
    ]
    engine.run()
    engine.check_integrity()

    for at, (trace, number) in enumerate(zip(expected, numbers, strict=True)):
        found = difference(trace, engine.completions[number])
        assert not found, f"request {at}: {found}"
    assert sum(runner.graphs.decided for runner in engine.runners) > 20


def test_a_request_that_shapes_its_choice_is_decided_outside_and_the_others_are_not_harmed(
    compiled, float64, decoders
):
    plan = under(compiled(POLICIES[0]), Conditions(capacity=256))
    wanted = requests(6, seed=5, most=10, wishes=True)
    expected = traces(Reference(plan, models=float64(plan.models)), wanted)
    engine = fused(plan, decoders(plan.models))

    numbers = [engine.submit(r.prompt, r.sampling, r.params, r.metadata) for r in wanted]
    engine.run()

    for at, (trace, number) in enumerate(zip(expected, numbers, strict=True)):
        found = difference(trace, engine.completions[number])
        assert not found, f"request {at}: {found}"
