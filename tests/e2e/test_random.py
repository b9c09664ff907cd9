"""Random policies under random conditions: whatever a policy says, the runtime does what the reference does.

The models are the tiny ones behind paged tokens, so that a whole served crowd takes milliseconds; what is on trial is
scheduling, hand-off, state, sampling, what clients wish of the choice, signals and rules, on every path.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.e2e.compare import difference, requests, traces
from tests.e2e.random_policies import policies
from tests.e2e.serving import Conditions, serve
from tests.factories import plan_from_ir
from tokenrouter.runtime.reference import Reference

CONDITIONS = st.builds(
    Conditions,
    crowd=st.sampled_from((1, 3, 16)),
    order=st.none() | st.integers(0, 1000),
    capacity=st.sampled_from((None, 64, 96)),
    chunk=st.sampled_from((1, 3, 16, 512)),
    prefill=st.sampled_from((None, "eager", "lazy")),
    windows=st.none() | st.integers(0, 1000),
    deaths=st.integers(0, 2),
    aborts=st.integers(0, 3),
)
pytestmark = pytest.mark.timeout(900)
TAUS = (1.2, 0.4, 2.5, 1.2, 0.0, 1.0)
METADATA = ({}, {"tier": "paid"}, {"tier": 7.0}, {"tier": "free"}, {"other": "paid"}, {})
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
LONG = settings(QUICK, max_examples=1500, derandomize=False, phases=[Phase.generate, Phase.shrink])


@pytest.fixture(scope="module")
def equal(bench, float64):
    """A check that a random policy over this bench is served as the reference runs it."""

    def check(data, served_by=float64):
        plan = plan_from_ir(data.draw(policies(dict(bench.models), dict(bench.heads))).auto)
        wanted = [
            replace(request, params={"tau": tau}, metadata=metadata)
            for request, tau, metadata in zip(
                requests(6, seed=data.draw(st.integers(0, 50)), wishes=True),
                TAUS,
                METADATA,
                strict=True,
            )
        ]
        conditions = data.draw(CONDITIONS)
        expected = traces(Reference(plan, models=float64(plan.models)), wanted)

        served = serve(plan, wanted, conditions, served_by(plan.models))

        for at, (trace, completion) in enumerate(zip(expected, served.completions, strict=True)):
            assert not (found := difference(trace, completion)), f"request {at}: {found}"

    return check


@QUICK
@given(data=st.data())
def test_a_random_policy_is_served_as_the_reference_runs_it(equal, data):
    equal(data)


@settings(QUICK, max_examples=12)
@given(data=st.data())
def test_a_random_policy_is_served_so_by_the_real_decoder_too(equal, decoders, data):
    equal(data, decoders)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@LONG
@given(data=st.data())
def test_many_random_policies_are_served_as_the_reference_runs_them(equal, data):
    equal(data)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@settings(LONG, max_examples=500)
@given(data=st.data())
def test_many_random_policies_are_served_so_by_the_real_decoder_too(equal, decoders, data):
    equal(data, decoders)
