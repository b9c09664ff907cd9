"""`trc head`: published checkpoints become head files that compute what the published modules compute, and nothing in them runs."""

import json
import subprocess
import sys
import warnings

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.factories import save_head
from tests.heads.published import R2R, Citer, r2r_checkpoint, shaken
from tokenrouter import cli
from tokenrouter.models.head import HeadFileError, read_head
from tokenrouter.runtime.model.head import HeadInputs, load_head


def trc(*args):
    return cli.main(["head", *map(str, args)])


def inputs(rows=7, hidden=24, vocabulary=50):
    rng = torch.Generator().manual_seed(9)
    return (
        torch.randn(rows, hidden, generator=rng, dtype=torch.float64),
        torch.randint(vocabulary, (rows,), generator=rng),
        5 * torch.randn(rows, vocabulary, generator=rng, dtype=torch.float64),
    )


@pytest.fixture(autouse=True)
def same_weights():
    """The modules are drawn; some draws barely answer differently from row to row, and would prove little."""
    torch.manual_seed(1)


@pytest.mark.parametrize("whole", [False, True], ids=["without embeddings", "with embeddings"])
def test_a_converted_r2r_head_computes_what_the_published_module_does(tmp_path, capsys, whole):
    module = shaken(R2R())
    checkpoint = r2r_checkpoint(tmp_path / "router.pt", module, whole=whole)
    out = tmp_path / "r2r.safetensors"

    assert trc("convert", checkpoint, "--kind", "r2r", "-o", out) == 0

    told = capsys.readouterr().out
    assert "published threshold: 0.40596" in told
    assert ("left out: `token_embeddings.weight`" in told) == whole
    assert not any("embed" in name for name in load_file(out))
    hidden, token, logits = inputs()
    with torch.no_grad():
        wanted = module.double()(hidden, token, logits)
        embedding = module.token_embeddings(token)
        got = load_head(out)(HeadInputs(hidden, logits, token, embedding))
    assert wanted.std() > 0.02
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-12)


def test_a_converted_citer_head_computes_what_the_published_module_does_in_eval_mode(
    tmp_path, capsys
):
    module = shaken(Citer())
    torch.save(module.state_dict(), tmp_path / "mlp.pth")
    out = tmp_path / "citer.safetensors"

    assert trc("convert", tmp_path / "mlp.pth", "--kind", "citer", "-o", out) == 0

    assert "published threshold: none in the file" in capsys.readouterr().out
    hidden, _, _ = inputs()
    with torch.no_grad():
        wanted = module.double()(hidden)
        got = load_head(out)(HeadInputs(hidden, None, None))
    assert wanted.std() > 0.02
    torch.testing.assert_close(got, wanted, rtol=0, atol=1e-6)  # the folded weights are float32


def test_a_threshold_can_be_noted(tmp_path, capsys):
    torch.save(shaken(Citer()).state_dict(), tmp_path / "mlp.pth")
    out = tmp_path / "citer.safetensors"

    trc("convert", tmp_path / "mlp.pth", "--kind", "citer", "-o", out, "--threshold", "0.95")

    assert read_head(out).threshold == 0.95
    capsys.readouterr()
    assert trc("show", out) == 0
    assert capsys.readouterr().out.splitlines() == [
        "mlp, 2,401 weights; reads a hidden state of 24 numbers",
        "activations: relu, identity",
        "published threshold: 0.95",
        "source: CITER, mlp.pth",
    ]


