"""The native decoder: near to the same weights in float64, the same to the bit in any company, and optional."""

import shutil
import subprocess
import sys

import pytest
import tokenrouter_kernels as kernels
import torch
from tokenrouter_kernels.native import build
from tokenrouter_kernels.native.build import NativeError
from tokenrouter_kernels.native.certainty import Looked

from tests.factories import prompts, save_model
from tests.kernels.compiled import each_kind  # noqa: F401
from tests.models.harness import PAGE, Paged, error, native, ours, patch
from tokenrouter.models import ModelError, locate
from tokenrouter.runtime.model.decoder import Decoder
from tokenrouter.runtime.model.linears import rounded
from tokenrouter.runtime.model.load import load

FAMILIES = {
    "llama": {"family": "llama"},
    "llama tied": {"family": "llama", "tied": True},
    "mistral": {"family": "mistral"},
    "qwen2": {"family": "qwen2", "padding": 13},
    "qwen3": {"family": "qwen3"},
    "odd sizes": {"family": "llama", "hidden": 40},
    "heads of 64": {"family": "qwen3", "hidden": 256},
    "heads of 80": {"family": "llama", "hidden": 320},
    "heads of 128": {"family": "llama", "hidden": 512},
    "heads of 152": {"family": "llama", "hidden": 608},
    "heads of 256": {"family": "llama", "hidden": 1024},
}
TOKENS = prompts(40, seed=6)[3] + prompts(40, seed=7)[5] + prompts(40, seed=8)[7]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a function that gives the directory of a family's tiny model, whose weights are whole in bfloat16."""
    from safetensors.torch import load_file, save_file

    made = {}

    def get(name):
        if name not in made:
            path = tmp_path_factory.mktemp("models") / name.replace(" ", "_")
            made[name] = save_model(path, seed=len(made), **FAMILIES[name])
            file = path / "model.safetensors"
            narrow = {k: v.bfloat16().float() for k, v in load_file(file).items()}
            save_file(narrow, file, metadata={"format": "pt"})
        return made[name]

    return get


DTYPES = ["bfloat16", "float32"]


def plain(path, dtype, monkeypatch):
    """Return the torch decoder."""
    with monkeypatch.context() as patch:
        patch.setattr(build, "load", refuse)
        build.library.cache_clear()
        model = ours(path, dtype)
    build.library.cache_clear()
    assert isinstance(model, Decoder)
    return model


def refuse(*_):
    raise NativeError("not now")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_states_are_as_near_to_float64_as_those_of_torch(
    saved, family, dtype, monkeypatch
):
    path = saved(family)
    models = native(path, dtype), plain(path, dtype, monkeypatch), ours(path, "float64")

    outs = []
    for model in models:
        paged = Paged(model)
        paged.extend((2, 0, TOKENS[:9]))
        parts = [paged.extend((2, 9, TOKENS[9:]), (5, 0, TOKENS[:4]), hidden=True)]
        parts += [
            paged.extend((5, 4 + at, [token]), (2, len(TOKENS) + at, [token]), hidden=True)
            for at, token in enumerate(TOKENS[20:30])
        ]
        outs.append(
            [torch.cat([getattr(part, which) for part in parts]) for which in ("logits", "hidden")]
        )
    ours_, theirs, true = outs

    for got, other, expected in zip(ours_, theirs, true, strict=True):
        assert got.shape == expected.shape
        # In bfloat16 it is nearer than torch; in float32 the orders of addition differ, and neither is the nearer one.
        times, most = (1, 0.02) if dtype == "bfloat16" else (2, 1e-5)
        assert error(got, expected) < min(times * error(other, expected), most * expected.std())


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_sliding_window_hides_the_same_positions(saved, tmp_path, dtype):
    path = tmp_path / "windowed"
    shutil.copytree(saved("mistral"), path)
    patch(path, sliding_window=7)
    got = Paged(native(path, dtype)).extend((1, 0, TOKENS))
    expected = Paged(ours(path, "float64")).extend((1, 0, TOKENS))
    unwindowed = Paged(ours(saved("mistral"), "float64")).extend((1, 0, TOKENS))

    assert error(got.logits, expected.logits) < 0.02 * expected.logits.std()
    assert error(unwindowed.logits, expected.logits) > 0.05 * expected.logits.std()


