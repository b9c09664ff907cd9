"""Attention over paged keys and values: which of the two kernels a batch gets."""

from __future__ import annotations

from torch import Tensor

from tokenrouter_kernels.triton.decode_attention import decode_attention
from tokenrouter_kernels.triton.layout import Paged
from tokenrouter_kernels.triton.prefill_attention import prefill_attention
from tokenrouter_kernels.triton.tables import SHORT


def paged_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    paged: Paged,
    scale: float,
    *,
    window: int | None = None,
    softcap: float | None = None,
) -> Tensor:
    """Attend: q [T, heads, D], keys and values [slots, kv_heads, D] and [slots, kv_heads, E] -> [T, heads, E]."""
    attend = decode_attention if paged.most_new <= SHORT else prefill_attention
    return attend(q, keys, values, paged, scale, window=window, softcap=softcap)
