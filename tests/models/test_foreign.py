"""Architectures that are not ours run through transformers over the same pages, or are refused in one line."""

import pytest
import torch

from tests.factories import save_tokenizer
from tests.models.harness import Paged, all_logits, greedy, ours, theirs
from tokenrouter.models import ModelError
from tokenrouter.runtime.model.foreign import ForeignModel

SIZES = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8}
RUN = {
    "gpt_neox": SIZES,
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "gemma2": {**GROUPED, "sliding_window": 8, "query_pre_attn_scalar": 8},
    "olmo2": {**SIZES, "num_key_value_heads": 2},
}
REFUSED = {
    "bloom": ({"hidden_size": 32, "n_layer": 2, "n_head": 4}, "0 of its 2 layers"),
    "gpt_oss": ({**GROUPED, "num_local_experts": 2}, "its attention takes `s_aux`"),
}
TOKENS = [int(i) for i in torch.randint(0, 90, (40,), generator=torch.Generator().manual_seed(1))]


def save(path, family, sizes):
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    config = AutoConfig.for_model(
        family, vocab_size=90, bos_token_id=None, eos_token_id=1, pad_token_id=None, **sizes
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        for weight in model.parameters():
            torch.nn.init.normal_(weight, 0.0, 0.3)
    model.float().save_pretrained(path)
    save_tokenizer(path)
    return path


@pytest.mark.parametrize("family", RUN)
def test_a_mixed_batch_gives_the_logits_and_hidden_states_of_transformers(tmp_path, family):
    path = save(tmp_path, family, RUN[family])
    model, expected = ours(path, "float64"), theirs(path, "float64", "eager")
    paged = Paged(model, requests=3)

    paged.logits((0, 0, TOKENS[:9]), (1, 0, TOKENS[5:30]))
    got = paged.extend(
        (0, 9, TOKENS[9:33]), (1, 25, TOKENS[30:31]), (2, 0, TOKENS[:4]), hidden=True
    )

    assert isinstance(model, ForeignModel)
    for row, text in enumerate([TOKENS[:33], TOKENS[5:31], TOKENS[:4]]):
        with torch.no_grad():
            whole = expected(torch.tensor([text]), output_hidden_states=True)
        close = {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(got.logits[row], whole.logits[0, -1], **close)
        torch.testing.assert_close(got.hidden[row], whole.hidden_states[-1][0, -1], **close)


def test_greedy_tokens_equal_those_of_transformers(tmp_path):
    path = save(tmp_path, "gpt_neox", RUN["gpt_neox"])
    got = greedy(Paged(ours(path), requests=2), 1, TOKENS[:13], 20)

    expected, model = list(TOKENS[:13]), theirs(path)
    for _ in range(20):
        expected.append(int(all_logits(model, expected)[-1].argmax()))
    assert got == expected[13:]


@pytest.mark.parametrize("family", REFUSED)
def test_a_model_that_pages_cannot_hold_is_refused_in_one_line(tmp_path, family):
    sizes, reason = REFUSED[family]
    path = save(tmp_path, family, sizes)

    with pytest.raises(ModelError) as caught:
        ours(path)

    assert reason in str(caught.value) and f"`{family}`" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_deterministic_mode_says_that_it_does_not_cover_them(tmp_path):
    path = save(tmp_path, "gpt_neox", RUN["gpt_neox"])

    with pytest.raises(ModelError, match="deterministic mode covers our own decoder"):
        ours(path, deterministic=True)


def test_an_architecture_that_nobody_knows_is_refused_in_one_line(tmp_path):
    from tests.models.harness import patch

    path = patch(save(tmp_path, "gpt_neox", RUN["gpt_neox"]), model_type="nosuch")

    with pytest.raises(ModelError) as caught:
        ours(path)

    assert "nosuch" in str(caught.value) and "\n" not in str(caught.value)
