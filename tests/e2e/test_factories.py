"""The tiny models are worth testing with: they load, they share a vocabulary, and they have something to decide."""

import pytest
import torch

from tests.factories import prompts, vocabulary_size


@pytest.mark.parametrize("name", ["small", "large", "half"])
def test_a_tiny_model_writes_varied_tokens_with_varied_entropy(bench, name):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(bench.models[name], dtype=torch.float64)
    tokens, entropies = set(), []
    for ids in prompts(3):
        for _ in range(20):
            with torch.no_grad():
                logits = model(torch.tensor([ids])).logits[0, -1, : vocabulary_size()]
            entropies.append(float(torch.special.entr(torch.softmax(logits, -1)).sum()))
            ids = [*ids, int(logits.argmax())]
            tokens.add(ids[-1])

    assert len(tokens) > 8
    assert min(entropies) < 0.7
    assert max(entropies) > 1.5


def test_tiny_models_differ_in_family_padding_and_end_of_sequence(bench):
    from transformers import AutoConfig

    configs = [AutoConfig.from_pretrained(path) for path in bench.models.values()]

    assert len({config.model_type for config in configs}) == 3
    assert len({config.vocab_size for config in configs}) == 3
    assert len({str(config.eos_token_id) for config in configs}) == 2
