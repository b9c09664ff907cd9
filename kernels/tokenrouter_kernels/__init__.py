"""Kernels and their torch references: the only place that chooses between the two.

Each module holds one idea: its formula, shapes and numerics, and its meaning in torch, which is the CPU path.
"""

from __future__ import annotations

from tokenrouter_kernels.choose import greedy, sample, signals, uniform
from tokenrouter_kernels.gelu import gelu
from tokenrouter_kernels.invariant_attention import invariant_attention
from tokenrouter_kernels.linear import blocked_linear
from tokenrouter_kernels.mlp_head import ACTIVATIONS, Affine, mlp_head
from tokenrouter_kernels.paged_attention import paged_attention
from tokenrouter_kernels.philox import CHANCE, MIX, SAMPLE, seeds
from tokenrouter_kernels.r2r_head import R2RBlock, R2RWeights, r2r_head
from tokenrouter_kernels.ragged import Ragged
from tokenrouter_kernels.rms_norm import add_rms_norm, rms_norm
from tokenrouter_kernels.rotary import rotary
from tokenrouter_kernels.sampling import SamplingParams
from tokenrouter_kernels.shaping import Shaping, shape
from tokenrouter_kernels.silu_mul import silu_mul
from tokenrouter_kernels.write_qkv import write_qkv

__all__ = [
    "ACTIVATIONS",
    "CHANCE",
    "MIX",
    "SAMPLE",
    "Affine",
    "R2RBlock",
    "R2RWeights",
    "Ragged",
    "SamplingParams",
    "Shaping",
    "add_rms_norm",
    "blocked_linear",
    "gelu",
    "greedy",
    "invariant_attention",
    "mlp_head",
    "paged_attention",
    "r2r_head",
    "rms_norm",
    "rotary",
    "sample",
    "seeds",
    "shape",
    "signals",
    "silu_mul",
    "uniform",
    "write_qkv",
]
