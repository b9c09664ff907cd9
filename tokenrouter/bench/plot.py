"""A benchmark's result as one SVG image: four panels over the loads, one line a side, bars from lowest to highest repeat.

No script and no outside renderer: the file opens in a browser and in a review.
"""

from __future__ import annotations

import math
from xml.sax.saxutils import escape

from tokenrouter.bench.report import BASELINE, ROUTED, Get, Level, Median, Result, Row, part

PANEL_W, PANEL_H = 400, 220
GAP_X, GAP_Y = 90, 84
LEFT, TOP = 80, 116
MOST_TITLE, MOST_LINE = 112, 134  # characters that a line across the image holds
INKS = {ROUTED: "#1b5e9c", BASELINE: "#b4451f"}
STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#222}.t{font-weight:bold;font-size:14px}"
    ".g{stroke:#dde;fill:none}.a{stroke:#456;fill:none}.m{text-anchor:middle}.e{text-anchor:end}"
)
PANELS: list[tuple[str, Get]] = [
    ("output tokens/s", lambda run: run.tokens_per_s),
    ("TTFT, ms, median of requests", part("ttft_ms", "p50")),
    ("TPOT, ms, median of requests", part("tpot_ms", "p50")),
    ("inter-token gap, ms, p99", part("itl_ms", "p99")),
]


def svg(result: Result) -> str:
    """Return the image as text."""
    width = LEFT + 2 * PANEL_W + GAP_X + 30
    height = TOP + 2 * PANEL_H + GAP_Y + 60
    title = f"{result.policy}: {result.target}"
    repeats = len(result.rows[0].runs) if result.rows else 0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text class="t" x="20" y="28">{escape(_cut(title, MOST_TITLE))}</text>',
        f'<text x="20" y="48">{escape(_cut(result.machine, MOST_LINE))}</text>',
        f'<text x="20" y="68">medians of {repeats} repeats, bars to lowest and highest</text>',
    ]
    levels = list(dict.fromkeys(row.level for row in result.rows))
    for place, (name, get) in enumerate(PANELS):
        x = LEFT + (place % 2) * (PANEL_W + GAP_X)
        y = TOP + (place // 2) * (PANEL_H + GAP_Y)
        parts += _panel(name, get, result.rows, levels, x, y)
    sides = list(dict.fromkeys(row.side for row in result.rows))
    for at, side in enumerate(sides):
        x = width - 30 - 130 * (len(sides) - at)
        parts.append(f'<rect x="{x}" y="62" width="22" height="4" fill="{INKS[side]}"/>')
        parts.append(f'<text x="{x + 28}" y="68">{side}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _cut(text: str, most: int) -> str:
    """Return a text that fits, its middle left out where it is long: a path is known by its end."""
    if len(text) <= most:
        return text
    return f"{text[: most // 3]}…{text[1 + most // 3 - most :]}"


def _panel(
    name: str,
    get: Get,
    rows: list[Row],
    levels: list[Level],
    x: float,
    y: float,
) -> list[str]:
    found = {(row.side, row.level): row.of(get) for row in rows}
    top = _ceiling(max((m.high for m in found.values() if m is not None), default=1.0))
    parts = [f'<text class="t" x="{x}" y="{y - 10}">{escape(name)}</text>']
    for step in range(5):
        line = y + PANEL_H * (1 - step / 4)
        parts.append(f'<path class="g" d="M{x} {line:.1f}H{x + PANEL_W}"/>')
        parts.append(f'<text class="e" x="{x - 6}" y="{line + 4:.1f}">{top * step / 4:g}</text>')
    parts.append(f'<path class="a" d="M{x} {y}V{y + PANEL_H}H{x + PANEL_W}"/>')
    places = {
        level: x + PANEL_W * (at + 0.5) / max(1, len(levels)) for at, level in enumerate(levels)
    }
    for level, at in places.items():
        parts.append(f'<text class="m" x="{at:.1f}" y="{y + PANEL_H + 18}">{level.name}</text>')
    rates = any(level.rate is not None for level in levels)
    axis = "requests sent a second" if rates else "clients"
    parts.append(f'<text class="e" x="{x + PANEL_W}" y="{y + PANEL_H + 36}">{axis}</text>')
    for side in dict.fromkeys(row.side for row in rows):
        points = [(places[level], found.get((side, level))) for level in levels]
        parts += _line(INKS[side], [(at, m) for at, m in points if m is not None], top, y)
    return parts


def _line(ink: str, points: list[tuple[float, Median]], top: float, y: float) -> list[str]:
    def height(value: float) -> float:
        return y + PANEL_H * (1 - value / top)

    path = " ".join(
        f"{'L' if at else 'M'}{x:.1f} {height(m.median):.1f}" for at, (x, m) in enumerate(points)
    )
    parts = [f'<path d="{path}" fill="none" stroke="{ink}" stroke-width="2"/>'] if path else []
    for x, m in points:
        low, high = height(m.low), height(m.high)
        parts.append(
            f'<path d="M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8" '
            f'fill="none" stroke="{ink}"/>'
        )
        parts.append(f'<circle cx="{x:.1f}" cy="{height(m.median):.1f}" r="3.5" fill="{ink}"/>')
    return parts


def _ceiling(value: float) -> float:
    """Return the next round number: 1, 2, 4 or 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if value <= step * power * (1 + 1e-9))
