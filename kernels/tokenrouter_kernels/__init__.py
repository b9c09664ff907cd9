"""Kernels and their torch references: the only place that chooses between the two.

Each module holds one idea: its formula, shapes and numerics, and its meaning in torch, which is the CPU path.
"""

from __future__ import annotations

from tokenrouter_kernels.invariant_attention import invariant_attention
from tokenrouter_kernels.linear import blocked_linear
from tokenrouter_kernels.paged_attention import paged_attention
from tokenrouter_kernels.philox import CHANCE, MIX, SAMPLE, seeds, uniform
from tokenrouter_kernels.ragged import Ragged
from tokenrouter_kernels.rms_norm import rms_norm
from tokenrouter_kernels.rotary import rotary
from tokenrouter_kernels.sampling import SamplingParams, greedy, sample
from tokenrouter_kernels.signals import signal, signals
from tokenrouter_kernels.silu_mul import silu_mul

__all__ = [
    "CHANCE",
    "MIX",
    "SAMPLE",
    "Ragged",
    "SamplingParams",
    "blocked_linear",
    "greedy",
    "invariant_attention",
    "paged_attention",
    "rms_norm",
    "rotary",
    "sample",
    "seeds",
    "signal",
    "signals",
    "silu_mul",
    "uniform",
]
