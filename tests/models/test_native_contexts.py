"""The native decoder over contexts of several chunks: near to float64, and the same to the bit however the work is dealt out."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.factories import prompts, save_model
from tests.kernels.compiled import each_kind  # noqa: F401
from tests.models.harness import PAGE, error, native, ours, patch
from tokenrouter.runtime.model import ExtendBatch, Extension

CONTEXT = 768  # three chunks of 256
TOKENS = [token for at in range(60) for token in prompts(40, seed=at)[at % 40]][:CONTEXT]
SHAPES = {
    "llama": {},
    "windowed": {"family": "mistral"},
    "grouped": {"family": "qwen3", "hidden": 320},
}
DTYPES = ["bfloat16", "float32"]
WINDOW = 300  # begins within chunks, and ends within others


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a function that gives the directory of a tiny model that reads long contexts."""
    made = {}

    def get(name):
        if name not in made:
            path = tmp_path_factory.mktemp("models") / name
            made[name] = save_model(path, seed=3, context=1024, **SHAPES[name])
            if name == "windowed":
                patch(path, sliding_window=WINDOW)
        return made[name]

    return get


class Reader:
    """A model with a cache of some requests, whose pages lie scattered."""

    def __init__(self, model, requests=6):
        self.model, per = model, CONTEXT // PAGE
        self.cache = model.new_cache(requests * per, PAGE)
        self.pages = [
            [(request + 5 * at) % requests + at * requests for at in range(per)]
            for request in range(requests)
        ]

    def read(self, *parts):
        """Read (request, start, tokens) parts as one batch; logits after each of their tokens, by part."""
        parts = [
            Extension(tokens, start, self.pages[request], len(tokens))
            for request, start, tokens in parts
        ]
        logits = self.model.extend(ExtendBatch.of(parts, PAGE), self.cache).logits
        return logits.split([len(part.tokens) for part in parts])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_every_row_of_a_long_context_is_near_to_float64(saved, name, dtype):
    got = Reader(native(saved(name), dtype), 1).read((0, 0, TOKENS))[0]
    expected = Reader(ours(saved(name), "float64"), 1).read((0, 0, TOKENS))[0]

    # Torch's bfloat16 has rows with 0.037 here, AMX with 0.040, and where activations stay float32 it is 0.030.
    most = (0.05 if dtype == "bfloat16" else 2e-5) * float(expected.std())
    assert max(error(a, b) for a, b in zip(got, expected, strict=True)) < most


def test_chunks_whose_largest_scores_lie_far_apart_are_folded_as_in_float64(saved, tmp_path):
    path = tmp_path / "sharp"
    shutil.copytree(saved("llama"), path)
    weights = load_file(path / "model.safetensors")
    for name in weights:
        if "q_proj" in name:
            weights[name] *= 3000
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})

    got = Reader(native(path, "float32"), 1).read((0, 0, TOKENS))[0]
    expected = Reader(ours(path, "float64"), 1).read((0, 0, TOKENS))[0]

    near = [error(a, b) < 0.01 * float(expected.std()) for a, b in zip(got, expected, strict=True)]
    assert got.isfinite().all()
    assert (
        sum(near) > 0.8 * CONTEXT
    )  # scores as far apart as this decide between some keys by a rounding


@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SHAPES)
def test_a_rows_bits_do_not_tell_who_worked_on_which_part_of_its_context(
    saved, name, dtype, threads
):
    model = native(saved(name), dtype)
    expected = Reader(model).read((0, 0, TOKENS))[0]
    reader, at = Reader(model), 0
    short = [(request, 0, TOKENS[request : request + 3]) for request in (1, 2, 3)]
    long = (4, 0, TOKENS[: CONTEXT - 1])
    torch.set_num_threads(threads)

    reader.read(long)
    sizes = [247, 4, 9, 1, 17, 16, 219, 1, 1, 40, 12]
    company = [(), short, (long,), (*short, long), ((4, CONTEXT - 1, [5]),)]
    for turn, size in enumerate([*sizes, CONTEXT - sum(sizes)]):
        beside = company[turn % len(company)]
        got = reader.read(*beside[:2], (0, at, TOKENS[at : at + size]), *beside[2:])
        assert torch.equal(got[min(2, len(beside))], expected[at : at + size]), (at, size)
        at += size


def test_tokens_that_do_not_see_an_overflow_are_not_spoilt_by_it(tmp_path):
    path, window, at = save_model(tmp_path / "model", family="mistral", context=1024), 7, 300
    patch(path, sliding_window=window)
    loud = next(token for token in range(100, 300) if token not in TOKENS)
    weights = load_file(path / "model.safetensors")
    weights["model.embed_tokens.weight"][loud] = float("inf")
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    model = native(path, "float32")
    sound = Reader(model, 1).read((0, 0, TOKENS))[0]

    got = Reader(model, 1).read((0, 0, [*TOKENS[:at], loud, *TOKENS[at + 1 :]]))[0]

    beyond = at + 1 + 2 * (window - 1)  # of two layers
    assert got[at:beyond].isnan().all()
    assert torch.equal(got[:at], sound[:at])
    assert got[beyond:].isfinite().all()
    far = beyond + 40
    assert torch.equal(got[far:], sound[far:])
