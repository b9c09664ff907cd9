"""What `/metrics` tells: one table of metrics, and the Prometheus text that their values become.

An exposition of our own, since most values come from other processes and are cumulative already: a client library's
counters would only be set to them. Format: https://prometheus.io/docs/instrumenting/exposition_formats/
docs/serving.md holds the table that `table` makes; a test compares them.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Literal, NamedTuple

FIRST_TOKEN_S = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
BETWEEN_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
REQUEST_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0, 120.0, 300.0)
SIZES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class Metric(NamedTuple):
    """A family of samples."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str


class Histogram:
    """Observations by bucket; `counts` has one more than there are bounds."""

    def __init__(self, bounds: tuple[float, ...], counts: list[int] | None = None) -> None:
        self.bounds = bounds
        self.counts = counts or [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, n: int = 1) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += n
        self.sum += value * n


METRICS = {
    metric.name: metric
    for metric in (
        Metric("requests_running", "gauge", (), "requests that the models work on"),
        Metric("requests_waiting", "gauge", (), "requests that queue"),
        Metric("requests_total", "counter", ("outcome",), "choices that ended: `stop` (also by a stop string), `length`, `aborted` (the client left), `timeout` (their time was over) or `failed`"),
        Metric("prompt_tokens_total", "counter", (), "tokens of the prompts that were taken"),
        Metric("tokens_total", "counter", ("model", "rule"), "committed tokens by the model that wrote them and the rule that kept them (`none` inside a borrowed stay)"),
        Metric("time_to_first_token_seconds", "histogram", (), "from submission to the first token"),
        Metric("inter_token_latency_seconds", "histogram", (), "between two tokens of a choice"),
        Metric("request_seconds", "histogram", (), "from submission to the end"),
        Metric("model_up", "gauge", ("model",), "1 while the subserver is up"),
        Metric("model_starts_total", "counter", ("model",), "starts of the subserver, the first included"),
        Metric("model_running", "gauge", ("model",), "requests that the model owns"),
        Metric("model_pending", "gauge", ("model",), "requests that are here and away at a peer, or read ahead for one"),
        Metric("kv_cache_usage_ratio", "gauge", ("model",), "share of the KV pages that requests hold"),
        Metric("preemptions_total", "counter", ("model",), "requests that lost their pages for another"),
        Metric("prefix_cache_queries_total", "counter", ("model",), "tokens that were looked for in the prefix cache"),
        Metric("prefix_cache_hits_total", "counter", ("model",), "of them, those that were there"),
        Metric("handoffs_total", "counter", ("model", "to", "rule"), "hand-offs by sender, receiver and rule (`none` at the end of a borrowed stay)"),
        Metric("steps_total", "counter", ("model",), "batches that the model ran"),
        Metric("phase_seconds_total", "counter", ("model", "phase"), "seconds of the subserver's loop: `gate`, `build` (of a batch), `model`, `sample`, `route` (signals and rules), `messages`, `wait` (nothing to do)"),
        Metric("captured_steps_total", "counter", ("model", "requests", "tokens"), "steps that were replayed as one graph, by its size: requests, and new tokens of each"),
        Metric("eager_steps_total", "counter", ("model", "reason"), "steps that no captured one held: `tokens` or `requests` beyond the largest, `scored` prompts, `context` too long"),
        Metric("launches_total", "counter", ("model", "reason"), "batches by why they were launched"),
        Metric("batch_size", "histogram", ("model",), "requests that passed the gate together"),
        Metric("admission_delay_seconds", "histogram", ("model",), "how long requests waited at the gate"),
        Metric("gate_waiting", "gauge", ("model",), "requests at the gate, as of the last 500 ms in which the model worked"),
        Metric("window", "gauge", ("model",), "requests that a batch waits for, likewise"),
        Metric("window_swaps_total", "counter", (), "window tables that were solved anew and put in force"),
        Metric("drift", "gauge", ("of",), "of the `transitions` and the `step_time` since the table was solved"),
    )
}  # fmt: skip

Values = tuple[str, ...]  # of a metric's labels


class Exposition:
    """Samples on their way to text."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {name: [] for name in METRICS}

    def set(self, name: str, value: float, *labels: str) -> None:
        """Put a sample of a counter or a gauge."""
        metric = METRICS[name]
        assert metric.kind != "histogram" and len(labels) == len(metric.labels), (name, labels)
        self._lines[name].append(f"tokenrouter_{name}{_labels(metric.labels, labels)} {+value}")

    def histogram(self, name: str, histogram: Histogram, *labels: str) -> None:
        """Put the samples of a histogram."""
        metric = METRICS[name]
        assert metric.kind == "histogram" and len(labels) == len(metric.labels), (name, labels)
        full, total = f"tokenrouter_{name}", 0
        bounds = [*(f"{bound:g}" for bound in histogram.bounds), "+Inf"]
        for bound, count in zip(bounds, histogram.counts, strict=True):
            total += count
            names = _labels((*metric.labels, "le"), (*labels, bound))
            self._lines[name].append(f"{full}_bucket{names} {total}")
        names = _labels(metric.labels, labels)
        self._lines[name] += [
            f"{full}_sum{names} {histogram.sum!r}",
            f"{full}_count{names} {total}",
        ]

    def text(self) -> str:
        """Return everything, in the order of the table."""
        lines: list[str] = []
        for name, metric in METRICS.items():
            if self._lines[name]:
                lines.append(f"# HELP tokenrouter_{name} {metric.help}")
                lines.append(f"# TYPE tokenrouter_{name} {metric.kind}")
                lines += self._lines[name]
        return "\n".join(lines) + "\n"


def _labels(names: tuple[str, ...], values: Values) -> str:
    pairs = [f'{n}="{_escape(v)}"' for n, v in zip(names, values, strict=True)]
    return "{" + ",".join(pairs) + "}" if pairs else ""


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def table() -> str:
    """Return the metrics as a table for people."""
    rows = [
        f"| `tokenrouter_{m.name}` | {m.kind} | {', '.join(f'`{label}`' for label in m.labels)} | {m.help} |"
        for m in METRICS.values()
    ]
    return "\n".join(["| metric | kind | labels | meaning |", "|---|---|---|---|", *rows])
