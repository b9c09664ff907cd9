"""The two plots as SVG, by hand: a line chart of throughput against N, a map of throughput over two windows.

No script and no outside renderer. Colours follow the reader's light or dark scheme; the ground is painted, so that a
viewer that knows no schemes shows dark on white.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log10
from xml.sax.saxutils import escape

from tokenrouter.simulate.landscape import Curve, Map

WIDTH, HEIGHT = 640, 420
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 60, 60
CELL = 44
STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#222}.t{font-weight:bold;font-size:14px}.g{fill:#fff}"
    ".m{text-anchor:middle}.e{text-anchor:end}.l{stroke:#ccd2da;fill:none}.x{stroke:#222;fill:none}"
    ".s0{stroke:#1565c0;fill:none;stroke-width:2}.s1{stroke:#c2570c;fill:none;stroke-width:2;stroke-dasharray:6 4}"
    ".d0{fill:#1565c0}.d1{fill:#c2570c}.best{fill:none;stroke:#c2570c;stroke-width:3}.v{font-size:11px}"
    "@media (prefers-color-scheme:dark){text{fill:#e4e7eb}.g{fill:#15181d}.l{stroke:#3a414b}.x{stroke:#e4e7eb}"
    ".s0{stroke:#6db3ff}.s1{stroke:#ffa657}.d0{fill:#6db3ff}.d1{fill:#ffa657}.best{stroke:#ffa657}}"
)


def line_chart(title: str, curves: Sequence[Curve]) -> str:
    """Return throughput against the number of active requests, from 0 up; N on a scale of factors."""
    most = max(max(curve.tokens_per_s) for curve in curves)
    last = max(max(curve.n) for curve in curves)
    ticks = _ticks(most)
    top = ticks[-1]
    across = WIDTH - LEFT - RIGHT
    up = HEIGHT - TOP - BOTTOM

    def x(n: float) -> float:
        return LEFT + (across * log10(n) / log10(last) if last > 1 else across / 2)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - up * value / top

    parts = _begin(WIDTH, HEIGHT, title)
    for tick in ticks:
        parts.append(f'<path class="l" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="e" x="{LEFT - 8}" y="{y(tick) + 4:.1f}">{tick:g}</text>')
    shown = [n for n in (2**power for power in range(11)) if n <= last]
    for n in [*shown, *([last] if last not in shown and last > 1.4 * shown[-1] else [])]:
        parts.append(f'<text class="m" x="{x(n):.1f}" y="{HEIGHT - BOTTOM + 18}">{n}</text>')
    parts.append(f'<path class="x" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    parts.append(
        f'<text class="m" x="{LEFT + across / 2}" y="{HEIGHT - 18}">active requests</text>'
        f'<text x="{LEFT - 60}" y="{TOP - 10}">tokens/s</text>'
    )
    for at, curve in enumerate(curves):
        points = [(x(n), y(v)) for n, v in zip(curve.n, curve.tokens_per_s, strict=True)]
        way = "L".join(f"{px:.1f} {py:.1f}" for px, py in points)
        parts.append(f'<path class="s{at}" d="M{way}"/>')
        parts += [f'<circle class="d{at}" cx="{a:.1f}" cy="{b:.1f}" r="3"/>' for a, b in points]
    for at, curve in enumerate(curves):
        row = HEIGHT - BOTTOM - 20 - 20 * (len(curves) - 1 - at)
        begin = WIDTH - RIGHT - 230
        parts.append(f'<path class="s{at}" d="M{begin} {row - 4}h30"/>')
        parts.append(f'<text x="{begin + 38}" y="{row}">{escape(curve.name)}</text>')
    return _end(parts)


def heat_map(title: str, drawn: Map, names: Sequence[str]) -> str:
    """Return the map of windows: darker cells are faster, the best is framed, each says its share of the best."""
    size = len(drawn.values)
    best = max(drawn.tokens_per_s.values())
    least = min(drawn.tokens_per_s.values())
    width = max(LEFT + size * CELL + RIGHT, 440)
    height = TOP + 20 + size * CELL + BOTTOM
    first, second = (names[model] for model in drawn.models)
    parts = _begin(width, height, title)
    for at, value in enumerate(drawn.values):
        middle = CELL / 2 + at * CELL
        parts.append(
            f'<text class="m" x="{LEFT + middle}" y="{TOP + 20 + size * CELL + 18}">{value}</text>'
            f'<text class="e" x="{LEFT - 8}" y="{TOP + 20 + middle + 4}">{value}</text>'
        )
    for (a, b), speed in drawn.tokens_per_s.items():
        x = LEFT + drawn.values.index(b) * CELL
        y = TOP + 20 + drawn.values.index(a) * CELL
        shade = (speed - least) / (best - least) if best > least else 1.0
        ink = "#fff" if shade > 0.5 else "#111"
        parts.append(
            f'<rect x="{x}" y="{y}" width="{CELL - 2}" height="{CELL - 2}" fill="{_shade(shade)}">'
            f"<title>{escape(first)} {a}, {escape(second)} {b}: {speed:.1f} tokens/s</title></rect>"
            f'<text class="m v" style="fill:{ink}" x="{x + CELL / 2 - 1}" y="{y + CELL / 2 + 4}">'
            f"{100 * speed / best:.0f}</text>"
        )
    a, b = max(drawn.tokens_per_s, key=lambda cell: drawn.tokens_per_s[cell])
    x, y = LEFT + drawn.values.index(b) * CELL, TOP + 20 + drawn.values.index(a) * CELL
    parts.append(
        f'<rect class="best" x="{x - 1}" y="{y - 1}" width="{CELL}" height="{CELL}"/>'
        f'<text x="16" y="{TOP}">percent of {best:.1f} tokens/s; down: window of {escape(first)}</text>'
        f'<text class="m" x="{LEFT + size * CELL / 2}" y="{height - 18}">window of {escape(second)}</text>'
    )
    return _end(parts)


def _begin(width: float, height: float, title: str) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="g" width="{width:.0f}" height="{height:.0f}"/>',
        f'<text class="t" x="16" y="26">{escape(title)}</text>',
    ]


def _end(parts: list[str]) -> str:
    return "\n".join([*parts, "</svg>"]) + "\n"


def _shade(share: float) -> str:
    """Return a colour between pale and deep blue."""
    pale, deep = (214, 230, 245), (16, 74, 140)
    mixed = (round(p + (d - p) * share) for p, d in zip(pale, deep, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _ticks(most: float) -> list[float]:
    """Return round values from 0 to the first one that is not below `most`."""
    power = 10.0 ** floor(log10(most))
    step = next(power * f for f in (0.2, 0.5, 1, 2) if most / (power * f) <= 6)
    return [step * at for at in range(ceil(most / step) + 1)]