class Bomb:
    """What a stranger could put into a checkpoint."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("kind", ["r2r", "citer"])
def test_a_malicious_checkpoint_runs_nothing_and_is_told_of_in_one_line(tmp_path, capsys, kind):
    torch.save({"state_dict": Bomb(tmp_path / "ran")}, tmp_path / "evil.pt")

    assert trc("convert", tmp_path / "evil.pt", "--kind", kind, "-o", tmp_path / "o") == 1

    out, err = capsys.readouterr()
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "o").exists()
    assert out == ""
    assert err == (
        f"trc head: `{tmp_path / 'evil.pt'}` holds more than weights, and nothing of it was run; "
        "only tensors, numbers and texts are read\n"
    )


def test_an_old_pickle_is_refused_without_a_warning_above_the_line(tmp_path, capsys):
    bomb = f"cio\nopen\n(V{tmp_path / 'ran'}\nVw\ntR."  # a call of `open`, pickled by hand
    (tmp_path / "evil.pth").write_bytes(b"\x80\x04" + bomb.encode())
    args = ("convert", tmp_path / "evil.pth", "--kind", "citer", "-o", tmp_path / "o")

    with warnings.catch_warnings(record=True, action="always") as said:
        assert trc(*args) == 1

    assert said == []
    assert not (tmp_path / "ran").exists()
    assert capsys.readouterr().err.count("\n") == 1


def test_the_bomb_of_that_test_would_go_off_in_a_plain_load(tmp_path):
    torch.save({"state_dict": Bomb(tmp_path / "ran")}, tmp_path / "evil.pt")

    torch.load(tmp_path / "evil.pt", weights_only=False)["state_dict"].close()

    assert (tmp_path / "ran").exists()


R2R_FAULTS = {
    "another class": ({"model_type": "LogitsClassifier"}, "only `HiddenStatesToken"),
    "normalised": ({"init_args": {"normalize_input": True}}, "trained with `normalize_input`"),
    "no weights": ({"state_dict": None}, "it has no `state_dict`"),
    "other weights": ({"state_dict": {}}, "lacks `logits_projection.weight`"),
}


@pytest.mark.parametrize("name", R2R_FAULTS)
def test_another_r2r_layout_is_refused_in_one_line(tmp_path, capsys, name):
    changes, told = R2R_FAULTS[name]
    checkpoint = r2r_checkpoint(tmp_path / "r.pt", shaken(R2R()), **changes)

    assert trc("convert", checkpoint, "--kind", "r2r", "-o", tmp_path / "o") == 1

    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1


def test_a_weight_that_nobody_knows_is_refused(tmp_path, capsys):
    state = dict(shaken(Citer()).state_dict()) | {"mlp.7.weight": torch.zeros(2)}
    torch.save(state, tmp_path / "mlp.pth")

    assert trc("convert", tmp_path / "mlp.pth", "--kind", "citer", "-o", tmp_path / "o") == 1
    assert "has an unknown `mlp.7.weight`" in capsys.readouterr().err


def test_text_is_no_checkpoint(tmp_path, capsys):
    (tmp_path / "x.pt").write_text("hello")

    assert trc("convert", tmp_path / "x.pt", "--kind", "r2r", "-o", tmp_path / "o") == 1
    assert "is no checkpoint of torch" in capsys.readouterr().err


def rewritten(path, metadata=None, drop=None, **tensors):
    """Write a head again with something else in it."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        kept = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        said = file.metadata()
    kept.pop(drop, None)
    save_file(kept | tensors, path, metadata=said if metadata is None else metadata)
    return path


HEAD_FAULTS = {
    "no header": ({"metadata": {"format": "pt"}}, "no `tokenrouter_head`"),
    "a later format": ({"metadata": {"tokenrouter_head": "2", "kind": "r2r"}}, "of format 2"),
    "an unknown kind": ({"metadata": {"tokenrouter_head": "1", "kind": "tree"}}, "kind `tree`"),
    "a missing tensor": ({"drop": "input.bias"}, "lacks `input.bias`"),
    "an unknown tensor": ({"more": torch.zeros(2)}, "has an unknown `more`"),
    "an odd shape": ({"combine.bias": torch.zeros(3)}, "`combine.bias` is 3, and 12 fits"),
    "no logits": ({"drop": "logits.weight"}, "lacks the matrix `logits.weight`"),
    "whole numbers": ({"input.bias": torch.zeros(12, dtype=torch.int32)}, "floating-point"),
}


@pytest.mark.parametrize("name", HEAD_FAULTS)
def test_a_file_that_is_no_head_is_told_of(tmp_path, name):
    changes, told = HEAD_FAULTS[name]
    path = rewritten(save_head(tmp_path / "h.safetensors", "r2r"), **changes)

    with pytest.raises(HeadFileError, match=told):
        read_head(path)


@pytest.mark.parametrize("cut", [0, 5, 200, -4])
def test_a_file_that_is_cut_short_is_told_of(tmp_path, cut):
    path = save_head(tmp_path / "h.safetensors", "mlp")
    path.write_bytes(path.read_bytes()[:cut])

    with pytest.raises(HeadFileError, match="cut short"):
        read_head(path)


def test_an_activation_that_nobody_knows_is_told_of(tmp_path):
    path = save_head(tmp_path / "h.safetensors", "mlp")
    said = {"tokenrouter_head": "1", "kind": "mlp", "activations": "relu,swish"}

    with pytest.raises(HeadFileError, match="the activation `swish`; there are relu"):
        read_head(rewritten(path, metadata=said))


def test_a_head_file_is_read_without_torch(tmp_path):
    path = save_head(tmp_path / "h.safetensors", "r2r")
    code = (
        "import sys, json; from pathlib import Path; from tokenrouter.models.head import read_head; "
        "head = read_head(Path(sys.argv[1])); print(json.dumps([head.top, 'torch' in sys.modules]))"
    )

    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, check=True)

    assert json.loads(done.stdout) == [20, False]
