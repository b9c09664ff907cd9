"""gelu(x) = x (1 + erf(x / sqrt 2)) / 2, exact, in steps that treat every element alike.

`gelu` of torch computes the last few elements of a tensor by another formula than the rest, so that a row's bits would
depend on where it stands.
"""

from __future__ import annotations

from torch import Tensor


def gelu(x: Tensor) -> Tensor:
    """Return gelu of every element; the shape and dtype stay."""
    return x * (1 + (x * 0.5**0.5).erf()) / 2
