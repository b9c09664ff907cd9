"""What is compiled ahead of time: each launcher at the shapes of models that it is meant for, on tensors without data."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import msgspec
import torch
from tokenrouter_kernels import Affine, SamplingParams
from tokenrouter_kernels import triton as fast
from tokenrouter_kernels.triton.heads import layer_norm

from tokenrouter.plan import structs as s
from tokenrouter.runtime.vocabulary import Vocabulary

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


def route(model):
    """Launch the kernel of a program that uses all there is."""
    from tokenrouter.runtime.kernel.router import CompiledRouter, Inputs

    text = PLAN.read_text(encoding="utf-8")
    plan = msgspec.json.decode(text, type=s.Plan)
    tokenizer = msgspec.structs.replace(plan.tokenizer, size=VOCABULARY)
    plan = msgspec.structs.replace(
        plan, tokenizer=tokenizer, programs=[*plan.programs, EVERYTHING, NOTHING]
    )
    plan = msgspec.structs.replace(plan, models=[*plan.models, *plan.models])
    router = CompiledRouter(plan, model, Vocabulary(VOCABULARY), {}, "meta")
    words, numbers, past = (some(16, *t.shape[1:], dtype=t.dtype) for t in router.inputs([], 16))
    heads = some(16, len(router.layout.heads), dtype=torch.float64)
    tokens = some(16, dtype=torch.int64)
    router.launch(some(16, ROWS), tokens, Inputs(words, numbers, past), heads)


def everything():
    """Return a program with every signal, sign, window and action."""
    signals = [
        s.Signal(name=name, args=args)
        for name, args in [
            *(
                (name, [])
                for name in ("entropy", "entropy_norm", "varentropy", "maxprob", "margin")
            ),
            *((name, []) for name in ("logprob", "rank", "chance", "position", "switches")),
            *((name, [10]) for name in ("mass", "aleatoric", "epistemic")),
            ("column", [5]),
            ("count", [1]),
        ]
    ]
    n = len(signals)
    nodes = [
        *signals,
        *(s.Window(kind=kind, of=at, n=4) for at, kind in enumerate(("mean", "ewma", "max"))),
        *(s.Compare(sign=sign, left=at, right=at + 1) for at, sign in enumerate(("<", ">=", "!="))),
        *(s.Arith(sign=sign, left=at, right=at + 3) for at, sign in enumerate("+-*/")),
        s.Const(value=0.5, unit="number"),
    ]
    half = len(nodes) - 1
    compared = [
        s.Compare(sign=">", left=at, right=half)
        for at in range(len(nodes) - 1)
        if not n + 3 <= at < n + 6
    ]
    nodes += compared
    nodes += [
        s.AllOf(of=[*range(half + 1, half + 6)]),
        s.AnyOf(of=[*range(half + 6, half + 1 + len(compared)), n + 3, n + 4, n + 5]),
        s.Not(of=half + 1),
    ]
    last = len(nodes) - 1
    mix = s.Mix(weights=[s.Share(model=0, weight=0.25), s.Share(model=1, weight=0.75)])
    return s.Program(
        nodes=nodes,
        rules=[
            s.Rule(when=last, keep=False, go=s.To(model=1)),
            s.Rule(when=last - 1, keep=True, go=s.Borrow(model=1, most=n + 6)),
            s.Rule(when=last - 2, keep=True, go=s.Stop()),
            s.Rule(when=None, keep=True, go=mix),
        ],
        untils=[last, last - 1],
    )


def norm_of_r2r():
    layer_norm(some(16, 512, dtype=FP32), Affine(some(512, dtype=FP32), some(512, dtype=FP32)))


PLAN = Path(__file__).parents[2] / "plan/golden/test_io/test_the_text_of_a_plan_can_be_reviewed.txt"
EVERYTHING = everything()
NOTHING = s.Program()
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
    "route, entropy and a head": partial(route, 0),
    "route, one until": partial(route, 1),
    "route, everything": partial(route, 2),
    "route, nothing": partial(route, 3),
}
