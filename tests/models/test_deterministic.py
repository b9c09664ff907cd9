"""Deterministic mode: a request's logits are equal to the bit alone and in a crowd, whole and in chunks."""

import pytest
import torch

from tests.factories import prompts, save_model
from tests.models.harness import Paged, all_logits, ours, theirs
from tokenrouter.models import ModelError

LENGTHS = (70, 1, 21, 16, 5)
TEXTS = [(prompt * 99)[:n] for prompt, n in zip(prompts(5, seed=3), LENGTHS, strict=True)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    return {
        # Widths at which plain linears differ by row count, so that the test can fail.
        "llama": save_model(root / "llama", hidden=128, padding=200),
        "qwen2": save_model(root / "qwen2", family="qwen2", hidden=96, tied=True),
        "qwen3": save_model(root / "qwen3", family="qwen3"),
    }


def one_by_one(model, text):
    """Return the logits after every token, read one at a time with nobody else there."""
    paged = Paged(model, requests=1)
    return torch.cat([paged.logits((0, at, text[at : at + 1])) for at in range(len(text))])


@pytest.mark.parametrize(
    ("family", "dtype", "threads"),
    [
        ("llama", "float32", 1),
        ("llama", "float32", 2),
        ("llama", "float64", 1),
        ("qwen2", "float32", 1),
        ("qwen3", "float64", 1),
    ],
)
def test_bits_are_those_of_the_request_alone_whatever_else_is_in_the_batch(
    saved, family, dtype, threads
):
    torch.set_num_threads(threads)
    model = ours(saved[family], dtype, deterministic=True)
    expected = [one_by_one(model, text) for text in TEXTS]
    paged = Paged(model)

    # Chunks of sizes that change from round to round, of all requests that are not at their end.
    at = [0] * len(TEXTS)
    for sizes in ([1, 1, 1, 1, 1], [7, 1, 16, 3, 2], [61, 1, 1, 5, 1], [99] * 5):
        parts = [
            (request, at[request], text[at[request] : at[request] + sizes[request]])
            for request, text in enumerate(TEXTS)
            if at[request] < len(text)
        ]
        got = paged.logits(*parts)
        for row, (request, start, tokens) in zip(got, parts, strict=True):
            at[request] = start + len(tokens)
            assert torch.equal(row, expected[request][at[request] - 1]), (request, at[request])
    assert at == [len(text) for text in TEXTS]


@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_the_logits_are_still_those_of_transformers(saved, family):
    got = Paged(ours(saved[family], deterministic=True)).logits((0, 0, TEXTS[0]))

    expected = all_logits(theirs(saved[family]), TEXTS[0])[-1]
    torch.testing.assert_close(got[0], expected, rtol=0, atol=2e-4)


def test_it_is_refused_where_it_cannot_hold(saved):
    with pytest.raises(ModelError, match="needs float32 or float64, not bfloat16"):
        ours(saved["llama"], "bfloat16", deterministic=True)
