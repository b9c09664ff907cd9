"""The sigmoid and the hyperbolic tangent, by an exponential that never overflows.

Elementwise on a block of any shape, float32 or float64, which it keeps; called in place by heads, SiLU and route programs. Reference: torch's.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def sigmoid_of(x):
    """Return 1 / (1 + exp(-x))."""
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1 + e)


@triton.jit
def tanh_of(x):
    """Return tanh(x) = 2 sigmoid(2 x) - 1."""
    return 2 * sigmoid_of(2 * x) - 1
