"""A line chart as SVG, by hand: no script, no renderer, colours that follow the reader's light or dark scheme."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log2, log10
from typing import NamedTuple
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 24, 60, 64
STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#222}.t{font-weight:bold;font-size:14px}.g{fill:#fff}"
    ".m{text-anchor:middle}.e{text-anchor:end}.l{stroke:#ccd2da;fill:none}.x{stroke:#222;fill:none}"
    ".s{fill:none;stroke-width:2}.c0{stroke:#1565c0}.c1{stroke:#c2570c}.c2{stroke:#2e7d32}"
    ".d0{fill:#1565c0}.d1{fill:#c2570c}.d2{fill:#2e7d32}.c1.s{stroke-dasharray:6 4}.c2.s{stroke-dasharray:2 3}"
    "@media (prefers-color-scheme:dark){text{fill:#e4e7eb}.g{fill:#15181d}.l{stroke:#3a414b}.x{stroke:#e4e7eb}"
    ".c0{stroke:#6db3ff}.c1{stroke:#ffa657}.c2{stroke:#7ee787}.d0{fill:#6db3ff}.d1{fill:#ffa657}.d2{fill:#7ee787}}"
)


class Point(NamedTuple):
    """One place of a line, with its range over rounds."""

    x: float
    y: float
    low: float
    high: float


class Line(NamedTuple):
    """One line, three at most in a chart."""

    name: str
    points: Sequence[Point]


def squeezed(text: str) -> str:
    """Return what makes a line of text fit the image, where it would not."""
    room = WIDTH - 32
    return f' textLength="{room}" lengthAdjust="spacingAndGlyphs"' if 7.3 * len(text) > room else ""


def chart(title: str, under: str, up: str, lines: Sequence[Line], *, doubling: bool) -> str:
    """Return the image; `doubling` spaces x by factors."""
    places = sorted({point.x for line in lines for point in line.points})
    ticks = round_values(max(point.high for line in lines for point in line.points))
    high = HEIGHT - TOP - BOTTOM

    def x(value: float) -> float:
        first, last = places[0], places[-1]
        if first == last:
            return (LEFT + WIDTH - RIGHT) / 2
        share = log2(value / first) / log2(last / first) if doubling else 0.0
        share = share if doubling else (value - first) / (last - first)
        return LEFT + 20 + (WIDTH - LEFT - RIGHT - 40) * share

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - high * value / ticks[-1]

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<rect class="g" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="t" x="16" y="24">{escape(title)}</text>',
        f'<text x="16" y="46"{squeezed(up)}>{escape(up)}</text>',
        f'<text class="m" x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 18}">{escape(under)}</text>',
    ]
    for tick in ticks:
        parts.append(f'<path class="l" d="M{LEFT} {y(tick):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text class="e" x="{LEFT - 8}" y="{y(tick) + 4:.1f}">{tick:g}</text>')
    for place in places:
        at = f'x="{x(place):.1f}" y="{HEIGHT - BOTTOM + 18}"'
        parts.append(f'<text class="m" {at}>{place:g}</text>')
    parts.append(f'<path class="x" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    for at, line in enumerate(lines):
        drawn = "L".join(f"{x(p.x):.1f} {y(p.y):.1f}" for p in line.points)
        parts.append(f'<path class="s c{at}" d="M{drawn}"/>')
        for p in line.points:
            bar = f"M{x(p.x):.1f} {y(p.low):.1f}V{y(p.high):.1f}"
            parts.append(f'<path class="c{at}" d="{bar}"/>')
            parts.append(f'<circle class="d{at}" cx="{x(p.x):.1f}" cy="{y(p.y):.1f}" r="3.5"/>')
        row = TOP + 18 + 18 * at
        parts.append(f'<path class="s c{at}" d="M{LEFT + 24} {row - 4}h30"/>')
        parts.append(f'<text x="{LEFT + 62}" y="{row}">{escape(line.name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def round_values(most: float) -> list[float]:
    """Return round values from 0 to beyond `most`, with room above it for the names of lines."""
    most *= 1.25
    power = 10.0 ** floor(log10(most))
    step = next(power * f for f in (0.1, 0.2, 0.5, 1, 2) if most / (power * f) <= 7)
    return [round(step * at, 9) for at in range(ceil(most / step) + 1)]
