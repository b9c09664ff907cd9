"""What is compiled ahead of time: each launcher at the shapes of models that it is meant for, on tensors without data."""

from __future__ import annotations

from functools import partial

import torch
from tokenrouter_kernels import Affine, SamplingParams
from tokenrouter_kernels import triton as fast
from tokenrouter_kernels.triton.heads import layer_norm

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
VOCABULARY, ROWS = 151_669, 151_936


def some(*shape: int, dtype: torch.dtype = BF16) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def attend(heads, kv_heads, width, dtype, most_new, pages=256, **kwargs):
    tokens = 16 * most_new
    cache = some(4096 * 16, kv_heads, width, dtype=dtype)
    ints = partial(some, dtype=torch.int32)
    paged = fast.Paged(ints(17), ints(16), ints(16, pages), 16, most_new)
    q = some(tokens, heads, width, dtype=dtype)
    fast.paged_attention(q, cache, cache, paged, width**-0.5, **kwargs)


def write(heads, kv_heads, width, dtype, *, norm, turned=None):
    angles = some(16, turned or width, dtype=dtype)
    cache = some(4096, kv_heads, width, dtype=dtype)
    fast.write_qkv(
        some(16, (heads + 2 * kv_heads) * width, dtype=dtype),
        angles,
        angles,
        some(16, dtype=torch.int64),
        cache,
        cache,
        heads,
        query_norm=some(width, dtype=dtype) if norm else None,
        key_norm=some(width, dtype=dtype) if norm else None,
        eps=1e-6,
    )


def survey(keys, dtype):
    candidates = some(16, dtype=torch.int64)
    fast.signals(keys, some(16, ROWS, dtype=dtype), candidates, vocabulary=VOCABULARY)


def draw(dtype):
    params = SamplingParams(
        some(16, dtype=torch.float64),
        some(16, dtype=torch.int64),
        some(16, dtype=torch.float64),
        some(16, dtype=torch.float64),
    )
    uniforms = some(16, dtype=torch.float64)
    fast.sample(some(16, ROWS, dtype=dtype), params, uniforms, vocabulary=VOCABULARY)


def head(dtype):
    layers = [
        Affine(some(256, 1024, dtype=dtype), some(256, dtype=dtype)),
        Affine(some(64, 256, dtype=dtype), some(64, dtype=dtype)),
        Affine(some(1, 64, dtype=dtype), some(1, dtype=dtype)),
    ]
    fast.mlp_head(some(16, 1024, dtype=dtype), layers, ["gelu", "silu"])


def norm_of_r2r():
    layer_norm(some(16, 512, dtype=FP32), Affine(some(512, dtype=FP32), some(512, dtype=FP32)))


PLAIN = [("entropy", ()), ("margin", ()), ("logprob", ()), ("rank", ())]
ALL = {
    "decode, 16 of 8 heads, 128 wide, bf16": partial(attend, 16, 8, 128, BF16, 1),
    "decode, 64 of 8 heads, 128 wide, fp16": partial(attend, 64, 8, 128, FP16, 1),
    "decode, 9 of 3 heads, 64 wide, one part": partial(attend, 9, 3, 64, BF16, 8, pages=32),
    "decode, 8 of 1 heads, 256 wide, window, cap": partial(
        attend, 8, 1, 256, BF16, 1, window=512, softcap=30.0
    ),
    "decode, fp32": partial(attend, 16, 8, 128, FP32, 1),
    "prefill, 16 of 8 heads, 128 wide, bf16": partial(attend, 16, 8, 128, BF16, 512),
    "prefill, 32 of 8 heads, 80 wide, fp16": partial(attend, 32, 8, 80, FP16, 512),
    "prefill, 256 wide, window, cap": partial(
        attend, 8, 1, 256, BF16, 512, window=512, softcap=30.0
    ),
    "prefill, fp32": partial(attend, 16, 8, 128, FP32, 512),
    "rms_norm, 1024": lambda: fast.rms_norm(some(16, 1024), some(1024), 1e-6),
    "rms_norm, 5120": lambda: fast.rms_norm(some(16, 5120), some(5120), 1e-6),
    "add_rms_norm, 5120": lambda: fast.add_rms_norm(
        some(16, 5120), some(16, 5120), some(5120), 1e-6
    ),
    "silu_mul": lambda: fast.silu_mul(some(16, 2 * 3072)),
    "write_qkv, norms": partial(write, 16, 8, 128, BF16, norm=True),
    "write_qkv, turned in part": partial(write, 9, 3, 80, FP16, norm=False, turned=40),
    "signals, plain, bf16": partial(survey, PLAIN, BF16),
    "signals, entropy, fp32": partial(survey, [("entropy", ())], FP32),
    "signals, all of 10": partial(
        survey,
        [*PLAIN, ("varentropy", ()), ("mass", (10,)), ("aleatoric", (10,)), ("column", (5,))],
        BF16,
    ),
    "greedy": lambda: fast.greedy(some(16, ROWS), vocabulary=VOCABULARY),
    "sample": partial(draw, FP32),
    "uniform": lambda: fast.uniform(some(16, dtype=torch.int64), some(16, dtype=torch.int64), 1, 0),
    "mlp head, bf16": partial(head, BF16),
    "mlp head, fp32": partial(head, FP32),
    "layer norm": norm_of_r2r,
}
