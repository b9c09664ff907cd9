"""What lies on a disk: an engine from a plan's path, and a plan whose sizes are not the model's."""

import msgspec
import pytest

import tokenrouter
from tests.factories import save_bench
from tokenrouter.errors import TokenRouterError
from tokenrouter.plan.io import write
from tokenrouter.plan.structs import Plan

POLICY = """route 1
model small { use "small" }
policy p { start small at small { otherwise -> commit } }
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    bench = save_bench(tmp_path_factory.mktemp("home"))
    (bench.root / "p.route").write_text(POLICY)
    return bench.root


@pytest.fixture(scope="module")
def plan(home) -> Plan:
    plan = tokenrouter.compile(home / "p.route", kv_budget=8 << 20)
    beside = [msgspec.structs.replace(model, use=model.name) for model in plan.models]
    return msgspec.structs.replace(plan, models=beside)


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_an_engine_takes_the_path_of_a_plan_and_looks_for_models_beside_it(home, plan, kind):
    write(plan, home / "plan.json")
    sampling = tokenrouter.Sampling(max_tokens=3)

    (found,) = tokenrouter.Engine(kind(home / "plan.json")).generate([[5, 6]], sampling)

    assert found.ids == tokenrouter.Engine(plan, home).generate([[5, 6]], sampling)[0].ids


def test_an_engine_says_that_a_path_holds_no_plan(home):
    with pytest.raises(TokenRouterError, match="no such plan"):
        tokenrouter.Engine(str(home / "nothing.json"))


@pytest.mark.parametrize("size", ["layers", "hidden_size", "kv_bytes_per_token"])
def test_a_plan_that_says_another_size_than_the_model_has_is_refused_by_name(home, plan, size):
    edited = msgspec.structs.replace(plan.models[0], **{size: getattr(plan.models[0], size) + 8})

    with pytest.raises(TokenRouterError, match=f"the plan says `{size}`") as error:
        tokenrouter.Engine(msgspec.structs.replace(plan, models=[edited]), home)

    assert "\n" not in str(error.value)


def test_the_package_lists_what_it_offers():
    assert set(tokenrouter.__all__) <= set(dir(tokenrouter))
