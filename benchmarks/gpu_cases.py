"""The kernels that `benchmarks/gpu.py` checks and times: inputs of real sizes, the reference in torch, and what each moves.

A case's bytes are those that must cross the memory bus once, its FLOPs those of its products; what a kernel reads twice is its
own fault. `replaced` is the torch operation that somebody without the kernel would call, on the layout that it likes best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import tokenrouter_kernels as kernels
import torch
from tokenrouter_kernels import Ragged
from tokenrouter_kernels.sampling import greedy as plain_greedy
from tokenrouter_kernels.sampling import sample as plain_sample
from tokenrouter_kernels.signals import signals as plain_signals
from torch import Tensor
from torch.nn import functional

VOCABULARY = 151_936
PAGE = 16
Result = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel at one size."""

    kernel: str
    size: str
    run: Callable[[], Result]
    reference: Callable[[], Result]
    replaced: Callable[[], object]
    n_bytes: int
    flops: int = 0
    tolerance: float = 2e-2  # of bf16 results, relative to the largest of the reference
    checked: Callable[[], Result] | None = (
        None  # what is compared, where it is more than `run` gives
    )


def cases(device: torch.device, dtype: torch.dtype, *, quick: bool) -> Iterator[Case]:
    """Yield every kernel at its sizes; each case's tensors are made when it is reached."""
    contexts = (
        ((16, 4096), (64, 4096)) if quick else ((1, 4096), (16, 4096), (64, 4096), (16, 16384))
    )
    for requests, context in contexts:
        yield attention(device, dtype, requests, context, 1)
    yield attention(device, dtype, 16, 4096, 4)
    yield attention(device, dtype, 1, 4096, 1024)
    for rows, hidden in ((16, 1024), (64, 5120), (2048, 5120)):
        yield norm(device, dtype, rows, hidden)
        yield add_norm(device, dtype, rows, hidden)
    for rows, inner in ((16, 3072), (2048, 25600 if not quick else 12288)):
        yield gate(device, dtype, rows, inner)
    yield write(device, dtype, 16)
    yield write(device, dtype, 2048)
    for rows in (1, 16, 64):
        yield signals(device, dtype, rows)
    yield every_signal(device, dtype, 16)
    yield greedy(device, dtype, 16)
    yield draw(device, 16)
    yield numbers(device, 1024)
    yield head(device, dtype, 16)
    yield r2r(device, dtype, 16)


