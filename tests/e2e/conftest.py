"""One set of tiny models for all end-to-end tests, and torch on one thread.

The reference's models are shared too, and remember their answers: the same prefixes come again under many conditions.
"""

import pytest
import torch

import tokenrouter
from tests.factories import save_bench
from tokenrouter.plan.structs import Model
from tokenrouter.runtime.model import load_model
from tokenrouter.runtime.reference.load import load

# Dials that are set for the demo pair; over the tiny models, these values make both models write.
DIALS = {
    "citer": {"tau": 0.5},
    "demo": {"tau": 2.0},
    "query_level": {"long": 8},
    "r2r": {"tau": 0.55},
    "r2r_entropy": {"tau": 2.0},
    "r2r_immediate": {"spread": 1.0, "doubt": 0.0, "tau": 0.45},
}


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
            if (model.use, model.quantize) not in loaded:
                (loaded[model.use, model.quantize],) = load([model], bench.root, torch.float64)
        return [loaded[model.use, model.quantize] for model in wanted]

    return models


@pytest.fixture(scope="session")
def decoders(bench):
    """A function from plan models to the runtime's own models, each loaded once."""
    loaded = {}

    def models(wanted: list[Model], dtype: str = "float64", *, deterministic: bool = False):
        keys = [(model.use, model.quantize, dtype, deterministic) for model in wanted]
        for model, key in zip(wanted, keys, strict=True):
            if key not in loaded:
                loaded[key] = load_model(
                    model, bench.root, dtype=dtype, deterministic=deterministic
                )
        return [loaded[key] for key in keys]

    return models


@pytest.fixture(scope="session")
def compiled(bench):
    """A function from a policy's file to its plan over the tiny models."""

    def plan(path):
        copy = bench.root / path.name
        copy.write_text(bench.text(path.read_text(encoding="utf-8")), encoding="utf-8")
        sets = DIALS.get(path.stem, {})
        return tokenrouter.compile(copy, sets=sets, max_active=32, kv_budget=8 << 20)

    return plan
