"""What route programs call beside signals: division, and windows over the last values of a node.

A window is given its values before this step, oldest first, how many there are, and this step's. All in float64, in the order
in which `tokenrouter.runtime.evaluate`, the reference, computes them. Scalars of one row, a window its [n] last values.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def divide(a, b):
    """Return a / b, and 0 where b is 0."""
    by_zero = b == 0
    return tl.where(by_zero, 0.0, a / tl.where(by_zero, 1.0, b))


@triton.jit
def mean_of(past_ptr, count, x):
    """Return the mean of the values."""
    total = x * 0
    for i in range(count):
        total += tl.load(past_ptr + i)
    return (total + x) / (count + 1)


@triton.jit
def max_of(past_ptr, count, x):
    """Return the largest of the values."""
    found = x
    for i in range(count):
        found = tl.maximum(found, tl.load(past_ptr + i))
    return found


@triton.jit
def ewma_of(past_ptr, count, x, weight):
    """Return the running mean that begins with the oldest value and gives each later one its weight."""
    running = x
    if count > 0:
        running = tl.load(past_ptr)
        for i in range(1, count):
            running = weight * tl.load(past_ptr + i) + (1.0 - weight) * running
        running = weight * x + (1.0 - weight) * running
    return running
