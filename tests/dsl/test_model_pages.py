"""The pages of what only models at hand show: their examples, compiled with tiny models, raise exactly their code."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.factories import EOS, save_model
from tokenrouter.cli import main
from tokenrouter.compiler import kept
from tokenrouter.dsl.pages import examples, page

CODE = r"^\w+\[(TR\d+)\]"
USED = re.compile(r'use "(org/[^"]+)"')


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """An empty cache, which keeps what it finds in files of this moment too."""
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "YOUNG_S", -1.0)


def other_words(path):
    """Let two ids of the tokenizer change places."""
    file = path / "tokenizer.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    vocab = raw["model"]["vocab"]
    a, b = sorted(vocab, key=vocab.__getitem__)[20:22]
    vocab[a], vocab[b] = vocab[b], vocab[a]
    file.write_text(json.dumps(raw), encoding="utf-8")


def other_template(path):
    file = path / "tokenizer_config.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    raw["chat_template"] = "{{ messages[0].content }}"
    file.write_text(json.dumps(raw), encoding="utf-8")


def fewer_rows(path):
    weights = load_file(path / "model.safetensors")
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config["vocab_size"] -= 8
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = weights[name][:-8].contiguous()
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")


# By code: how the second model of the bad example is made, and what is done to its files then.
ODD = {
    "TR4101": ({}, other_words),
    "TR4102": ({"eos": (EOS, 0)}, None),
    "TR4103": ({}, other_template),
    "TR4104": ({}, fewer_rows),
    "TR4105": ({}, None),  # tiny models have two key/value heads
}


def told(text, code, tmp_path, capsys, *, odd):
    """Return the codes that `trc compile` and `trc check` tell of an example whose models are tiny ones."""
    for at, name in enumerate(dict.fromkeys(USED.findall(text))):
        made, change = ODD[code] if odd and at == 1 else ({}, None)
        path = save_model(tmp_path / name, seed=at, **made)
        if change:
            change(path)
        text = text.replace(name, str(path))
    policy = tmp_path / "policy.route"
    policy.write_text(text, encoding="utf-8")
    done = main(["compile", str(policy), "-o", str(tmp_path / "plan.json")])
    codes = re.findall(CODE, capsys.readouterr().err, re.MULTILINE)
    for _ in range(2):  # looks at models, all of them being there; then at what it kept of them
        assert main(["check", str(policy)]) == done
        assert re.findall(CODE, capsys.readouterr().err, re.MULTILINE) == codes
    return done, codes


@pytest.mark.parametrize("code", ODD)
def test_the_bad_example_with_such_models_raises_exactly_its_code(code, tmp_path, capsys):
    done, codes = told(examples(page(code)).bad, code, tmp_path, capsys, odd=True)

    assert codes == [code]
    assert done == (1 if "\n\nerror\n" in page(code) else 0)


@pytest.mark.parametrize("code", ODD)
def test_the_good_example_with_models_that_fit_is_clean(code, tmp_path, capsys):
    assert told(examples(page(code)).good, code, tmp_path, capsys, odd=False) == (0, [])


def test_every_code_of_models_has_its_example_run():
    from tokenrouter.diagnostics import CODES

    assert {code for code in CODES if code.startswith("TR41")} == set(ODD)


def padded(path):
    """Give a model more rows than its tokenizer has ids."""
    weights = load_file(path / "model.safetensors")
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config["vocab_size"] += 8
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        weights[name] = torch.cat([weights[name], torch.zeros(8, weights[name].shape[1])])
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")


def same_template(path):
    """Write the chat template in a file of its own."""
    file = path / "tokenizer_config.json"
    raw = json.loads(file.read_text(encoding="utf-8"))
    (path / "chat_template.jinja").write_text(raw.pop("chat_template"), encoding="utf-8")
    file.write_text(json.dumps(raw), encoding="utf-8")


# By code: a second model that comes just short of what the code tells of.
NEARLY = {
    "TR4101": ({}, padded),  # other rows, the same ids
    "TR4102": ({"eos": (EOS, EOS)}, None),  # the same end, told twice
    "TR4103": ({}, same_template),
    "TR4104": ({}, lambda path: None),  # exactly one row an id
    "TR4105": ({}, None),
}


@pytest.mark.parametrize("code", ODD)
def test_models_that_nearly_differ_are_not_told_of(code, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(ODD, code, NEARLY[code])
    text = examples(page(code)).bad.replace("tensor_parallel 4", "tensor_parallel 2")

    assert told(text, code, tmp_path, capsys, odd=True)[1] == []


def test_check_says_nothing_of_models_where_one_of_them_is_not_there(tmp_path, capsys):
    text = examples(page("TR4101")).bad
    [first, *_] = dict.fromkeys(USED.findall(text))
    policy = tmp_path / "policy.route"
    policy.write_text(text.replace(first, str(save_model(tmp_path / first))), encoding="utf-8")

    assert main(["check", str(policy)]) == 0
    assert capsys.readouterr().err == ""


def test_check_knows_the_vocabulary_of_models_that_are_there(tmp_path, capsys):
    text = """route 1
model small { use "tiny" }
policy p { start small at small { when entropy > 15 -> stop otherwise -> commit } }
"""  # ln 49152 is 10.8, and ln 2^24 is 16.6
    policy = tmp_path / "policy.route"
    policy.write_text(text, encoding="utf-8")
    assert main(["check", str(policy)]) == 0
    save_model(tmp_path / "tiny")

    assert main(["check", str(policy)]) == 1
    assert re.findall(CODE, capsys.readouterr().err, re.MULTILINE) == ["TR2301"]
