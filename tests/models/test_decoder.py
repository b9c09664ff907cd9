"""Every family of our decoder against transformers on tiny random models, over pages, chunks and mixed batches."""

import pytest
import torch
from tokenrouter_kernels.native.build import library

from tests.factories import prompts, save_model
from tests.models.harness import Paged, all_logits, greedy, ours, patch, theirs
from tokenrouter.runtime.model import ExtendBatch, Extension

FAMILIES = {
    "llama": {"family": "llama"},
    "llama tied": {"family": "llama", "tied": True},
    "mistral": {"family": "mistral"},
    "qwen2": {"family": "qwen2"},
    "qwen2 tied and padded": {"family": "qwen2", "tied": True, "padding": 13},
    "qwen3": {"family": "qwen3"},
}
SCALINGS = {
    "linear": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    "llama3": {
        "rope_type": "llama3",
        "rope_theta": 500.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {
        "rope_type": "yarn",
        "rope_theta": 1000.0,
        "factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "another base": {"rope_type": "default", "rope_theta": 123.0},
}
TOKENS = prompts(1, seed=5)[0] + prompts(40, seed=6)[3] + prompts(40, seed=7)[5]
TOLERANCE = {"float32": 1e-4, "float64": 1e-11}


@pytest.fixture(autouse=True, params=["native", "torch"])
def _both_ways(request, monkeypatch):
    """Run each test in compiled kernels, where this machine has them, and in torch."""
    monkeypatch.setenv("TOKENROUTER_NATIVE", "1" if request.param == "native" else "0")
    library.cache_clear()
    yield
    library.cache_clear()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a function that gives the directory of a family's tiny model."""
    made = {}

    def get(name):
        if name not in made:
            path = tmp_path_factory.mktemp("models") / name.replace(" ", "_")
            made[name] = save_model(path, seed=len(made), **FAMILIES[name])
        return made[name]

    return get


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_hidden_states_equal_those_of_transformers(saved, family, dtype):
    model = theirs(saved(family), dtype)
    paged = Paged(ours(saved(family), dtype))

    got = paged.extend((2, 0, TOKENS), hidden=True)

    with torch.no_grad():
        expected = model(torch.tensor([TOKENS]), output_hidden_states=True)
    close = {"rtol": 0, "atol": TOLERANCE[dtype]}
    torch.testing.assert_close(got.logits[0], expected.logits[0, -1], **close)
    torch.testing.assert_close(got.hidden[0], expected.hidden_states[-1][0, -1], **close)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens_of_a_chunked_prefill_and_decodes_equal_those_of_transformers(saved, family):
    model = theirs(saved(family))
    got = greedy(Paged(ours(saved(family))), 3, TOKENS[:20], 24)

    expected = list(TOKENS[:20])
    for _ in range(24):
        expected.append(int(all_logits(model, expected)[-1].argmax()))
    assert got == expected[20:]
    assert len(set(got)) > 3  # it says something


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_mixed_batch_gives_each_request_its_own_logits(saved, family, dtype):
    model = theirs(saved(family), dtype)
    paged = Paged(ours(saved(family), dtype))
    texts = [list(reversed(TOKENS)), TOKENS[3:], TOKENS[7:], TOKENS]
    paged.logits((0, 0, texts[0][:9]), (1, 0, texts[1][:17]), (2, 0, texts[2][:4]))

    # A prefill chunk, a decode, a return with a few tokens, and a first token.
    ends = [30, 18, 9, 1]
    got = paged.logits(
        (0, 9, texts[0][9:30]),
        (1, 17, texts[1][17:18]),
        (2, 4, texts[2][4:9]),
        (3, 0, texts[3][:1]),
    )

    expected = [all_logits(model, t[:n])[-1] for t, n in zip(texts, ends, strict=True)]
    torch.testing.assert_close(got, torch.stack(expected), rtol=0, atol=TOLERANCE[dtype])


def test_only_requests_that_sample_give_rows(saved):
    from tests.models.harness import PAGE

    paged = Paged(ours(saved("llama")))
    both = paged.extend((0, 0, TOKENS[:5]), (1, 0, TOKENS[:9]), hidden=True)

    parts = [
        Extension(TOKENS[:5], 0, paged.pages[2], samples=False),
        Extension(TOKENS[:9], 0, paged.pages[3]),
    ]
    one = paged.model.extend(ExtendBatch.of(parts, PAGE), paged.cache, hidden=True)
    none = paged.model.extend(ExtendBatch.of(parts[:1], PAGE), paged.cache)

    torch.testing.assert_close(one.logits, both.logits[1:])
    torch.testing.assert_close(one.hidden, both.hidden[1:])
    assert none.logits.shape == (0, both.logits.shape[1]) and none.hidden is None


@pytest.mark.parametrize("scaling", SCALINGS)
def test_rotary_scalings_equal_those_of_transformers(tmp_path, scaling):
    path = patch(save_model(tmp_path), rope_parameters=SCALINGS[scaling])
    tokens = (TOKENS * 4)[:120]

    got = Paged(ours(path)).logits((0, 0, tokens))

    torch.testing.assert_close(got[0], all_logits(theirs(path), tokens)[-1], rtol=0, atol=1e-4)


def test_configs_written_before_transformers_5_are_read_alike(tmp_path):
    scaling = SCALINGS["llama3"]
    new = patch(save_model(tmp_path / "new"), rope_parameters=scaling)
    old = save_model(tmp_path / "old")
    inner = {k: v for k, v in scaling.items() if k != "rope_theta"}
    patch(old, rope_parameters=None, rope_theta=500.0, rope_scaling=inner)

    got = [Paged(ours(path)).logits((0, 0, TOKENS)) for path in (new, old)]

    assert torch.equal(*got)


@pytest.mark.parametrize(
    "changes",
    [
        {"family": "mistral", "sliding_window": 8},
        {
            "family": "qwen2",
            "use_sliding_window": True,
            "sliding_window": 8,
            "max_window_layers": 1,
            "layer_types": ["full_attention", "sliding_attention"],
        },
    ],
    ids=lambda changes: changes["family"],
)
@pytest.mark.parametrize("deterministic", [False, True])
def test_a_sliding_window_hides_what_lies_before_it(tmp_path, changes, deterministic):
    family = changes["family"]
    path = save_model(tmp_path, family=family)
    without = Paged(ours(path)).logits((0, 0, TOKENS))
    patch(path, **{k: v for k, v in changes.items() if k != "family"})
    paged = Paged(ours(path, deterministic=deterministic))

    paged.logits((0, 0, TOKENS[:11]))
    got = paged.logits((0, 11, TOKENS[11:]))

    torch.testing.assert_close(got[0], all_logits(theirs(path), TOKENS)[-1], rtol=0, atol=1e-4)
    assert not torch.allclose(got, without, atol=1e-2)


def test_a_feed_forward_bias_is_read(tmp_path):
    path = patch(save_model(tmp_path), mlp_bias=True, attention_bias=True)
    model = _with_biases(path)

    got = Paged(ours(path)).logits((0, 0, TOKENS))

    torch.testing.assert_close(got[0], all_logits(model, TOKENS)[-1], rtol=0, atol=1e-4)


def _with_biases(path):
    """Give a saved model loud biases in all of its linears."""
    from safetensors.torch import load_file, save_file

    file = path / "model.safetensors"
    weights = load_file(file)
    torch.manual_seed(1)
    for name, weight in list(weights.items()):
        if "_proj" in name:
            weights[name.replace(".weight", ".bias")] = torch.randn(weight.shape[0])
    save_file(weights, file, metadata={"format": "pt"})
    return theirs(path)


def test_a_batch_lies_one_request_after_the_other_and_its_page_table_is_filled_up():
    parts = [Extension([5], 16, [3, 4, 9]), Extension([6, 7], 0, [8], samples=2)]

    batch = ExtendBatch.of(parts, 16)

    assert batch.token_ids.tolist() == [5, 6, 7]
    assert batch.positions.tolist() == [16, 0, 1]
    assert batch.slots.tolist() == [64, 128, 129]
    assert batch.logits_rows.tolist() == [0, 1, 2]
    assert batch.ragged.page_table.tolist() == [[3, 4], [8, 0]]
    assert (batch.ragged.offsets, batch.ragged.lengths) == ([0, 1, 3], [17, 2])
