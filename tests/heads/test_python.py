"""Heads in Python: refused where nobody allowed them, else asked in batches with what they read, and served as the reference runs them."""

import numpy as np
import pytest
import torch

import tokenrouter
from tests.e2e.compare import difference, requests, traces
from tests.factories import save_bench
from tests.heads.test_compile import POLICY
from tokenrouter import cli
from tokenrouter.plan.io import write
from tokenrouter.plan.show import show
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.model.head_python import PythonHeadError
from tokenrouter.runtime.python_heads import PythonNotAllowed
from tokenrouter.runtime.reference import Reference
from tokenrouter.runtime.reference.errors import BeyondReference


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return save_bench(tmp_path_factory.mktemp("bench"))


def plan_with(bench, class_name, reads="hidden, logits, token"):
    head = f'python "tests.heads.toys:{class_name}"  reads small.{{{reads}}}'
    path = bench.root / "python.route"
    path.write_text(POLICY.format(head=head))
    return tokenrouter.compile(path)


def test_a_python_head_runs_only_where_it_is_allowed(bench, capsys):
    plan = plan_with(bench, "Mine")

    with pytest.raises(
        PythonNotAllowed, match=r"head `sure` runs Python code, `tests\.heads\.toys:"
    ):
        Engine(plan)

    write(plan, bench.root / "plan.json")
    for verb in (["run", "--prompt", "a", "--raw"], ["serve", "--port", "0"]):
        assert cli.main([verb[0], str(bench.root / "plan.json"), *verb[1:]]) == 1
        err = capsys.readouterr().err
        assert "--allow-python" in err and err.count("\n") == 1


def test_the_flag_lets_it_run(bench, capsys):
    write(plan_with(bench, "Mine"), bench.root / "plan.json")

    args = ["--prompt", "The sea", "--raw", "--max-tokens", "4", "--allow-python"]

    assert cli.main(["run", str(bench.root / "plan.json"), *args]) == 0


def mine(seen):
    chosen = seen.logits[seen.candidate]
    return float(1 / (1 + np.exp(-(seen.hidden.mean() + 4 * np.sin(chosen)))))


def test_a_python_head_is_served_as_the_reference_runs_it(bench):
    plan = plan_with(bench, "Mine")
    wanted = requests(8, seed=2)
    reference = Reference(plan, bench.root, torch.float64, heads={0: mine})
    expected = traces(reference, wanted)
    engine = Engine(plan, dtype="float64", allow_python=True)

    served = engine.generate([r.prompt for r in wanted], [r.sampling for r in wanted])

    assert all(not difference(*pair) for pair in zip(expected, served, strict=True))
    assert {model for trace in expected for model in trace.models} == {0, 1}


def test_the_reference_says_that_it_runs_no_python(bench):
    reference = Reference(plan_with(bench, "Mine"), bench.root)

    with pytest.raises(BeyondReference, match="does not run the Python of head `sure`"):
        traces(reference, requests(1))


def test_parts_that_are_not_read_are_none_and_values_are_made_probabilities(bench):
    plan = plan_with(bench, "Narrow", "hidden")
    engine = Engine(plan, allow_python=True)

    (done,) = engine.generate([[7, 8, 9]], traced=True)

    told = {value for token in done.tokens for value in token.signals.values()}
    assert told <= {0.0, 1.0} and told


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Missing", "cannot make `tests.heads.toys:Missing`: AttributeError"),
        ("NeedsMore", "its class take no arguments"),
    ],
)
def test_a_class_that_cannot_be_made_is_told_of_at_load(bench, name, told):
    with pytest.raises(PythonHeadError) as caught:
        Engine(plan_with(bench, name), allow_python=True)

    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "told"),
    [("Flat", r"gave \[\] for 1 rows"), ("Failing", "failed: ValueError: no idea")],
)
def test_a_head_that_fails_in_service_is_told_of_in_one_line(bench, name, told):
    engine = Engine(plan_with(bench, name), allow_python=True)

    with pytest.raises(PythonHeadError, match=told):
        engine.generate([[7, 8, 9]])


def test_a_python_head_is_marked_opaque(bench):
    assert "opaque to every analysis" in show(plan_with(bench, "Mine"))
