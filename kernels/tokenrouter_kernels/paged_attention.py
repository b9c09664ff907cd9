"""Attention of new tokens over paged keys and values: the plain form, which gathers pages and pads requests.

    o_i = sum_j softmax_j(scale * q_i k_j) v_j       over the positions j <= i of the same request (and j > i - window)

Query heads share key heads in groups: head h reads key head h div (heads / kv_heads).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from tokenrouter_kernels.ragged import Group, Ragged


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    ragged: Ragged,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attend: q [T, heads, D], keys and values [slots, kv_heads, D] and [slots, kv_heads, E] -> [T, heads, E]."""
    groups = ragged.groups(window)
    if len(groups) == 1 and groups[0].real is None:
        # All tokens in batch order: nothing to gather or scatter.
        return _attend(q, keys, values, groups[0], scale, softcap).flatten(0, 1)
    out = torch.empty(*q.shape[:2], values.shape[-1], dtype=q.dtype, device=q.device)
    for group in groups:
        found = _attend(q[group.tokens.flatten()], keys, values, group, scale, softcap)
        if group.real is None:
            out[group.tokens.flatten()] = found.flatten(0, 1)
        else:
            out[group.tokens[group.real]] = found[group.real]
    return out


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, group: Group, scale: float, softcap: float | None
) -> Tensor:
    """Return the outputs of one padded group's queries [G * n, heads, D]: [G, n, heads, E]."""
    g, n = group.tokens.shape
    heads, kv_heads = q.shape[1], keys.shape[1]
    share = heads // kv_heads
    # Heads that share a key head become rows of one query block, so keys are never repeated.
    rows = q.reshape(g, n, kv_heads, share, -1)
    rows = rows.permute(0, 2, 1, 3, 4).reshape(g, kv_heads, n * share, -1)
    k = keys[group.slots].transpose(1, 2)
    v = values[group.slots].transpose(1, 2)
    mask = group.mask.repeat_interleave(share, 1)[:, None] if n > 1 else group.mask[:, None]
    if softcap is None:
        found = functional.scaled_dot_product_attention(rows, k, v, attn_mask=mask, scale=scale)
    else:
        scores = torch.tanh(rows @ k.transpose(-1, -2) * (scale / softcap)) * softcap
        weights = scores.masked_fill(~mask, float("-inf")).softmax(-1, torch.float32)
        found = weights.to(v.dtype) @ v
    return found.view(g, kv_heads, n, share, -1).permute(0, 2, 1, 3, 4).reshape(g, n, heads, -1)