def attention(
    device: torch.device, dtype: torch.dtype, requests: int, context: int, new: int
) -> Case:
    """New tokens of some requests over their pages, which lie scattered."""
    from tokenrouter_kernels import triton as fast

    heads, kv_heads, width = 16, 8, 128
    pages = context // PAGE
    slots = requests * context
    keys, values = (_random(device, dtype, slots, kv_heads, width) for _ in range(2))
    order = torch.randperm(requests * pages, device=device).view(requests, pages)
    q = _random(device, dtype, requests * new, heads, width)
    offsets = [at * new for at in range(requests + 1)]
    ragged = Ragged(offsets, [context] * requests, order, PAGE)
    paged = fast.Paged.of(ragged)
    dense = [
        x.view(-1, PAGE, kv_heads, width)[order].view(requests, context, kv_heads, width).transpose(1, 2).contiguous()
        for x in (keys, values)
    ]  # fmt: skip
    asked = q.view(requests, new, heads, width).transpose(1, 2).contiguous()
    at = torch.arange(context, device=device)
    mask = at <= (context - new + torch.arange(new, device=device))[:, None]
    scale = width**-0.5

    def replaced() -> object:
        return functional.scaled_dot_product_attention(
            asked, *dense, attn_mask=None if new == 1 else mask, scale=scale, enable_gqa=True
        )

    return Case(
        "paged_attention" if new <= 8 else "prefill_attention",
        f"{requests} x {new} of {context}",
        lambda: fast.paged_attention(q, keys, values, paged, scale),
        lambda: kernels.paged_attention(q, keys, values, ragged, scale),
        replaced,
        requests * context * kv_heads * width * 2 * q.element_size(),
        4 * requests * new * (context - new // 2) * heads * width,
    )


def norm(device: torch.device, dtype: torch.dtype, rows: int, hidden: int) -> Case:
    """RMSNorm of some rows."""
    from tokenrouter_kernels import triton as fast

    x, weight = _random(device, dtype, rows, hidden), _random(device, dtype, hidden)
    return Case(
        "rms_norm",
        f"{rows} x {hidden}",
        lambda: fast.rms_norm(x, weight, 1e-6),
        lambda: kernels.rms_norm(x, weight, 1e-6),
        lambda: functional.rms_norm(x, (hidden,), weight, 1e-6),
        2 * x.nbytes,
    )


def add_norm(device: torch.device, dtype: torch.dtype, rows: int, hidden: int) -> Case:
    """The residual's sum and RMSNorm in one pass."""
    from tokenrouter_kernels import triton as fast

    x, residual = (_random(device, dtype, rows, hidden) for _ in range(2))
    weight = _random(device, dtype, hidden)

    def replaced() -> object:
        return functional.rms_norm(x + residual, (hidden,), weight, 1e-6)

    return Case(
        "add_rms_norm",
        f"{rows} x {hidden}",
        lambda: fast.add_rms_norm(x, residual, weight, 1e-6),
        lambda: kernels.add_rms_norm(x, residual, weight, 1e-6),
        replaced,
        4 * x.nbytes,
    )


def gate(device: torch.device, dtype: torch.dtype, rows: int, inner: int) -> Case:
    """silu(gate) * up."""
    from tokenrouter_kernels import triton as fast

    x = _random(device, dtype, rows, 2 * inner)

    def replaced() -> object:
        a, b = x.chunk(2, -1)
        return functional.silu(a) * b

    return Case(
        "silu_mul",
        f"{rows} x {inner}",
        lambda: fast.silu_mul(x),
        lambda: kernels.silu_mul(x),
        replaced,
        x.nbytes * 3 // 2,
    )


def write(device: torch.device, dtype: torch.dtype, rows: int) -> Case:
    """Query and key norms, rotary, and the write into the cache."""
    from tokenrouter_kernels import triton as fast

    heads, kv_heads, width = 16, 8, 128
    qkv = _random(device, dtype, rows, (heads + 2 * kv_heads) * width)
    cos, sin = (_random(device, dtype, rows, width) for _ in range(2))
    slots = torch.randperm(4 * rows, device=device)[:rows]
    caches = [
        [_random(device, dtype, 4 * rows, kv_heads, width) for _ in range(2)] for _ in range(2)
    ]
    norms = {name: _random(device, dtype, width) for name in ("query_norm", "key_norm")}

    def run() -> Result:
        q = fast.write_qkv(qkv, cos, sin, slots, *caches[0], heads, eps=1e-6, **norms)
        return (q, *(cache[slots] for cache in caches[0]))

    def reference() -> Result:
        q = kernels.write_qkv(qkv, cos, sin, slots, *caches[1], heads, eps=1e-6, **norms)
        return (q, *(cache[slots] for cache in caches[1]))

    return Case(
        "write_qkv",
        f"{rows} tokens",
        lambda: fast.write_qkv(qkv, cos, sin, slots, *caches[0], heads, eps=1e-6, **norms),
        reference,
        lambda: kernels.write_qkv(qkv, cos, sin, slots, *caches[1], heads, eps=1e-6, **norms),
        2 * qkv.nbytes + 2 * cos.nbytes,
        checked=run,
    )


def signals(device: torch.device, dtype: torch.dtype, rows: int) -> Case:
    """Entropy, margin, log probability and rank of a candidate in one pass over the logits."""
    from tokenrouter_kernels import triton as fast

    keys = [("entropy", ()), ("margin", ()), ("logprob", ()), ("rank", ())]
    logits = 3 * _random(device, dtype, rows, VOCABULARY)
    tokens = torch.randint(VOCABULARY, (rows,), device=device)

    def replaced() -> object:
        logprobs = functional.log_softmax(logits.float(), -1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        chosen = logprobs.gather(1, tokens[:, None])
        return entropy, chosen, logprobs.topk(2).values, (logprobs > chosen).sum(-1)

    def figures(found: dict[tuple[str, tuple[int, ...]], Tensor]) -> Result:
        return tuple(found[key].double() for key in keys)

    return Case(
        "signals",
        f"{rows} x {VOCABULARY}",
        lambda: figures(fast.signals(keys, logits, tokens)),
        lambda: figures(plain_signals(keys, logits, tokens)),
        replaced,
        logits.nbytes,
        tolerance=1e-4,
    )


def every_signal(device: torch.device, dtype: torch.dtype, rows: int) -> Case:
    """What a policy can ask of the logits, of one pass, and the column of one id."""
    from tokenrouter_kernels import triton as fast

    plain = ("entropy", "entropy_norm", "varentropy", "maxprob", "margin", "logprob", "rank")
    keys = [(name, ()) for name in plain]
    keys += [(name, (10,)) for name in ("mass", "aleatoric", "epistemic")] + [("column", (5,))]
    logits = 3 * _random(device, dtype, rows, VOCABULARY)
    tokens = torch.randint(VOCABULARY, (rows,), device=device)

    def figures(found: dict[tuple[str, tuple[int, ...]], Tensor]) -> Result:
        return tuple(found[key].double() for key in keys)

    return Case(
        "signals, all",
        f"{rows} x {VOCABULARY}",
        lambda: figures(fast.signals(keys, logits, tokens)),
        lambda: figures(plain_signals(keys, logits, tokens)),
        lambda: plain_signals(keys, logits, tokens),
        logits.nbytes,
        tolerance=1e-4,
    )


def greedy(device: torch.device, dtype: torch.dtype, rows: int) -> Case:
    """The largest logit, ties to the lowest id."""
    from tokenrouter_kernels import triton as fast

    logits = _random(device, dtype, rows, VOCABULARY)
    return Case(
        "greedy",
        f"{rows} x {VOCABULARY}",
        lambda: fast.greedy(logits),
        lambda: plain_greedy(logits),
        lambda: logits.argmax(-1),
        logits.nbytes,
        tolerance=0.0,
    )


def draw(device: torch.device, rows: int) -> Case:
    """A token by temperature, top-k, top-p and min-p."""
    from tokenrouter_kernels import triton as fast

    logits = 3 * _random(device, torch.float32, rows, VOCABULARY)
    params = kernels.SamplingParams.of([(0.8, 50, 0.95, 0.0)] * rows, device)
    uniforms = torch.rand(rows, dtype=torch.float64, device=device)

    def replaced() -> object:
        top, ids = logits.topk(50)
        return ids.gather(1, torch.multinomial(functional.softmax(top / 0.8, -1), 1))

    return Case(
        "sample",
        f"{rows} x {VOCABULARY}",
        lambda: fast.sample(logits, params, uniforms),
        lambda: plain_sample(logits, params, uniforms),
        replaced,
        logits.nbytes,
        tolerance=0.0,
    )


def head(device: torch.device, dtype: torch.dtype, rows: int) -> Case:
    """A router head of three layers over the hidden state."""
    from tokenrouter_kernels import triton as fast

    sizes = [(256, 1024), (64, 256), (1, 64)]
    layers = [
        kernels.Affine(_random(device, dtype, n, k) * k**-0.5, _random(device, dtype, n))
        for n, k in sizes
    ]
    hidden = _random(device, dtype, rows, 1024)
    activations = ["gelu", "silu"]

    def reference() -> Result:
        wide = [kernels.Affine(w.float(), b.float()) for w, b in layers]
        return kernels.mlp_head(hidden.float(), wide, activations)

    return Case(
        "mlp_head",
        f"{rows} x 1024",
        lambda: fast.mlp_head(hidden, layers, activations),
        reference,
        lambda: kernels.mlp_head(hidden, layers, activations),
        sum(w.nbytes + b.nbytes for w, b in layers) + hidden.nbytes,
    )


def r2r(device: torch.device, dtype: torch.dtype, rows: int) -> Case:
    """The head of R2R: hidden state, the candidate's embedding and the largest logits, through two residual blocks."""
    from tokenrouter_kernels import triton as fast

    hidden, wide, top, width = 1024, 2048, 100, 256

    def affine(n: int, k: int) -> kernels.Affine:
        return kernels.Affine(_random(device, dtype, n, k) * k**-0.5, _random(device, dtype, n))

    def norm() -> kernels.Affine:
        return kernels.Affine(_random(device, dtype, width), _random(device, dtype, width))

    def block() -> kernels.R2RBlock:
        return kernels.R2RBlock(norm(), affine(wide, width), affine(width, wide))

    ends = affine(hidden, top), affine(width, 3 * hidden), affine(width, width)
    weights = kernels.R2RWeights(*ends, [block(), block()], norm(), affine(1, width))
    given = [_random(device, dtype, rows, n) for n in (hidden, hidden, VOCABULARY)]

    def reference() -> Result:
        return kernels.r2r_head(*(x.float() for x in given), _widened(weights))

    return Case(
        "r2r_head",
        f"{rows} x {hidden}",
        lambda: fast.r2r_head(*given, weights),
        reference,
        lambda: kernels.r2r_head(*given, weights),
        sum(x.nbytes for x in given),
    )


def _widened(weights: kernels.R2RWeights) -> kernels.R2RWeights:
    """Return the same weights in float32."""

    def wide(layer: kernels.Affine) -> kernels.Affine:
        return kernels.Affine(*(x.float() for x in layer))

    ends = (wide(x) for x in (weights.logits, weights.combine, weights.input))
    blocks = [kernels.R2RBlock(wide(b.norm), wide(b.up), wide(b.down)) for b in weights.blocks]
    return kernels.R2RWeights(*ends, blocks, wide(weights.norm), wide(weights.output))


def numbers(device: torch.device, rows: int) -> Case:
    """Random numbers by seed and position, which must be those of the CPU to the bit."""
    from tokenrouter_kernels import triton as fast

    seeds = torch.randint(-(2**63), 2**63 - 1, (rows,), device=device)
    positions = torch.randint(0, 2**20, (rows,), device=device)
    return Case(
        "uniform",
        str(rows),
        lambda: fast.uniform(seeds, positions, 1, 0),
        lambda: kernels.uniform(seeds.cpu(), positions.cpu(), 1, 0).to(device),
        lambda: torch.rand(rows, dtype=torch.float64, device=device),
        3 * 8 * rows,
        tolerance=0.0,
    )


def _random(device: torch.device, dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randn(*shape, device=device, dtype=torch.float32).to(dtype)
