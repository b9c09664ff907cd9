"""Exact semantics: tiny models in float64, served under every condition, equal the reference in every respect.

Each policy of examples/ and of routes/ is discovered by its file; the models that it declares are replaced by tiny ones.
The models run through the real decoder and the real KV pool.
"""

from pathlib import Path

import pytest

from tests.e2e.compare import difference, requests, traces
from tests.e2e.serving import Conditions, serve
from tokenrouter.plan.structs import Plan, Send
from tokenrouter.runtime.reference import Reference

ROOT = Path(__file__).parents[2]
POLICIES = sorted([*(ROOT / "examples").glob("*.route"), *Path(__file__).parent.glob("routes/*")])
CROWD = 16

CONDITIONS = {
    "alone": Conditions(crowd=1),
    "in a crowd": Conditions(),
    "in another order, few at a time": Conditions(order=1, crowd=5),
    "with a tiny pool, in disorder": Conditions(capacity=64, order=3),
    "in chunks of 3, all eager": Conditions(chunk=3, order=4, prefill="eager"),
    "with windows, all lazy": Conditions(windows=2, order=7, prefill="lazy"),
    "with subservers lost, windows and a tiny pool": Conditions(
        deaths=3, order=10, windows=4, capacity=96
    ),
    "with others given up": Conditions(aborts=8, order=11, windows=1),
    "without windows": Conditions(order=12, windows=3, mode="off"),
    "with windows that change on the way": Conditions(order=13, windows=5, swaps=True, deaths=1),
    "with captured steps, a tiny pool and subservers lost": Conditions(
        graphs=True, chunk=12, order=15, deaths=2, capacity=96
    ),
    "with windows that adapt": Conditions(order=14, windows=6, mode="adaptive"),
}
MORE_CONDITIONS = {
    f"{n}": Conditions(
        crowd=(1, 4, 16)[n % 3],
        order=n,
        capacity=(None, 64, 80, 96, 128)[n % 5],
        chunk=(1, 2, 5, 16, 512)[n % 7 % 5],
        prefill=(None, "eager", "lazy")[n // 3 % 3],
        windows=None if n % 4 == 0 else n,
        deaths=n % 3,
        aborts=n % 5,
    )
    for n in range(40)
}


@pytest.fixture(scope="module", params=POLICIES, ids=lambda path: path.stem)
def case(request, compiled, float64):
    """A policy's plan, requests, and what the reference writes for them."""
    plan: Plan = compiled(request.param)
    wanted = requests(CROWD, seed=3)
    return plan, wanted, traces(Reference(plan, models=float64(plan.models)), wanted)


def check(case, conditions, decoders):
    plan, wanted, expected = case

    served = serve(plan, wanted, conditions, decoders(plan.models))

    for at, (trace, completion) in enumerate(zip(expected, served.completions, strict=True)):
        assert not (found := difference(trace, completion)), f"request {at}: {found}"
    return served


@pytest.mark.parametrize("name", CONDITIONS)
def test_what_is_served_is_what_the_reference_writes(case, decoders, name):
    served = check(case, CONDITIONS[name], decoders)

    if CONDITIONS[name].capacity is not None:
        assert served.preempted, "the pool was not small enough to try anything"


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_CONDITIONS)
def test_what_is_served_is_what_the_reference_writes_under_more_conditions(case, decoders, name):
    check(case, MORE_CONDITIONS[name], decoders)


def test_a_policy_gives_every_model_of_its_plan_something_to_write(case):
    plan, _, expected = case

    counts = [sum(trace.models.count(m) for trace in expected) for m in range(len(plan.models))]

    assert min(counts) > 0, counts
    sends = any(isinstance(task, Send) for graph in plan.subservers for task in graph.tasks)
    assert (sum(trace.switches for trace in expected) > 0) == sends


def test_the_small_model_alone_writes_the_same_without_any_runtime(compiled, bench, float64):
    """`always_small` against transformers' own generate, which shares nothing with the reference's loop."""
    import torch
    from transformers import AutoModelForCausalLM

    plan = compiled(ROOT / "examples" / "always_small.route")
    model = AutoModelForCausalLM.from_pretrained(bench.models["small"], dtype=torch.float64)
    wanted = [r for r in requests(8, seed=4) if r.sampling.temperature == 0]
    expected = traces(Reference(plan, models=float64(plan.models)), wanted)

    for request, trace in zip(wanted, expected, strict=True):
        out = model.generate(
            torch.tensor([request.prompt]),
            attention_mask=torch.ones(1, len(request.prompt)),
            max_new_tokens=request.sampling.max_tokens,
            do_sample=False,
            eos_token_id=[*plan.tokenizer.eos_ids, *request.sampling.stop_ids]
            if not request.sampling.ignore_eos
            else request.sampling.stop_ids or None,
        )
        assert out[0, len(request.prompt) :].tolist() == trace.tokens
