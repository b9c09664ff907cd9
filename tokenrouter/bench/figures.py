"""The figures of a run, from the samples of its requests; docs/bench.md defines each of them."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence

import msgspec

from tokenrouter.bench.sample import Sample


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution over requests or gaps, in milliseconds."""

    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """What a request must keep to count for goodput, in milliseconds; None asks for nothing."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One measured run."""

    requests: int  # that were answered
    failed: int
    seconds: float  # from the first request sent to the last answer
    tokens_per_s: float  # output
    requests_per_s: float
    output_tokens: int
    prompt_tokens: int
    ttft_ms: Spread | None
    tpot_ms: Spread | None
    itl_ms: Spread | None
    e2e_ms: Spread | None
    handoffs_per_token: float | None
    share: dict[str, float] | None  # of output tokens, by model
    goodput: float | None = None  # requests a second that kept the SLO
    kept: float | None = None  # share of all requests that did
    first_error: str | None = None


def spread(values: Sequence[float]) -> Spread | None:
    """Return the distribution of values in seconds; None of none."""
    if not values:
        return None
    ms = sorted(1000 * value for value in values)
    return Spread(
        mean=statistics.fmean(ms),
        p50=percentile(ms, 50),
        p90=percentile(ms, 90),
        p99=percentile(ms, 99),
        max=ms[-1],
    )


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return a percentile of ascending values, between neighbours in proportion."""
    at = (len(ordered) - 1) * share / 100
    low, high = ordered[math.floor(at)], ordered[math.ceil(at)]
    return low + (high - low) * (at - math.floor(at))


def ttft(sample: Sample) -> float:
    """Return the seconds to the first piece of output."""
    return sample.arrivals[0] - sample.started


def tpot(sample: Sample) -> float | None:
    """Return the seconds a token after the first; None where there is only one."""
    if sample.tokens < 2:
        return None
    return (sample.arrivals[-1] - sample.arrivals[0]) / (sample.tokens - 1)


def e2e(sample: Sample) -> float:
    """Return the seconds to the last piece of output."""
    return sample.arrivals[-1] - sample.started


def keeps(sample: Sample, slo: Slo) -> bool:
    """Return whether a request was answered in time."""
    if sample.error is not None:
        return False
    pairs = ((slo.ttft, ttft(sample)), (slo.tpot, tpot(sample)), (slo.e2e, e2e(sample)))
    return all(
        limit is None or seconds is None or 1000 * seconds <= limit for limit, seconds in pairs
    )


def figures(samples: Sequence[Sample], slo: Slo | None = None) -> Figures:
    """Return the figures of a run."""
    good = [sample for sample in samples if sample.error is None]
    errors = [sample.error for sample in samples if sample.error is not None]
    seconds = max(s.ended for s in samples) - min(s.started for s in samples)
    tokens = sum(sample.tokens for sample in good)
    gaps = [b - a for sample in good for a, b in itertools.pairwise(sample.arrivals)]
    kept = None if slo is None else sum(keeps(sample, slo) for sample in samples)
    return Figures(
        requests=len(good),
        failed=len(errors),
        seconds=seconds,
        tokens_per_s=tokens / seconds,
        requests_per_s=len(good) / seconds,
        output_tokens=tokens,
        prompt_tokens=sum(sample.prompt_tokens for sample in good),
        ttft_ms=spread([ttft(sample) for sample in good]),
        tpot_ms=spread([each for sample in good if (each := tpot(sample)) is not None]),
        itl_ms=spread(gaps),
        e2e_ms=spread([e2e(sample) for sample in good]),
        handoffs_per_token=_handoffs(good, tokens),
        share=_share(good, tokens),
        goodput=None if kept is None else kept / seconds,
        kept=None if kept is None else kept / len(samples),
        first_error=errors[0] if errors else None,
    )


def _handoffs(good: Sequence[Sample], tokens: int) -> float | None:
    told = [sample.handoffs for sample in good if sample.handoffs is not None]
    return sum(told) / tokens if tokens and len(told) == len(good) else None


def _share(good: Sequence[Sample], tokens: int) -> dict[str, float] | None:
    if not tokens or any(sample.by_model is None for sample in good):
        return None
    counts: Counter[str] = Counter()
    for sample in good:
        counts.update(sample.by_model or {})
    return {name: count / tokens for name, count in counts.items()}
