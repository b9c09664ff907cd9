"""Route programs as kernels, in Triton's interpreter: served so, a random policy does what the reference does.

The logits are cut into parts of 128, so that what several programs found is joined.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.e2e.compare import difference, requests, traces
from tests.e2e.random_policies import policies
from tests.e2e.serving import PagedTokens
from tests.factories import plan_from_ir
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.kernel import source as kernel_source
from tokenrouter.runtime.kernel.router import CompiledRouter
from tokenrouter.runtime.reference import Reference

TAUS = (1.2, 0.4, 2.5, 0.0)
METADATA = ({}, {"tier": "paid"}, {"tier": 7.0}, {"tier": "free"})
QUICK = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module", autouse=True)
def small_parts(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_source, "PART", 128)
        patch.setenv("TOKENROUTER_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def served(plan, wanted, models):
    """Return what an engine writes whose subservers decide by kernels."""
    engine = Engine(plan, models=[PagedTokens(model, plan) for model in models])
    for subserver in engine.subservers:
        torch_router = subserver.router
        assert torch_router is not None
        subserver.router = CompiledRouter(
            plan,
            subserver.model,
            torch_router.evaluator.vocabulary,
            torch_router.evaluator.heads,
            "cpu",
        )
    numbers = [
        engine.submit(each.prompt, each.sampling, each.params, each.metadata, traced=True)
        for each in wanted
    ]
    engine.run()
    return [engine.completions[number] for number in numbers]


@pytest.fixture(scope="module")
def equal(bench, float64):
    def check(data):
        plan = plan_from_ir(data.draw(policies(dict(bench.models), dict(bench.heads))).auto)
        wanted = [
            replace(request, params={"tau": tau}, metadata=metadata)
            for request, tau, metadata in zip(
                requests(4, seed=data.draw(st.integers(0, 50)), wishes=True),
                TAUS,
                METADATA,
                strict=True,
            )
        ]
        expected = traces(Reference(plan, models=float64(plan.models)), wanted)

        found = served(plan, wanted, float64(plan.models))

        for at, (trace, completion) in enumerate(zip(expected, found, strict=True)):
            assert not (wrong := difference(trace, completion)), f"request {at}: {wrong}"

    return check


@pytest.mark.timeout(600)
@QUICK
@given(data=st.data())
def test_a_random_policy_is_decided_by_its_kernel_as_by_the_reference(equal, data):
    equal(data)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(QUICK, max_examples=1000, derandomize=False, phases=[Phase.generate, Phase.shrink])
@given(data=st.data())
def test_many_random_policies_are_decided_so(equal, data):
    equal(data)
