"""A graph as an SVG image: columns by distance from the entry, arrows numbered, their texts in a list below.

No outside renderer, no script: the file opens in a browser and in a review.
"""

from __future__ import annotations

from math import hypot
from xml.sax.saxutils import escape

from tokenrouter.plan.graph import Arrow, Graph

BOX_W, BOX_H = 90, 44  # at least
GAP_X, GAP_Y = 96, 70
MARGIN = 30
LINE = 18  # of text
CHAR = 7.2  # width of a letter at 12 px, monospaced

STYLE = (
    "text{font:12px ui-monospace,'DejaVu Sans Mono',monospace;fill:#222}.t{font-weight:bold;font-size:14px}"
    "rect{fill:#f4f6fa;stroke:#456}path{fill:none;stroke:#456}.d{stroke-dasharray:5 4}.p{fill:#fff;stroke:none}"
    "circle{fill:#fff;stroke:#456}.n{text-anchor:middle;font-size:10px}.c{text-anchor:middle}.h{fill:#456}"
    "@media(prefers-color-scheme:dark){text{fill:#e6e8ec}rect{fill:#243040;stroke:#9ab}path{stroke:#9ab}"
    ".p{fill:#14181f}circle{fill:#14181f;stroke:#9ab}.h{fill:#9ab}}"
)


