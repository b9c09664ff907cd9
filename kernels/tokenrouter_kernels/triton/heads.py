"""Router heads on the device: `tokenrouter_kernels.mlp_head` and `r2r_head` of the same weights.

Hidden layers are `affine`; the last layer is a row's own sum and its sigmoid, for R2R with the layer norm before it. Shapes as
in the references; bf16, fp16 or fp32, sums in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tokenrouter_kernels.mlp_head import Affine
from tokenrouter_kernels.r2r_head import R2RWeights
from tokenrouter_kernels.triton.affine import affine
from tokenrouter_kernels.triton.logistic import sigmoid_of
from tokenrouter_kernels.triton.tables import row_warps

_EPS = 1e-5


@triton.jit
def probability_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, stride_x, K, BLOCK: tl.constexpr):
    """Compute sigmoid(w . x + b) of one row."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride_x + k, mask=k < K, other=0.0).to(tl.float32)
    w = tl.load(weight_ptr + k, mask=k < K, other=0.0).to(tl.float32)
    z = tl.sum(x * w, 0) + tl.load(bias_ptr).to(tl.float32)
    tl.store(out_ptr + row, sigmoid_of(z))


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr, stride_x, K, eps, BLOCK: tl.constexpr):
    """Normalise one row to mean 0 and variance 1, then scale and shift it."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BLOCK)
    inside = k < K
    x = tl.load(x_ptr + row * stride_x + k, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, x - tl.sum(x, 0) / K, 0.0)
    scaled = centred * tl.rsqrt(tl.sum(centred * centred, 0) / K + eps)
    weight = tl.load(weight_ptr + k, mask=inside, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + k, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * K + k, scaled * weight + bias, mask=inside)


def mlp_head(hidden: Tensor, layers: list[Affine], activations: list[str]) -> Tensor:
    """Return the head's probability: hidden [B, H] of the weights' dtype -> [B]."""
    assert len(activations) == len(layers) - 1, (len(activations), len(layers))
    x = hidden
    for layer, activation in zip(layers[:-1], activations, strict=True):
        x = affine(x, *layer, activation)
    return probability(x, layers[-1])


def r2r_head(
    hidden: Tensor,
    embedding: Tensor,
    logits: Tensor,
    weights: R2RWeights,
    *,
    vocabulary: int | None = None,
) -> Tensor:
    """Return the head's probability: hidden [B, H], embedding [B, H], logits [B, V] -> [B]."""
    k = weights.logits.weight.shape[1]
    top = logits[:, :vocabulary].topk(k, dim=-1, sorted=True).values
    x = torch.cat((hidden, embedding, affine(top, *weights.logits)), -1)
    x = affine(affine(x, *weights.combine), *weights.input)
    for block in weights.blocks:
        inner = affine(layer_norm(x, block.norm), *block.up, "gelu")
        x = affine(inner, *block.down, residual=x)
    return probability(layer_norm(x, weights.norm), weights.output)


def probability(x: Tensor, last: Affine) -> Tensor:
    """Return sigmoid(w . x + b): x [B, K], weight [1, K], bias [1] -> [B]."""
    rows, width = x.shape
    assert x.stride(1) == 1 and last.weight.is_contiguous(), (x.stride(), last.weight.stride())
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    if rows:
        probability_kernel[(rows,)](
            x,
            *last,
            out,
            x.stride(0),
            width,
            BLOCK=triton.next_power_of_2(width),
            num_warps=row_warps(width),
        )
    return out


def layer_norm(x: Tensor, to: Affine) -> Tensor:
    """Return each row with mean 0 and variance 1, scaled and shifted: [B, K]."""
    rows, width = x.shape
    out = torch.empty(rows, width, dtype=x.dtype, device=x.device)
    if rows:
        layer_norm_kernel[(rows,)](
            x,
            *to,
            out,
            x.stride(0),
            width,
            _EPS,
            BLOCK=triton.next_power_of_2(width),
            num_warps=row_warps(width),
        )
    return out
