"""Where a model is looked for, and the one line that each kind of absence gives."""

from pathlib import Path

import pytest
import torch

from tests.factories import save_model
from tests.models.harness import Paged, ours, patch
from tokenrouter.errors import TokenRouterError
from tokenrouter.models import (
    ModelError,
    count_parameters,
    fingerprint,
    locate,
    read_config,
    read_vocabulary,
)
from tokenrouter.plan.structs import Model
from tokenrouter.runtime.model import load_model


def test_a_relative_path_starts_at_the_policys_directory(tmp_path):
    save_model(tmp_path / "models" / "a")

    found = locate("models/a", tmp_path)

    assert (found.kind, found.path) == ("directory", tmp_path / "models" / "a")


def test_a_hub_name_is_looked_up_in_the_local_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repo = tmp_path / "models--org--name"
    save_model(repo / "snapshots" / "abc")
    save_model(repo / "snapshots" / "def")
    (repo / "refs").mkdir()
    (repo / "refs" / "main").write_text("abc")

    assert locate("org/name", Path("/nowhere")).path == repo / "snapshots" / "abc"


def empty(path):
    path.mkdir()


def without_weights(path):
    save_model(path)
    (path / "model.safetensors").unlink()


def pickled(path):
    without_weights(path)
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04.")


def without_config(path):
    save_model(path)
    (path / "config.json").unlink()


def broken_config(path):
    save_model(path)
    (path / "config.json").write_text("{")


def shapeless(path):
    save_model(path)
    (path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 2}')


def nameless(path):
    save_model(path)
    (path / "config.json").write_text("{}")


def listed(path):
    save_model(path)
    (path / "config.json").write_text("[]")


def cut_short(path):
    save_model(path)
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])


def other_sizes(path):
    patch(save_model(path), intermediate_size=96)


def too_deep(path):
    patch(save_model(path), num_hidden_layers=3)


def too_flat(path):
    patch(save_model(path), num_hidden_layers=1)


def uneven(path):
    patch(save_model(path), num_key_value_heads=3)


def odd_rope(path):
    patch(save_model(path), rope_parameters={"rope_type": "dynamic", "factor": 2.0})


def half_rope(path):
    patch(save_model(path), rope_parameters={"rope_type": "llama3", "rope_theta": 1.0})


def missing_shard(path):
    save_model(path)
    index = '{"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}'
    (path / "model.safetensors.index.json").write_text(index)


WRONG = {
    empty: "has no config.json",
    without_weights: "has no weights",
    pickled: "pickled weights only, which are never loaded",
    without_config: "has no config.json",
    broken_config: "is no valid JSON",
    shapeless: "has no `hidden_size`",
    nameless: "has no `model_type`",
    listed: "holds no JSON object",
    cut_short: "is damaged or cut short",
    other_sizes: "the config asks for",
    too_deep: "weights lack `model.layers.2.",
    too_flat: "unknown weights, such as `model.layers.1.",
    uneven: "attention heads cannot share 3 key heads evenly",
    odd_rope: "rotary scaling `dynamic` is not supported",
    half_rope: "rotary scaling `llama3` lacks `factor`",
    missing_shard: "lacks `model-00001-of-00002.safetensors`",
}


@pytest.mark.parametrize("spoil", WRONG, ids=lambda spoil: spoil.__name__)
def test_what_is_wrong_with_a_directory_is_said_in_one_line(tmp_path, spoil):
    spoil(tmp_path / "model")

    with pytest.raises(ModelError) as caught:
        ours(tmp_path / "model")

    message = str(caught.value)
    assert WRONG[spoil] in message
    assert "\n" not in message and not message.endswith(".")


@pytest.mark.parametrize(
    ("use", "said"),
    [
        ("nowhere", "there is no model at"),
        ("no/where", "neither a path nor in the local Hugging Face cache"),
        ("./no/where", "there is no model at"),
        ("demo:medium", "the demo has `demo:small` and `demo:large`"),
        ("model.bin", "is no model: give a .gguf file"),
    ],
)
def test_what_cannot_be_found_is_said_in_one_line(tmp_path, monkeypatch, use, said):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "model.bin").write_bytes(b"")

    with pytest.raises(TokenRouterError) as caught:
        locate(use, tmp_path)

    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_directory_without_a_tokenizer_says_so(tmp_path):
    save_model(tmp_path)
    (tmp_path / "tokenizer.json").unlink()

    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        read_vocabulary(locate(str(tmp_path), Path()))


def test_sharded_weights_are_read_from_all_files(tmp_path):
    from safetensors.torch import load_file, save_file

    path = save_model(tmp_path)
    whole = Paged(ours(path)).logits((0, 0, [5, 6, 7]))
    weights = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    names = sorted(weights)
    for at in range(2):
        part = {name: weights[name] for name in names[at::2]}
        save_file(part, path / f"model-0000{at + 1}-of-00002.safetensors")

    got = Paged(ours(path)).logits((0, 0, [5, 6, 7]))

    assert torch.equal(got, whole)


def test_the_fingerprint_follows_config_and_vocabulary_and_not_the_path(tmp_path):
    first = locate(str(save_model(tmp_path / "a", seed=1)), Path())
    second = locate(str(save_model(tmp_path / "b", seed=2)), Path())
    other = locate(str(save_model(tmp_path / "c", layers=1)), Path())
    respelled = locate(str(save_model(tmp_path / "d")), Path())
    text = (respelled.path / "tokenizer.json").read_text()
    (respelled.path / "tokenizer.json").write_text(text.replace("<|pad|>", "<|fill|>"))

    assert fingerprint(first) == fingerprint(second)
    assert len({fingerprint(found) for found in (first, other, respelled)}) == 3


def test_parameters_are_counted_without_reading_weights(tmp_path):
    path = save_model(tmp_path)

    from safetensors.torch import load_file

    expected = sum(weight.numel() for weight in load_file(path / "model.safetensors").values())
    assert count_parameters(locate(str(path), Path())) == expected


@pytest.mark.parametrize(
    "where", ["config.json", "generation_config.json", "tokenizer_config.json"]
)
def test_end_tokens_are_gathered_from_every_file_that_names_one(tmp_path, where):
    import json

    path = save_model(tmp_path, eos=(1,))
    tokenizer = path / "tokenizer_config.json"
    tokenizer.write_text("{}")
    given = (
        {"eos_token": "<|im_end|>"}
        if where == "tokenizer_config.json"
        else {"eos_token_id": [1, 2]}
    )
    file = path / where
    raw = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(raw | given))

    assert read_config(locate(str(path), Path())).eos_ids == (1, 2)


def test_a_plans_model_is_loaded_in_its_dtype_or_another(tmp_path):
    save_model(tmp_path / "tiny")
    model = Model(
        name="tiny",
        use="tiny",
        fingerprint="",
        family="llama",
        dtype="bfloat16",
        stop_ids=[],
        prefill="eager",
        vocab_size=1,
        context=1,
        layers=1,
        hidden_size=1,
        kv_bytes_per_token=1,
        weight_bytes=1,
    )

    assert load_model(model, tmp_path).dtype == torch.bfloat16
    assert load_model(model, tmp_path, dtype="float64").dtype == torch.float64