def test_scores_far_beyond_what_an_exponential_holds_are_those_of_float64(saved, tmp_path):
    from safetensors.torch import load_file, save_file

    path = tmp_path / "sharp"
    shutil.copytree(saved("llama"), path)
    weights = load_file(path / "model.safetensors")
    for name in weights:
        if "q_proj" in name:
            weights[name] *= 3000  # the largest scores lie hundreds above the last ones
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})

    got = Paged(native(path, "float32")).extend((1, 0, TOKENS)).logits
    expected = Paged(ours(path, "float64")).extend((1, 0, TOKENS)).logits

    assert error(got, expected) < 0.01 * expected.std()


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_request_whose_numbers_overflow_spoils_no_other(tmp_path, dtype, int8):
    from transformers import AutoConfig, AutoModelForCausalLM

    path = save_model(tmp_path / "model", family="qwen3", hidden=40)
    # Rows of the hidden size, 40, end in padding where rows of all heads, 64, have numbers.
    config = AutoConfig.from_pretrained(
        path, head_dim=16, **({"tie_word_embeddings": False} if int8 else {})
    )
    torch.manual_seed(1)
    made = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        made.get_input_embeddings().weight[TOKENS[0]] = float("inf")
    made.save_pretrained(path)
    sound = [token for token in TOKENS if token != TOKENS[0]][:9]
    alone = Paged(native(path, dtype, int8=int8)).extend((1, 0, sound)).logits
    model = Paged(native(path, dtype, int8=int8))

    spoilt = model.extend((0, 0, [TOKENS[0]])).logits
    after, _ = model.extend((1, 0, sound), (0, 1, [TOKENS[0]])).logits

    assert spoilt.isnan().all() if int8 else spoilt.isnan().any()
    assert torch.equal(after, alone[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_only_the_dimensions_that_turn_are_turned(saved, tmp_path, dtype):
    path = tmp_path / "partial"
    shutil.copytree(saved("llama"), path)
    patch(path, partial_rotary_factor=0.5)

    got = Paged(native(path, dtype)).extend((1, 0, TOKENS)).logits
    expected = Paged(ours(path, "float64")).extend((1, 0, TOKENS)).logits
    whole = Paged(ours(saved("llama"), "float64")).extend((1, 0, TOKENS)).logits

    assert error(got, expected) < 0.02 * expected.std()
    assert error(whole, expected) > 0.05 * expected.std()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("family", ["llama", "qwen2", "odd sizes", "heads of 64", "heads of 80"])
def test_a_rows_bits_depend_on_no_other_row_chunk_or_thread(saved, family, int8, dtype):
    model = native(saved(family), dtype, int8=int8)
    threads = torch.get_num_threads()
    alone = Paged(model)
    expected = []
    torch.set_num_threads(1)
    try:
        for at, token in enumerate(TOKENS):
            expected.append(alone.extend((0, at, [token])).logits[0])
        torch.set_num_threads(3)
        crowd = Paged(model)
        for at in range(0, len(TOKENS), 5):
            others = [(r, at, TOKENS[at : at + 1 + r]) for r in range(1, 7)]
            got = crowd.extend(*others[:3], (0, at, TOKENS[at : at + 5]), *others[3:])
            assert torch.equal(got.logits[3], expected[min(at + 5, len(TOKENS)) - 1])
    finally:
        torch.set_num_threads(threads)


@pytest.mark.skipif(not build.has(*build.TILES), reason="this processor has no AMX")
@pytest.mark.parametrize("family", ["llama", "odd sizes", "heads of 152"])
def test_int8_has_the_same_bits_with_and_without_tiles(saved, family, monkeypatch):
    given = [(r, 0, TOKENS[: 3 + 9 * r]) for r in range(4)]  # 66 rows
    tiled = Paged(native(saved(family), "bfloat16", int8=True)).extend(*given).logits
    monkeypatch.setenv("TOKENROUTER_NATIVE", "vnni")
    build.library.cache_clear()

    plain = Paged(native(saved(family), "bfloat16", int8=True)).extend(*given).logits

    build.library.cache_clear()
    assert torch.equal(tiled, plain)


def test_where_linux_refuses_tiles_the_kernels_do_without(saved, monkeypatch):
    monkeypatch.setattr(build, "tiles_granted", lambda: False)

    assert not build.load().tr_tiles()


def test_threads_that_share_one_core_come_to_the_bits_of_one(saved):
    command = [sys.executable, "-m", "tests.models.crowded", str(saved("llama"))]

    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert done.stdout.split() == ["equal"], done.stderr


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_int8_model_is_the_model_of_its_rounded_weights(saved, family, dtype):
    path = saved(family)
    got = Paged(native(path, dtype, int8=True)).extend((0, 0, TOKENS))
    true = Paged(load(locate(str(path), path), "float64", int8=True)).extend((0, 0, TOKENS))
    unrounded = Paged(ours(path, "float64")).extend((0, 0, TOKENS))

    assert error(got.logits, true.logits) < 0.01 * true.logits.std()
    assert error(got.logits, true.logits) < error(got.logits, unrounded.logits)


def test_weights_are_rounded_to_the_nearest_of_255_steps_by_output():
    weight = torch.tensor([[127.0, -0.4, 0.5, 1.5], [0.0, 0.0, 0.0, 0.0], [-2.54, 0.02, 1.0, 2.0]])

    got = rounded(weight)

    expected = torch.tensor([[127.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 0.0], [-2.54, 0.02, 1.0, 2.0]])
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("family", ["llama tied", "qwen2", "odd sizes"])
def test_embeddings_are_rows_of_the_weights_wherever_they_are_kept(saved, family, dtype, int8):
    model, true = native(saved(family), dtype, int8=int8), ours(saved(family), "float64")
    tokens = torch.tensor(TOKENS)

    assert torch.equal(model.embed(tokens).double(), true.embed(tokens))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_what_a_step_sees_of_its_logits_is_what_a_look_at_them_shows(saved, rows, threads):
    paged = Paged(native(saved("qwen2"), "bfloat16"))
    vocabulary = paged.extend((0, 0, TOKENS[:9])).logits.shape[1] - 13  # the rest is padding
    before, torch_threads = (
        [(at, 0, TOKENS[at : at + 6]) for at in range(rows)],
        torch.get_num_threads(),
    )
    torch.set_num_threads(threads)
    try:
        output = paged.extend(*before, vocabulary=vocabulary)
    finally:
        torch.set_num_threads(torch_threads)

    logits, looked = output.logits[:, :vocabulary], Looked(output.ids, output.columns)
    assert torch.equal(looked.ids, kernels.greedy(logits))
    keys = [
        (name, ()) for name in ("entropy", "maxprob", "margin", "logprob", "varentropy", "rank")
    ]
    for some in (keys[:4], keys):
        told = kernels.signals(some, logits, looked.ids, looked)
        for key, value in kernels.signals(some, logits, looked.ids).items():
            assert torch.equal(told[key], value), key


def test_a_step_that_is_not_asked_looks_at_no_logits(saved):
    paged = Paged(native(saved("qwen2"), "bfloat16"))

    assert paged.extend((0, 0, TOKENS[:9])).ids is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("int8", [False, True])
def test_a_long_prompt_read_at_once_is_the_one_read_in_parts(saved, dtype, int8):
    model = native(saved("odd sizes"), dtype, int8=int8)
    prompt = (TOKENS * 20)[:500]  # more rows than lie near at a time
    whole, parts = Paged(model, 1, 512), Paged(model, 1, 512)

    got = whole.extend((0, 0, prompt)).logits
    for at in range(0, 500, 100):
        expected = parts.extend((0, at, prompt[at : at + 100])).logits

    assert torch.equal(got, expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_pages_beyond_the_context_are_not_read(saved, dtype):
    model = native(saved("llama"), dtype)
    clean, dirty = Paged(model), Paged(model)
    for layer in dirty.cache.keys + dirty.cache.values:
        layer.fill_(float("nan"))

    got = [paged.extend((3, 0, TOKENS[: PAGE + 1])).logits for paged in (clean, dirty)]

    assert torch.equal(got[0], got[1])


def test_without_a_compiler_the_reason_is_one_line_and_torch_does_the_work(
    monkeypatch, saved, caplog
):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NativeError, match="no C\\+\\+ compiler"):
        build.load()
    build.library.cache_clear()
    try:
        assert isinstance(ours(saved("llama"), "bfloat16"), Decoder)
        ours(saved("llama"), "float32")
        assert caplog.messages == [
            "without compiled kernels, and slower for it: no C++ compiler is installed ($CXX, or `c++` on the path)"
        ]
    finally:
        monkeypatch.undo()
        build.library.cache_clear()


def test_a_compiler_that_fails_is_quoted(monkeypatch, tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\n[ $1 = --version ] && exit 0\necho no space left >&2; exit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("TOKENROUTER_CACHE", str(tmp_path))
    with pytest.raises(NativeError, match="failed: no space left"):
        build.load()


def test_a_processor_without_the_instructions_is_told(monkeypatch):
    monkeypatch.setattr(build, "_features", lambda: " fpu avx2")
    with pytest.raises(NativeError, match="the processor lacks fma"):
        build.load()


def test_a_wish_that_nobody_knows_is_refused_by_name(monkeypatch, saved):
    monkeypatch.setenv("TOKENROUTER_NATIVE", "AVX")
    build.library.cache_clear()

    with pytest.raises(
        ModelError, match="TOKENROUTER_NATIVE is `AVX`; it may be 0, 1, vnni, avx512, avx2"
    ):
        ours(saved("llama"), "bfloat16")
    build.library.cache_clear()


@pytest.mark.parametrize("value", ["0", "1"])
def test_the_environment_can_forbid_it(value):
    code = "from tokenrouter_kernels.native import library; print(library() is None)"
    environment = {"TOKENROUTER_NATIVE": value, "PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    environment["TOKENROUTER_CACHE"] = str(build.directory().parent)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(value == "0")
