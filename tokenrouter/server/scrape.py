"""`/metrics` of a running server, read back: what one look sees, and what happened between two.

TokenRouterError
└── NoMetrics       nothing that could be read answers; the message says what to do
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

import httpx

from tokenrouter.errors import TokenRouterError
from tokenrouter.server.ink import harmless

PREFIX = "tokenrouter_"
PATIENCE_S = 5.0

_SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(r"\\(.)")


class NoMetrics(TokenRouterError):  # noqa: N818 - reads as what it says
    """Nothing that could be read answers."""


class Sample(NamedTuple):
    """One value and its labels."""

    labels: Mapping[str, str]
    value: float


class Look:
    """All samples at one moment."""

    def __init__(self, samples: Mapping[str, list[Sample]], at_s: float) -> None:
        self.at_s = at_s
        self._samples = samples

    def samples(self, name: str, **labels: str) -> list[Sample]:
        """Return the samples with these labels."""
        return [
            sample
            for sample in self._samples.get(name, ())
            if all(sample.labels.get(label) == value for label, value in labels.items())
        ]

    def value(self, name: str, **labels: str) -> float | None:
        """Return the sum over all samples with these labels; None where there is none."""
        found = [sample.value for sample in self.samples(name, **labels)]
        return sum(found) if found else None

    def models(self) -> list[str]:
        """Return the models in the order of the plan."""
        return [sample.labels.get("model", "") for sample in self._samples.get("model_up", ())]


class Span(NamedTuple):
    """Two looks at one server."""

    before: Look
    now: Look

    def gain(self, name: str, **labels: str) -> float | None:
        """Return how much counters grew, together; one that fell has started anew."""
        found = self.now.samples(name, **labels)
        before = {tuple(s.labels.items()): s.value for s in self.before.samples(name, **labels)}
        gains = []
        for sample in found:
            was = before.get(tuple(sample.labels.items()), 0.0)
            gains.append(sample.value - was if sample.value >= was else sample.value)
        return sum(gains) if gains else None

    def rate(self, name: str, **labels: str) -> float | None:
        """Return how much a counter grew in a second."""
        gain, seconds = self.gain(name, **labels), self.now.at_s - self.before.at_s
        return None if gain is None or seconds <= 0 else gain / seconds

    def mean(self, name: str, **labels: str) -> float | None:
        """Return the mean of what a histogram took meanwhile; None where it took nothing."""
        total = self.gain(f"{name}_sum", **labels)
        n = self.gain(f"{name}_count", **labels)
        return total / n if n and total is not None else None


def root_of(url: str) -> str:
    """Return where a server's paths begin, from its URL with or without `/v1` and `http://`."""
    full = url if "//" in url else f"http://{url}"
    try:
        split = urlsplit(full)
        known = split.scheme in ("http", "https") and split.hostname and (split.port or True)
    except ValueError:
        known = False
    if not known:
        raise NoMetrics(f"`{url}` is no URL of a server; write http://HOST:PORT")
    return full.rstrip("/").removesuffix("/v1")


def look(client: httpx.Client, root: str) -> Look:
    """Return what the server tells now; raises NoMetrics."""
    try:
        answer = client.get(f"{root}/metrics", timeout=PATIENCE_S)
    except httpx.TimeoutException:
        raise NoMetrics(f"{root} did not answer within {PATIENCE_S:g} s") from None
    except httpx.HTTPError as error:
        why = harmless(str(error)) or type(error).__name__
        raise NoMetrics(f"{root} does not answer ({why}); is the server running?") from None
    if answer.status_code == 401:
        raise NoMetrics(f"{root} needs an API key that it knows: --api-key or $TOKENROUTER_API_KEY")
    samples = parse(answer.text) if answer.status_code == 200 else {}
    if "model_up" not in samples:
        raise NoMetrics(
            f"{root}/metrics (status {answer.status_code}) tells nothing of models; is it `trc serve`?"
        )
    return Look(samples, time.monotonic())


def parse(text: str) -> dict[str, list[Sample]]:
    """Return our samples by the names that they have after the prefix."""
    out: dict[str, list[Sample]] = {}
    for line in text.splitlines():
        found = _SAMPLE.fullmatch(line)
        if found is None or not found[1].startswith(PREFIX):
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        labels = {name: _unescape(raw) for name, raw in _LABEL.findall(found[2] or "")}
        out.setdefault(found[1].removeprefix(PREFIX), []).append(Sample(labels, value))
    return out


def _unescape(raw: str) -> str:
    return harmless(_ESCAPE.sub(lambda found: " " if found[1] == "n" else found[1], raw))
