"""A head is held against its file and its model before anything runs, and against its digest before it is used."""

import re
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

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
        head_file = bench.root / "h.safetensors"
        if head_file.is_dir():
            head_file.rmdir()
        head_file.unlink(missing_ok=True)
        return path

    return write


def compiled(path):
    with pytest.raises(PolicyError) as caught:
        tokenrouter.compile(path)
    [diagnostic] = [d for d in caught.value.diagnostics if d.severity == "error"]
    return diagnostic


def checked(path):
    """Return the codes of the errors that `trc check` tells."""
    found = everything(path.read_text(), str(path)).diagnostics
    return [d.code for d in found if d.severity == "error"]


def test_a_missing_file_is_told_of_by_compile_and_by_a_check_with_the_models_at_hand(
    policy, monkeypatch
):
    path = policy(MLP)
    monkeypatch.chdir(path.parent)

    found = compiled(path)
    also = everything(path.read_text(), path.name).diagnostics

    assert (found.code, found.span.line) == ("TR4201", 5)
    assert str(path.parent / "h.safetensors") in found.message
    assert found.message in [d.message for d in also]
    path.write_text(re.sub('use "[^"]*"', 'use "org/none"', path.read_text()))
    assert checked(path) == []


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
    assert checked(path) == [code]


def test_another_hidden_state_is_told_of_with_both_widths(policy):
    path = policy(MLP)
    save_head(path.parent / "h.safetensors", "mlp", hidden=48)

    found = compiled(path)

    assert found.code == "TR4204"
    assert "a hidden state of 48 numbers, and that of `small` has 32" in found.message
    assert [label.span.line for label in found.labels] == [3]


def changed(path, made="mlp", *, drop=(), add=(), **metadata):
    """Write a head with tensors left out or added, and with other metadata; None takes an entry away."""
    save_head(path, made)
    with safe_open(path, "pt") as file:
        said, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors = {name: tensor for name, tensor in tensors.items() if name not in drop}
    tensors |= {name: torch.zeros(shape) for name, shape in dict(add).items()}
    said = {name: value for name, value in (said | metadata).items() if value is not None}
    save_file(tensors, path, metadata=said)


def linked(path):
    save_head(path.with_name("other.safetensors"), "mlp")
    path.symlink_to("other.safetensors")


def cut_short(path):
    save_head(path, "mlp")
    path.write_bytes(path.read_bytes()[:-1])


LINEAR = MLP.replace("  ", "  kind linear  ")
# By code: what just deserves it, and its neighbour that just does not.
BARELY = {
    "TR4201": [
        ("a link to nothing", MLP, lambda p: p.symlink_to("nothing.safetensors")),
        ("another directory", MLP.replace("h.s", "heads/h.s"), lambda p: save_head(p, "mlp")),
        ("another ending", MLP.replace("tensors", "tensor"), lambda p: save_head(p, "mlp")),
    ],
    "TR4202": [
        ("a directory", MLP, lambda p: p.mkdir()),
        ("no bytes", MLP, lambda p: p.write_bytes(b"")),
        ("the last byte is missing", MLP, cut_short),
        ("no format", MLP, lambda p: changed(p, tokenrouter_head=None)),
        ("the next format", MLP, lambda p: changed(p, tokenrouter_head="2")),
        ("a kind that is none", MLP, lambda p: changed(p, kind="mlps")),
        ("an activation that is none", MLP, lambda p: changed(p, activations="relu,relu6")),
        ("an activation too few", MLP, lambda p: changed(p, activations="relu")),
        ("an activation too many", MLP, lambda p: changed(p, activations="relu,gelu,relu")),
        ("a threshold that is no number", MLP, lambda p: changed(p, threshold="nan")),
        ("no bias", MLP, lambda p: changed(p, drop=["layers.1.bias"])),
        ("a bias of one more", MLP, lambda p: changed(p, add={"layers.1.bias": 7})),
        ("a tensor more", MLP, lambda p: changed(p, add={"layers.3.bias": 1})),
        ("two outputs", LINEAR, lambda p: changed(p, "linear", add={"layers.0.weight": (2, 32)})),
        ("a linear head of two layers", LINEAR, lambda p: changed(p, "mlp", kind="linear")),
        ("a block without its norm", R2R, lambda p: changed(p, "r2r", drop=["blocks.0.norm.bias"])),
        ("a block that no other follows", R2R, lambda p: changed(p, "r2r", drop=OF_BLOCK)),
    ],
    "TR4203": [
        ("one layer and called mlp", LINEAR, lambda p: changed(p, "linear", kind="mlp")),
        ("declared as nothing", MLP, lambda p: save_head(p, "linear")),
        ("declared as the other", R2R, lambda p: save_head(p, "mlp")),
    ],
    "TR4204": [
        ("one less", MLP, lambda p: save_head(p, "mlp", hidden=31)),
        ("one more", MLP, lambda p: save_head(p, "mlp", hidden=33)),
        ("of r2r too", R2R, lambda p: save_head(p, "r2r", hidden=33)),
        ("of one layer too", LINEAR, lambda p: save_head(p, "linear", hidden=31)),
    ],
}
OF_BLOCK = [f"blocks.0.{part}.{of}" for part in ("norm", "up", "down") for of in ("weight", "bias")]
NEARLY = [
    ("a link", MLP, linked),
    ("a path that goes round", MLP.replace("h.s", "./h.s"), lambda p: save_head(p, "mlp")),
    ("a threshold and a source", MLP, lambda p: changed(p, threshold="0.5", source="us")),
    ("metadata of others", MLP, lambda p: changed(p, format="pt", kinds="r2r")),
    ("another known activation", MLP, lambda p: changed(p, activations="identity,tanh")),
    ("no activation and one layer", MLP, lambda p: changed(p, "linear", kind="mlp")),
    ("the kind said too", MLP.replace("  ", "  kind mlp  "), lambda p: save_head(p, "mlp")),
    ("declared as it is", LINEAR, lambda p: save_head(p, "linear")),
    ("exactly as wide", MLP, lambda p: save_head(p, "mlp", hidden=32)),
    ("wider inside", R2R, lambda p: save_head(p, "r2r", width=33)),
]


@pytest.mark.parametrize(
    ("code", "head", "make"),
    [
        pytest.param(code, head, make, id=f"{code} {name}")
        for code, cases in BARELY.items()
        for name, head, make in cases
    ],
)
def test_a_head_that_just_does_not_fit_is_told_of_by_one_code(policy, code, head, make):
    path = policy(head)
    make(path.parent / "h.safetensors")

    assert compiled(path).code == code
    assert checked(path) == [code]


@pytest.mark.parametrize(
    ("head", "make"), [pytest.param(head, make, id=name) for name, head, make in NEARLY]
)
def test_a_head_that_just_fits_is_left_alone(policy, head, make):
    path = policy(head)
    make(path.parent / "h.safetensors")

    assert len(tokenrouter.compile(path).heads) == 1


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
