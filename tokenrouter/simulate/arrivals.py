"""When requests come, and how much each of them writes: from a trace, or drawn.

A trace is JSON lines, one request each: {"at": seconds, "output_tokens": tokens, "prompt_tokens": tokens}; both counts may be
missing, and other fields are not looked at. Time counts from the first arrival, so that `at` may be the time of day. Times are
milliseconds inside.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from tokenrouter.errors import TokenRouterError

MOST_SECONDS = (
    1e9  # from the first arrival to the last; beyond it the time of a step is lost in rounding
)


class TraceError(TokenRouterError):
    """A trace of arrivals cannot be used; the message is one line."""


class Arrival(NamedTuple):
    """One request to come."""

    at_ms: float
    tokens: int | None  # that it writes; None where it is drawn
    prompt: int | None = None  # its prompt's tokens; None where it has the mean


class _Line(msgspec.Struct):
    at: float
    output_tokens: int | None = None
    prompt_tokens: int | None = None


def read(path: Path) -> list[Arrival]:
    """Return the arrivals of a trace in order of time; raises TraceError."""
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file") from None
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror}") from None
    out = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            given = msgspec.json.decode(line, type=_Line)
        except msgspec.DecodeError as error:
            text = str(error).replace("JSON is malformed", "not JSON")
            raise TraceError(f"{path}:{number}: {text[:1].lower()}{text[1:]}") from None
        if not (math.isfinite(given.at) and given.at >= 0):
            raise TraceError(f"{path}:{number}: `at` is {given.at:g}; it is in seconds from 0 on")
        if given.output_tokens is not None and given.output_tokens < 1:
            raise TraceError(f"{path}:{number}: `output_tokens` is {given.output_tokens}, below 1")
        if given.prompt_tokens is not None and given.prompt_tokens < 1:
            raise TraceError(f"{path}:{number}: `prompt_tokens` is {given.prompt_tokens}, below 1")
        out.append(Arrival(given.at * 1000, given.output_tokens, given.prompt_tokens))
    if not out:
        raise TraceError(f'{path}: no arrivals; a line is {{"at": 0.5, "output_tokens": 80}}')
    out.sort(key=lambda arrival: arrival.at_ms)
    first, last = out[0].at_ms, out[-1].at_ms
    if last - first > 1000 * MOST_SECONDS:
        raise TraceError(
            f"{path}: {(last - first) / 1000:g} s lie between the first arrival and the last, "
            f"and at most {MOST_SECONDS:g} may; `at` is in seconds"
        )
    return [arrival._replace(at_ms=arrival.at_ms - first) for arrival in out]


def poisson(rate: float, n: int, rng: random.Random) -> Iterator[Arrival]:
    """Return n arrivals that know nothing of each other, `rate` a second; raises TraceError where they take too long."""
    if n / rate > MOST_SECONDS:
        raise TraceError(
            f"{n} requests at {rate:g} a second take {n / rate:.3g} s; at most {MOST_SECONDS:g} are simulated"
        )
    return _drawn(rate, n, rng)


def _drawn(rate: float, n: int, rng: random.Random) -> Iterator[Arrival]:
    now = 0.0
    for _ in range(n):
        now += rng.expovariate(rate) * 1000
        yield Arrival(now, None)
