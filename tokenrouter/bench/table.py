"""A benchmark's result as a table for people."""

from __future__ import annotations

from tokenrouter.bench.breakdown import WAIT, Breakdown
from tokenrouter.bench.report import Get, Median, Result, Row, part

COLUMNS: list[tuple[str, Get]] = [
    ("tok/s", lambda run: run.tokens_per_s),
    ("req/s", lambda run: run.requests_per_s),
    ("TTFT p50", part("ttft_ms", "p50")),
    ("p99", part("ttft_ms", "p99")),
    ("TPOT p50", part("tpot_ms", "p50")),
    ("p99", part("tpot_ms", "p99")),
    ("ITL p50", part("itl_ms", "p50")),
    ("p99", part("itl_ms", "p99")),
    ("max", part("itl_ms", "max")),
    ("E2E p50", part("e2e_ms", "p50")),
    ("p99", part("e2e_ms", "p99")),
    ("hand-offs/tok", lambda run: run.handoffs_per_token),
]


def table(result: Result) -> str:
    """Return the result as text; times are milliseconds, medians over repeats."""
    columns = list(COLUMNS)
    if result.slo is not None:
        columns += [("goodput/s", lambda run: run.goodput), ("kept", lambda run: run.kept)]
    head = ["side", "load", *(name for name, _ in columns)]
    body = [
        [row.side, row.level.name, *(_short(row.of(get)) for _, get in columns)]
        for row in result.rows
    ]
    lines = [f"{result.policy} at {result.target}; {result.machine}"]
    lines += ["", *_aligned([head, *body]), ""]
    lines += [_shares(row) for row in result.rows if row.runs[-1].share]
    lines += _notes(result)
    for row in result.rows:
        lines += _breakdown(row)
    return "\n".join(lines)


def _notes(result: Result) -> list[str]:
    lines = []
    repeats = len(result.rows[0].runs) if result.rows else 0
    if repeats > 1:
        lines.append(f"medians of {repeats} repeats; tok/s from lowest to highest:")
        for row in result.rows:
            speed = row.of(lambda run: run.tokens_per_s)
            if speed is not None:
                lines.append(
                    f"  {row.side} {row.level.name}: {_number(speed.low)} to {_number(speed.high)}"
                )
    for ratio in result.ratios:
        parts = [f"{ratio.tokens_per_s:.2f} times the tokens/s"]
        if ratio.tpot is not None:
            parts.append(f"a token in 1/{ratio.tpot:.2f} of the time")
        lines.append(f"routed against baseline at {ratio.level.name}: {', '.join(parts)}")
    if result.agreement is not None:
        same, compared = result.agreement.same, result.agreement.compared
        lines.append(f"both sides wrote the same tokens in {same} of {compared} requests")
    for row in result.rows:
        failed = sum(run.failed for run in row.runs)
        if failed:
            why = next(run.first_error for run in row.runs if run.first_error)
            lines.append(f"{row.side} {row.level.name}: {failed} requests failed, first: {why}")
    return lines


def _breakdown(row: Row) -> list[str]:
    """Return where the steps of a level spent their time: means in milliseconds a step."""
    if not row.breakdown:
        return []
    phases = [phase for phase in row.breakdown[0].seconds if phase != WAIT]
    head = ["model", "steps", *phases, "step", "beside model", "no work"]
    body = [
        [
            one.model,
            f"{one.steps:.0f}",
            *(f"{one.ms(phase):.3f}" for phase in phases),
            f"{sum(one.ms(phase) for phase in phases):.3f}",
            f"{100 * one.share_beside_model:.1f} %",
            f"{100 * _idle(one):.1f} %",
        ]
        for one in row.breakdown
    ]
    title = f"where a step's time goes, {row.side} {row.level.name} (ms a step, means)"
    return ["", title, *_aligned([head, *body])]


def _idle(one: Breakdown) -> float:
    whole = sum(one.seconds.values())
    return one.seconds.get(WAIT, 0.0) / whole if whole else 0.0


def _shares(row: Row) -> str:
    parts = ", ".join(f"{name} {100 * x:.1f} %" for name, x in (row.runs[-1].share or {}).items())
    return f"share of tokens, {row.side} {row.level.name}: {parts}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if at < 1 else text.rjust(width)
            for at, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _short(median: Median | None) -> str:
    return "-" if median is None else _number(median.median)


def _number(value: float) -> str:
    return (
        f"{value:.3f}"
        if abs(value) < 1
        else f"{value:.1f}"
        if abs(value) < 1000
        else f"{value:.0f}"
    )
