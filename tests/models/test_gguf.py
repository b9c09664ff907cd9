"""GGUF files: tiny ones against the directories they were made from, the demo's teacher against transformers."""

from pathlib import Path

import gguf
import pytest
import torch

from tests.factories import EOS, prompts, save_model
from tests.models.ggufs import write_model
from tests.models.harness import Paged, all_logits, ours
from tokenrouter.models import ModelError, locate, read_config, read_vocabulary
from tokenrouter.models.gguf import read_gguf
from tokenrouter.runtime.model.load import load

TOKENS = prompts(1, seed=5)[0]
KINDS = ["F32", "Q8_0", "Q4_0", "Q4_1", "Q5_0"]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_a_file_gives_the_logits_of_the_directory_it_was_made_from(tmp_path, family):
    source = save_model(tmp_path / "hf", family=family, tied=family == "qwen3")
    path = write_model(source, tmp_path / "model.gguf")

    got = Paged(ours(path)).logits((0, 0, TOKENS))

    assert torch.equal(got, Paged(ours(source)).logits((0, 0, TOKENS)))


@pytest.mark.parametrize("kind", KINDS)
def test_quantised_weights_are_expanded_as_the_gguf_library_says(tmp_path, kind):
    source = save_model(tmp_path / "hf")
    path = write_model(source, tmp_path / "model.gguf", gguf.GGMLQuantizationType[kind])
    reader = gguf.GGUFReader(path)
    stored = {tensor.name: tensor for tensor in reader.tensors}["blk.1.ffn_down.weight"]
    expected = gguf.dequantize(stored.data, stored.tensor_type)

    x = torch.eye(64, dtype=torch.float64)
    got = ours(path, "float64").layers[1].down(x).T

    torch.testing.assert_close(got, torch.tensor(expected).double(), rtol=0, atol=0)


def test_config_and_vocabulary_are_those_of_the_directory(tmp_path):
    source = locate(str(save_model(tmp_path / "hf", family="qwen2")), Path())
    path = locate(str(write_model(source.path, tmp_path / "model.gguf")), Path())

    there, here = read_config(source), read_config(path)

    for name in ("family", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim"):
        assert getattr(here, name) == getattr(there, name), name
    for name in ("rope", "context", "vocab_rows", "tied"):
        assert getattr(here, name) == getattr(there, name), name
    assert here.rms_eps == pytest.approx(there.rms_eps)
    assert there.eos_ids == (EOS,)
    assert here.eos_ids == (0, EOS)  # well-known end tokens count where no config names them
    assert read_vocabulary(path).digest == read_vocabulary(source).digest


@pytest.mark.parametrize("keep", [0, 3, 20, 2000, 20000, -100])
def test_a_file_that_is_cut_short_is_refused_in_one_line(tmp_path, keep):
    path = write_model(save_model(tmp_path / "hf"), tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes()[:keep])

    with pytest.raises(ModelError) as caught:
        ours(path)

    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_an_architecture_that_is_not_ours_is_named(tmp_path):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()

    with pytest.raises(ModelError, match="architecture `mamba`"):
        ours(path)


@pytest.fixture(scope="module")
def teacher():
    return locate("demo:large", Path())


@pytest.mark.demo
@pytest.mark.slow  # the gate's tests/e2e/test_demo_pair.py holds what the same two write to each other
def test_the_teacher_computes_what_transformers_makes_of_its_file(teacher):
    from transformers import AutoModelForCausalLM, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        teacher.path.parent,
        gguf_file=teacher.path.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
    ).eval()
    tokens = [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198]
    paged = Paged(load(teacher, "float32"))

    paged.logits((0, 0, tokens[:6]))
    got = paged.logits((0, 6, tokens[6:]))

    torch.testing.assert_close(got[0], all_logits(model, tokens)[-1], rtol=0, atol=2e-3)


@pytest.mark.demo
def test_the_teachers_head_is_read_in_a_moment_and_whole(teacher):
    head = read_gguf(teacher.path)

    assert len(head.tensors) == 272
    assert head.tensors["token_embd.weight"].shape == (49152, 576)
    assert len(head.metadata["tokenizer.ggml.merges"]) == 48900
    assert read_config(teacher).eos_ids == (0, 2)


@pytest.mark.demo
def test_the_student_has_its_own_layers_and_the_teachers_embedding(teacher):
    small = locate("demo:small", Path())
    student, whole = load(small, "float32"), load(teacher, "float32")
    tokens = torch.tensor([1, 4093, 198, 49151])

    assert torch.equal(student.embed(tokens), whole.embed(tokens))
    got, teachers = (Paged(model).logits((0, 0, tokens.tolist())) for model in (student, whole))
    assert (got - teachers).abs().mean() > 0.1
    assert student.config.layers < whole.config.layers
    assert read_vocabulary(small) == read_vocabulary(teacher)
    assert read_config(small).eos_ids == read_config(teacher).eos_ids
