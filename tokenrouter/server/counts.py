"""What the front end counts of its requests, and how it and the subservers' reports become `/metrics`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from tokenrouter.plan.structs import Plan
from tokenrouter.runtime.client import Client
from tokenrouter.runtime.messages import DELAY_BOUNDS_MS, Report, Tally, Token
from tokenrouter.runtime.ticket import Ending
from tokenrouter.server.metrics import (
    BETWEEN_S,
    FIRST_TOKEN_S,
    REQUEST_S,
    SIZES,
    Exposition,
    Histogram,
)

OUTCOMES = ("stop", "length", "aborted", "timeout", "failed")
DELAY_BOUNDS_S = tuple(bound / 1e3 for bound in DELAY_BOUNDS_MS)


class Counts:
    """The front end's own numbers, cumulative since its start."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self.outcomes: Counter[str] = Counter()
        self.n_prompt_tokens = 0
        self.tokens: Counter[tuple[int, int | None]] = Counter()  # by model and rule
        self.first = Histogram(FIRST_TOKEN_S)
        self.between = Histogram(BETWEEN_S)
        self.whole = Histogram(REQUEST_S)

    def watch(self, n_prompt: int) -> Watched:
        """Count a request that has just been submitted."""
        self.n_prompt_tokens += n_prompt
        return Watched(self)


class Watched:
    """One request as it is counted; `runtime.ticket.Watch`."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._begun = counts.now_s()
        self._last: float | None = None

    def token(self, token: Token) -> None:
        """Count a token and the time that it took."""
        counts, now = self._counts, self._counts.now_s()
        counts.tokens[token.model, token.rule] += 1
        if self._last is None:
            counts.first.observe(now - self._begun)
        else:
            counts.between.observe(now - self._last)
        self._last = now
        if token.finish is not None:
            self._end(token.finish)

    def ended(self, how: Ending | Exception) -> None:
        """Count a request that ended early."""
        self._end("failed" if isinstance(how, Exception) else how)

    def _end(self, outcome: str) -> None:
        self._counts.outcomes[outcome] += 1
        self._counts.whole.observe(self._counts.now_s() - self._begun)


async def metrics_text(plan: Plan, client: Client, counts: Counts) -> str:
    """Return all metrics as they are now; those of a subserver that does not answer at once are left out."""
    out = Exposition()
    names = [model.name for model in plan.models]
    _put_requests(out, names, client, counts)
    for report in await client.peek():
        _put_report(out, names, report)
    for model, tally in list(client.tallies.items()):
        _put_tally(out, names[model], tally)
    windows = client.windows
    out.set("window_swaps_total", windows.swaps)
    out.set("drift", windows.drift_p, "transitions")
    out.set("drift", windows.drift_step, "step_time")
    return out.text()


def _put_requests(out: Exposition, names: list[str], client: Client, counts: Counts) -> None:
    status = client.status()
    out.set("requests_running", status.running)
    out.set("requests_waiting", status.waiting)
    for model in status.models:
        out.set("model_up", model.ready, model.name)
        out.set("model_starts_total", model.epoch, model.name)
    for outcome in OUTCOMES:
        out.set("requests_total", counts.outcomes[outcome], outcome)
    out.set("prompt_tokens_total", counts.n_prompt_tokens)
    for (at, rule), n in counts.tokens.items():
        out.set("tokens_total", n, names[at], _rule(rule))
    out.histogram("time_to_first_token_seconds", counts.first)
    out.histogram("inter_token_latency_seconds", counts.between)
    out.histogram("request_seconds", counts.whole)


def _put_report(out: Exposition, names: list[str], report: Report) -> None:
    name = names[report.model]
    out.set("model_running", report.running, name)
    out.set("model_pending", report.pending, name)
    held = report.pages - report.free - report.kept
    out.set("kv_cache_usage_ratio", held / report.pages, name)
    out.set("preemptions_total", report.preempted, name)
    out.set("prefix_cache_queries_total", report.prefix_asked, name)
    out.set("prefix_cache_hits_total", report.prefix_found, name)
    out.set("steps_total", report.steps, name)
    for requests, tokens, n in report.captured:
        out.set("captured_steps_total", n, name, str(requests), str(tokens))
    for reason, n in report.eager.items():
        out.set("eager_steps_total", n, name, reason)
    for phase, seconds in report.phases.items():
        out.set("phase_seconds_total", seconds, name, phase)
    for peer, rule, n in report.handoffs:
        out.set("handoffs_total", n, name, names[peer], _rule(None if rule < 0 else rule))


def _put_tally(out: Exposition, name: str, tally: Tally) -> None:
    for reason, n in tally.launches.items():
        out.set("launches_total", n, name, reason)
    sizes = Histogram(SIZES)
    for size, n in tally.batch_sizes.items():
        sizes.observe(size, n)
    out.histogram("batch_size", sizes, name)
    delays = Histogram(DELAY_BOUNDS_S, list(tally.delays))
    delays.sum = tally.delay_sum_ms / 1e3
    out.histogram("admission_delay_seconds", delays, name)
    out.set("gate_waiting", tally.waiting, name)
    out.set("window", tally.window, name)


def _rule(rule: int | None) -> str:
    return "none" if rule is None else str(rule)