def svg(graph: Graph) -> str:
    """Return a graph as the text of an SVG file."""
    box = max(BOX_W, *(len(node.text) * CHAR + 24 for node in graph.nodes))
    places = _places(graph, box)
    legend = [
        f"({number}) {arrow.text}" for number, arrow in enumerate(graph.arrows, 1) if arrow.text
    ]
    right = max(x for x, _ in places.values()) + box + MARGIN + GAP_X
    bottom = max(y for _, y in places.values()) + BOX_H + GAP_Y
    width = max(right, MARGIN * 2 + max((len(line) for line in legend), default=0) * CHAR)
    height = bottom + LINE * len(legend) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">',
        f"<style>{STYLE}</style>",
        f'<path class="p" d="M0 0H{width:.0f}V{height:.0f}H0z"/>',
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path class="h" d="M0 0L8 4L0 8z"/></marker></defs>',
        f'<text class="t" x="{MARGIN}" y="{MARGIN}">{escape(graph.title)}</text>',
    ]
    drawn: dict[tuple[str, str], int] = {}
    for number, arrow in enumerate(graph.arrows, 1):
        turn = drawn.get((arrow.source, arrow.target), 0)
        drawn[arrow.source, arrow.target] = turn + 1
        parts += _arrow(arrow, number, places, turn, box)
    for node in graph.nodes:
        x, y = places[node.id]
        radius = BOX_H / 2 if node.round else 6
        parts.append(f'<rect x="{x}" y="{y}" width="{box:.0f}" height="{BOX_H}" rx="{radius}"/>')
        parts.append(
            f'<text class="c" x="{x + box / 2:.1f}" y="{y + BOX_H / 2 + 4}">{escape(node.text)}</text>'
        )
    for row, line in enumerate(legend):
        parts.append(f'<text x="{MARGIN}" y="{bottom + LINE * row}">{escape(line)}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _places(graph: Graph, box: float) -> dict[str, tuple[float, float]]:
    """Return the upper left corner of every box."""
    column: dict[str, int] = {}
    targets = {arrow.target for arrow in graph.arrows if arrow.source != arrow.target}
    level = [node.id for node in graph.nodes if node.id not in targets] or [graph.nodes[0].id]
    depth = 0
    while level:
        column |= dict.fromkeys(level, depth)
        following = [a.target for a in graph.arrows if a.source in level]
        level = [id_ for id_ in dict.fromkeys(following) if id_ not in column]
        depth += 1
    span = max(
        (column.get(a.source, depth) - column.get(a.target, depth) for a in graph.arrows), default=0
    )
    top = MARGIN * 3 + (_height(span) * 0.75 if span > 1 else 0)  # room for arrows over the boxes
    rows: dict[int, int] = {}
    places: dict[str, tuple[float, float]] = {}
    for node in graph.nodes:
        at = column.get(node.id, depth)
        row = rows.get(at, 0)
        rows[at] = row + 1
        shift = (at % 2) * GAP_Y // 2  # so that long arrows do not run through boxes
        places[node.id] = (
            MARGIN + at * (box + GAP_X),
            top + shift + row * (BOX_H + GAP_Y),
        )
    return places


def _height(span: float) -> float:
    """Return how far an arrow over `span` columns reaches out; its curve goes three quarters of that."""
    return 60 + 14 * span


def _arrow(
    arrow: Arrow, number: int, places: dict[str, tuple[float, float]], turn: int, box: float
) -> list[str]:
    """Return one arrow and its number; the `turn`-th between the same two boxes bends further out."""
    x0, y0 = places[arrow.source]
    x1, y1 = places[arrow.target]
    if arrow.source == arrow.target:
        x, y, out = x0 + 34 + 40 * turn, float(y0), 40.0
        way = f"M{x - 14} {y}C{x - 24} {y - out} {x + 24} {y - out} {x + 14} {y}"
        middle = (x, y - out * 0.75)
    elif abs(x1 - x0) > 1.5 * (box + GAP_X):  # over the boxes in between
        top, out = min(y0, y1), _height(abs(x1 - x0) / (box + GAP_X)) + 30 * turn
        x0, x1 = x0 + box / 2, x1 + box / 2
        way = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {top - out:.1f} {x1:.1f} {top - out:.1f} {x1:.1f} {y1:.1f}"
        middle = ((x0 + x1) / 2, (y0 + y1) / 8 + 0.75 * (top - out))
    elif x0 == x1 and abs(y1 - y0) > 1.5 * (BOX_H + GAP_Y):  # past the boxes in between
        x, out = x0 + box, 90 + 30 * turn + (24 if y1 < y0 else 0)
        y0, y1 = y0 + BOX_H / 2, y1 + BOX_H / 2
        way = f"M{x:.1f} {y0:.1f}C{x + out:.1f} {y0:.1f} {x + out:.1f} {y1:.1f} {x:.1f} {y1:.1f}"
        middle = (x + 0.75 * out, (y0 + y1) / 2)
    else:
        a = (x0 + box / 2, y0 + BOX_H / 2)
        b = (x1 + box / 2, y1 + BOX_H / 2)
        a, b = _edge(a, b, box), _edge(b, a, box)
        length = max(1.0, hypot(b[0] - a[0], b[1] - a[1]))
        bend = 26 + 46 * turn
        nx, ny = -(b[1] - a[1]) / length * bend, (b[0] - a[0]) / length * bend
        cx, cy = (a[0] + b[0]) / 2 + nx, (a[1] + b[1]) / 2 + ny
        way = f"M{a[0]:.1f} {a[1]:.1f}Q{cx:.1f} {cy:.1f} {b[0]:.1f} {b[1]:.1f}"
        middle = ((a[0] + b[0]) / 2 + nx / 2, (a[1] + b[1]) / 2 + ny / 2)
    dashed = ' class="d"' if arrow.dashed else ""
    parts = [f'<path{dashed} d="{way}" marker-end="url(#a)"/>']
    if arrow.text:
        x, y = middle
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="9"/>')
        parts.append(f'<text class="n" x="{x:.1f}" y="{y + 3.5:.1f}">{number}</text>')
    return parts


def _edge(
    inside: tuple[float, float], towards: tuple[float, float], box: float
) -> tuple[float, float]:
    """Return where the line from a box's centre to a point leaves the box."""
    dx, dy = towards[0] - inside[0], towards[1] - inside[1]
    scale = min(
        box / 2 / abs(dx) if dx else float("inf"), BOX_H / 2 / abs(dy) if dy else float("inf")
    )
    return inside[0] + dx * scale, inside[1] + dy * scale
