"""Dummies: the sizes of published models, weights that depend on the seed alone, and a policy over them that runs."""

import json
from pathlib import Path

import msgspec
import pytest
import torch
from safetensors.torch import save_file

from tests.factories import save_model, save_tokenizer, vocabulary_size
from tests.models.harness import Paged, ours
from tokenrouter.cli import main
from tokenrouter.models import ModelError, count_parameters, fingerprint, locate, read_config
from tokenrouter.models.dummy import SHAPES
from tokenrouter.models.tokenizer import TextTokenizer
from tokenrouter.runtime.engine import Engine
from tokenrouter.runtime.messages import Sampling
from tokenrouter.runtime.model.dummy import Dummy

TINY = {
    "model_type": "qwen3",
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": 300,
    "max_position_embeddings": 256,
}
PUBLISHED = {  # parameters, a tied embedding counted once
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "smollm2-135m": 134_515_008,
}


def shape(path, **changes):
    """Write a directory that holds no more than a shape."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(TINY | changes))
    return path


def at(use, base=Path("/nowhere")):
    return locate(use, base)


def test_the_shapes_have_as_many_parameters_as_the_models_that_they_are_named_after():
    assert {name: count_parameters(at(f"dummy:{name}")) for name in SHAPES} == PUBLISHED


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_dummy_is_the_checkpoint_that_holds_its_weights(tmp_path, family, tied):
    path = shape(tmp_path / "shape", model_type=family, tie_word_embeddings=tied)
    drawn = Dummy(read_config(at(f"dummy:{path}")), 5)
    saved = shape(tmp_path / "saved", model_type=family, tie_word_embeddings=tied)
    save_file(
        {name: drawn.get(name).clone() for name in drawn.names()}, saved / "model.safetensors"
    )

    got = Paged(ours(f"dummy:{path}?seed=5")).logits((0, 0, [1, 2, 3]))

    assert torch.equal(got, Paged(ours(saved)).logits((0, 0, [1, 2, 3])))


def test_weights_depend_on_the_seed_and_on_nothing_else(tmp_path):
    path = shape(tmp_path / "shape")

    def logits(use):
        return Paged(ours(use)).logits((0, 0, [1, 2, 3]))

    first = logits(f"dummy:{path}")

    assert torch.equal(first, logits(f"dummy:{path}?seed=0"))
    assert (first - logits(f"dummy:{path}?seed=1")).abs().max() > 0.1
    assert 1 < first.std() < 6  # neither flat nor certain
    assert len({tuple(row) for row in Dummy(read_config(at(f"dummy:{path}")), 0).get("model.embed_tokens.weight").tolist()}) == 300  # fmt: skip


def test_no_two_layers_of_a_dummy_have_the_same_weights(tmp_path):
    path = shape(tmp_path / "shape")
    weights = Dummy(read_config(at(f"dummy:{path}")), 0)
    drawn = [weights.get(name).flatten() for name in sorted(weights.names()) if "norm" not in name]

    firsts = {tuple(values[:8].sign().tolist()) for values in drawn}  # whatever the scale

    assert len(drawn) > 10
    assert len(firsts) > len(drawn) / 2


def test_a_dummy_is_never_taken_for_a_checkpoint_nor_for_another_dummy(tmp_path):
    path = save_model(tmp_path / "model")

    prints = [fingerprint(at(use)) for use in (str(path), f"dummy:{path}", f"dummy:{path}?seed=1")]

    assert len(set(prints)) == 3
    assert fingerprint(at("dummy:qwen3-8b")) == fingerprint(at("dummy:qwen3-8b?seed=0"))


def test_texts_of_a_dummy_without_tokenizer_are_read_byte_by_byte(tmp_path):
    tokenizer = TextTokenizer.load(at(f"dummy:{shape(tmp_path)}"))

    ids = tokenizer.encode("naïve w299")

    assert ids == list("naïve w299".encode())
    assert tokenizer.decode(ids) == "naïve w299"
    assert tokenizer.decode([72, 105, 299, 256]) == "Hi w299"
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}]) == list(
        b"user: x\nassistant:"
    )


def test_a_dummy_with_a_tokenizer_speaks_it(tmp_path):
    save_tokenizer(shape(tmp_path, vocab_size=vocabulary_size()))

    tokenizer = TextTokenizer.load(at(f"dummy:{tmp_path}"))

    assert tokenizer.size == vocabulary_size()
    assert len(tokenizer.encode("The river runs")) < 10


def test_a_policy_over_dummies_compiles_and_writes(tmp_path):
    shape(tmp_path / "policies" / "a")
    shape(tmp_path / "policies" / "b", hidden_size=48)
    policy = tmp_path / "policies" / "p.route"
    policy.write_text(
        'route 1\nmodel small { use "dummy:a" }\nmodel large { use "dummy:b?seed=1" cost 4 }\n'
        "policy p { start small at small { when chance < 0.35 -> borrow large for 1 otherwise -> commit } }\n"
    )
    (tmp_path / "plans").mkdir()
    plan = tmp_path / "plans" / "p.json"

    assert main(["compile", str(policy), "-o", str(plan)]) == 0
    (written,) = Engine(plan).generate(["abc"], Sampling(max_tokens=40, ignore_eos=True))

    assert msgspec.json.decode(plan.read_bytes())["models"][1]["use"] == (
        "dummy:../policies/b?seed=1"
    )
    assert len(written.ids) == 40
    assert set(written.models) == {0, 1}
    assert written.text


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (
            "dummy:qwen9",
            "`dummy:qwen9` is neither a directory with a config.json nor one of the shapes",
        ),
        ("dummy:qwen3-8b?sed=1", "`dummy:qwen3-8b?sed=1`: behind `?` only `seed=NUMBER` may stand"),
        ("dummy:qwen3-8b?seed=-1", "behind `?` only `seed=NUMBER` may stand"),
    ],
)
def test_what_is_no_dummy_is_refused_in_one_line(use, message):
    with pytest.raises(ModelError) as told:
        at(use)

    assert message in str(told.value) and "\n" not in str(told.value)


def test_families_of_others_and_too_few_rows_are_refused_in_one_line(tmp_path):
    foreign = shape(tmp_path / "foreign", model_type="gpt_neox")
    short = shape(tmp_path / "short", vocab_size=200)

    with pytest.raises(ModelError, match="not for `gpt_neox`"):
        count_parameters(at(f"dummy:{foreign}"))
    with pytest.raises(ModelError, match=r"200 rows are too few .* give the dummy a tokenizer"):
        fingerprint(at(f"dummy:{short}"))
