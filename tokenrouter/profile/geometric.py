"""Whether the lengths of runs look geometric, as the chain without phases supposes.

Pearson's chi-square of the observed lengths against the geometric law of equal mean, lengths pooled until each pool
expects at least 5; pools - 2 degrees of freedom, since the mean was fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

LEAST = 5.0  # expected in each pool


class Verdict(NamedTuple):
    """The statistic; without degrees of freedom there were too few runs, or all are alike."""

    chi_square: float | None
    degrees: int
    tail: float | None


def looks_geometric(lengths: Sequence[int]) -> Verdict:
    """Return the test of counts by length, 1 first."""
    total = sum(lengths)
    if total == 0:
        return Verdict(None, 0, None)
    p = total / sum(k * n for k, n in enumerate(lengths, 1))
    pools: list[tuple[float, int]] = []
    expected, observed, left = 0.0, 0, float(total)
    for k, n in enumerate(lengths, 1):
        share = total * p * (1 - p) ** (k - 1)
        expected, observed = expected + share, observed + n
        left -= share
        if expected >= LEAST and left >= LEAST:
            pools.append((expected, observed))
            expected, observed = 0.0, 0
    pools.append((expected + max(0.0, left), observed))
    degrees = len(pools) - 2
    if degrees < 1:
        return Verdict(None, 0, None)
    from scipy.stats import chi2  # noqa: PLC0415 - takes long to import

    statistic = sum((o - e) ** 2 / e for e, o in pools)
    return Verdict(round(statistic, 3), degrees, float(f"{float(chi2.sf(statistic, degrees)):.3g}"))
