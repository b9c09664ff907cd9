"""The decoder for GPUs without one: its kernels in the interpreter, and its steps on tensors that have a device and no data."""

from dataclasses import replace

import pytest
import tokenrouter_kernels
import torch
from tokenrouter_kernels import triton as fast
from tokenrouter_kernels.native.build import library
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.factories import prompts, save_model, vocabulary_size
from tests.models.harness import PAGE, Paged, ours, patch
from tokenrouter.models.config import ModelConfig, Rope
from tokenrouter.models.dummy import tensors
from tokenrouter.runtime.model import ExtendBatch, Extension
from tokenrouter.runtime.model.cuda import CudaDecoder
from tokenrouter.runtime.model.load import assemble
from tokenrouter.runtime.model.static import Bucket, Parts, Static

FAMILIES = {
    "llama": {},
    "qwen2, padded": {"family": "qwen2", "padding": 13, "seed": 1},
    "qwen3, tied": {"family": "qwen3", "tied": True, "seed": 2},
    "mistral with a sliding window": {"family": "mistral", "seed": 3},
}
LONG, SHORT, OTHER = (prompts(40, seed=at)[7] for at in (3, 4, 5))


@pytest.fixture(autouse=True)
def _torch(monkeypatch):
    """Load models for torch, whose decoder has the fields of the one for GPUs."""
    monkeypatch.setenv("TOKENROUTER_NATIVE", "0")
    library.cache_clear()
    yield
    library.cache_clear()


def on_gpu(model):
    """The same weights in the decoder that calls kernels."""
    return CudaDecoder(**{name: getattr(model, name) for name in model.__dataclass_fields__})


@pytest.mark.parametrize("name", FAMILIES)
def test_its_kernels_compute_what_the_decoder_computes(tmp_path, name):
    path = save_model(tmp_path, **FAMILIES[name])
    if "sliding" in name:
        patch(path, sliding_window=5)
    model = ours(path)
    one, two = Paged(model), Paged(on_gpu(model))
    for parts in (
        [(0, 0, LONG[:7])],
        [(0, 7, LONG[7:]), (1, 0, SHORT), (2, 0, OTHER[:1])],
        [(0, len(LONG), [9]), (1, len(SHORT), [8, 7]), (2, 1, [6])],
    ):
        a, b = one.extend(*parts, hidden=True), two.extend(*parts, hidden=True)
        torch.testing.assert_close(b.logits, a.logits, rtol=2e-4, atol=2e-4)
        torch.testing.assert_close(b.hidden, a.hidden, rtol=2e-4, atol=2e-4)
    for a, b in zip(
        one.cache.keys + one.cache.values, two.cache.keys + two.cache.values, strict=True
    ):
        torch.testing.assert_close(b, a, rtol=2e-4, atol=2e-4)


def test_a_batch_from_which_nobody_samples_gives_no_rows(tmp_path):
    paged = Paged(on_gpu(ours(save_model(tmp_path))))
    batch = ExtendBatch.of([Extension([4, 5], 0, [0], samples=0)], PAGE)

    found = paged.model.extend(batch, paged.cache, hidden=True)

    assert found.logits.shape == (0, vocabulary_size())
    assert found.hidden.shape[0] == 0


def test_a_captured_step_of_kernels_gives_what_an_eager_one_gives(tmp_path):
    """The layout of a GPU's captured step, tensors instead of lists, is what its attention reads here too."""
    model = on_gpu(ours(save_model(tmp_path, family="qwen3")))
    batch = [Extension([5, 6, 7], 0, [3]), Extension([9], 0, [1])]
    eager, cache = model.new_cache(8, PAGE), model.new_cache(10, PAGE)
    static = Static.new(Bucket(4, 4), 6, PAGE, scratch=8)
    static.fill(batch)

    laid = static.batch()
    laid.ragged.made[fast.Paged] = static.paged()
    found = model.extend(laid, cache)

    expected = model.extend(ExtendBatch.of(batch, PAGE), eager)
    torch.testing.assert_close(found.logits[:2], expected.logits, rtol=1e-5, atol=1e-5)


CONFIG = ModelConfig(
    family="qwen3",
    layers=2,
    hidden=64,
    intermediate=128,
    heads=4,
    kv_heads=2,
    head_dim=32,
    rope=Rope(1e6),
    rms_eps=1e-6,
    tied=True,
    context=256,
    vocab_rows=300,
    dtype="bfloat16",
    eos_ids=(0,),
)


class Empty:
    """Weights without values."""

    shapes = tensors(CONFIG)

    def names(self):
        return set(self.shapes)

    def get(self, name):
        return torch.empty(self.shapes[name])


class Stand:
    """In the place of the kernels, which no tensor without data can be given to: results of their shapes, on their device."""

    Paged = fast.Paged

    @staticmethod
    def rms_norm(x, weight, eps):
        return torch.empty_like(x * weight)

    @staticmethod
    def add_rms_norm(x, residual, weight, eps):
        return torch.empty_like(x + residual) * weight, x + residual

    @staticmethod
    def silu_mul(x):
        return x.narrow(1, 0, x.shape[1] // 2) * 1

    @staticmethod
    def write_qkv(qkv, cos, sin, slots, keys, values, heads, **norms):
        assert {t.device for t in (qkv, cos, sin, slots, keys, values)} == {qkv.device}
        return qkv.new_empty(qkv.shape[0], heads, keys.shape[2])

    @staticmethod
    def paged_attention(q, keys, values, paged, scale, window=None):
        assert {t.device for t in (q, keys, paged.offsets, paged.lengths, paged.page_table)} == {
            q.device
        }
        return torch.empty_like(q)


@pytest.mark.parametrize("bucket", [Bucket(1, 1), Bucket(4, 8)], ids=str)
def test_a_captured_step_reads_nothing_back_and_stays_on_its_device(monkeypatch, bucket):
    """Tensors without data refuse both to be read and to meet those of another device."""
    monkeypatch.setattr(tokenrouter_kernels, "triton", Stand)
    device = torch.device("cuda:0")
    static = Static.new(bucket, 4, 16, scratch=8)
    with FakeTensorMode():
        model = assemble(Empty(), CONFIG, torch.bfloat16, device=device)
        assert isinstance(model, CudaDecoder)
        cache = model.new_cache(9, 16)
        parts = [torch.empty(p.shape, dtype=p.dtype, device=device) for p in static.on_device]
        there = replace(static, device=parts[0], on_device=Parts(*parts))
        found = model.extend(there.batch(), cache, hidden=True)

    r = bucket.requests
    assert (found.logits.shape, found.logits.device) == ((r, 300), device)
    assert found.logits.dtype == torch.bfloat16
    assert (found.hidden.shape, found.hidden.device) == ((r, 64), device)
