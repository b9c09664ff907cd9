"""What stands between the fused projection and attention: query and key norms, rotary, the write into the cache.

    q = rotary(norm(q));   k = rotary(norm(k));   keys[slot] = k;   values[slot] = v

for each token, with q, k, v side by side in one row of the projection; the norms are of Qwen3 and may be absent. The plain
form, by the operations of this package.
"""

from __future__ import annotations

import torch
from torch import Tensor

from tokenrouter_kernels.rms_norm import rms_norm
from tokenrouter_kernels.rotary import rotary


def write_qkv(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
    heads: int,
    *,
    query_norm: Tensor | None = None,
    key_norm: Tensor | None = None,
    eps: float = 0.0,
) -> Tensor:
    """Write keys and values into their slots, -1 being none, and return the queries: [T, heads, D].

    qkv [T, (heads + 2 kv_heads) D], cos and sin as for `rotary`, slots [T] int64, keys and values [slots, kv_heads, D].
    """
    kv_heads, width = keys.shape[1:]
    q, k, v = qkv.view(len(qkv), -1, width).split((heads, kv_heads, kv_heads), 1)
    if query_norm is not None and key_norm is not None:
        q, k = rms_norm(q, query_norm, eps), rms_norm(k, key_norm, eps)
    q, k = rotary(torch.cat((q, k), 1), cos, sin).split((heads, kv_heads), 1)
    real = slots >= 0
    keys[slots[real]] = k[real]
    values[slots[real]] = v[real]
    return q.contiguous()
