"""The kernels in Triton, for tensors on a GPU; the modules beside this package are their references in torch.

Importing this package imports triton, which machines without a GPU need not have: import it where a tensor is on one.
"""

from __future__ import annotations

from tokenrouter_kernels.triton.affine import affine
from tokenrouter_kernels.triton.decode_attention import decode_attention
from tokenrouter_kernels.triton.heads import mlp_head, r2r_head
from tokenrouter_kernels.triton.layout import Paged
from tokenrouter_kernels.triton.paged_attention import paged_attention
from tokenrouter_kernels.triton.philox import uniform
from tokenrouter_kernels.triton.prefill_attention import prefill_attention
from tokenrouter_kernels.triton.rms_norm import add_rms_norm, rms_norm
from tokenrouter_kernels.triton.sampling import greedy, sample
from tokenrouter_kernels.triton.signals import signals
from tokenrouter_kernels.triton.silu_mul import silu_mul
from tokenrouter_kernels.triton.write_qkv import write_qkv

__all__ = [
    "Paged",
    "add_rms_norm",
    "affine",
    "decode_attention",
    "greedy",
    "mlp_head",
    "paged_attention",
    "prefill_attention",
    "r2r_head",
    "rms_norm",
    "sample",
    "signals",
    "silu_mul",
    "uniform",
    "write_qkv",
]
