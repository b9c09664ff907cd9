"""A head is held against its file and its model before anything runs, and against its digest before it is used."""

import subprocess
import sys

import pytest

import tokenrouter
from tests.factories import save_bench, save_head
from tokenrouter import cli
from tokenrouter.commands.check import everything
from tokenrouter.diagnostics import PolicyError
from tokenrouter.models import ModelError
from tokenrouter.plan.structs import Extend
from tokenrouter.runtime.engine import Engine

POLICY = """route 1

model small {{ use "small" }}
model large {{ use "large" }}
head sure {{ {head} }}

policy p {{
  start small
  at small {{
    when sure < 50% -> borrow large for 1
    otherwise       -> commit
  }}
}}
"""
MLP = 'file "h.safetensors"  reads small.{hidden}'
R2R = 'file "h.safetensors"  reads small.{hidden, logits, token}'


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return save_bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture
def policy(bench, request):
    """A function that writes a policy with a head beside the tiny models."""

    def write(head):
        path = bench.root / "p.route"
        path.write_text(POLICY.format(head=head))
        (bench.root / "h.safetensors").unlink(missing_ok=True)
        return path

    return write


def compiled(path):
    with pytest.raises(PolicyError) as caught:
        tokenrouter.compile(path)
    [diagnostic] = [d for d in caught.value.diagnostics if d.severity == "error"]
    return diagnostic


def test_a_missing_file_is_told_of_by_compile_and_not_by_check(policy):
    path = policy(MLP)

    found = compiled(path)

    assert (found.code, found.span.line) == ("TR4201", 5)
    assert str(path.parent / "h.safetensors") in found.message
    assert everything(path.read_text(), str(path)).diagnostics == ()


CASES = {
    "TR4202": (MLP, lambda path: path.write_bytes(b"pickle")),
    "TR4203": (MLP, lambda path: save_head(path, "linear")),
}


@pytest.mark.parametrize("code", CASES)
def test_a_wrong_file_is_told_of_by_compile_and_by_check(policy, code):
    head, make = CASES[code]
    path = policy(head)
    make(path.parent / "h.safetensors")

    assert compiled(path).code == code
    assert [d.code for d in everything(path.read_text(), str(path)).diagnostics] == [code]


def test_another_hidden_state_is_told_of_with_both_widths(policy):
    path = policy(MLP)
    save_head(path.parent / "h.safetensors", "mlp", hidden=48)

    found = compiled(path)

    assert found.code == "TR4204"
    assert "a hidden state of 48 numbers, and that of `small` has 32" in found.message
    assert [label.span.line for label in found.labels] == [3]


def test_more_logits_than_the_vocabulary_has_are_told_of(policy):
    path = policy(R2R)
    save_head(path.parent / "h.safetensors", "r2r")
    size = tokenrouter.compile(path).tokenizer.size

    save_head(path.parent / "h.safetensors", "r2r", top=size)
    tokenrouter.compile(path)  # as many as there are

    save_head(path.parent / "h.safetensors", "r2r", top=size + 1)
    assert compiled(path).code == "TR4205"


def test_what_fits_compiles_and_only_its_model_returns_states(policy):
    for kind, head in (
        ("mlp", MLP),
        ("r2r", R2R),
        ("linear", MLP.replace("  ", "  kind linear  ")),
    ):
        path = policy(head)
        save_head(path.parent / "h.safetensors", kind)

        plan = tokenrouter.compile(path)

        tasks = [task for graph in plan.subservers for task in graph.tasks]
        assert [task.hidden for task in tasks if isinstance(task, Extend)] == [True, False]
        assert [h.kind for h in plan.heads] == [kind]


def test_check_reads_a_head_without_torch(policy):
    path = policy(R2R)
    save_head(path.parent / "h.safetensors", "r2r")
    code = (
        "import sys; from tokenrouter import cli; status = cli.main(['check', sys.argv[1]]); "
        "sys.exit(status + 2 * ('torch' in sys.modules or 'transformers' in sys.modules))"
    )

    assert subprocess.run([sys.executable, "-c", code, path], check=False).returncode == 0


def test_another_file_than_at_compile_time_is_not_loaded(policy):
    path = policy(MLP)
    save_head(path.parent / "h.safetensors", "mlp")
    plan = tokenrouter.compile(path)
    save_head(path.parent / "h.safetensors", "mlp", seed=5)

    with pytest.raises(ModelError, match=r"head `sure`: .* is not the file that the plan was"):
        Engine(plan)


def test_a_file_that_is_gone_is_told_of_in_one_line(policy, tmp_path, capsys):
    path = policy(MLP)
    save_head(path.parent / "h.safetensors", "mlp")
    assert cli.main(["compile", str(path), "-o", str(path.parent / "plan.json")]) == 0
    (path.parent / "h.safetensors").unlink()
    capsys.readouterr()

    assert cli.main(["run", str(path.parent / "plan.json"), "--prompt", "a", "--raw"]) == 1

    err = capsys.readouterr().err
    assert "trc run: head `sure`: cannot read" in err and err.count("\n") == 1
