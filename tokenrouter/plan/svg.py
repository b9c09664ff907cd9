"""A graph as an SVG image: columns by distance from the entry, arrows numbered, their texts in a list below.

No outside renderer, no script: the file opens in a browser and in a review.
"""

from __future__ import annotations

from math import hypot
from xml.sax.saxutils import escape

from tokenrouter.plan.graph import Arrow, Graph

BOX_W, BOX_H = 190, 44
GAP_X, GAP_Y = 120, 70
MARGIN = 30
LINE = 18  # of text
CHAR = 7.2  # width of a letter at 12 px, monospaced

STYLE = (
    "text{font:12px ui-monospace,monospace;fill:#222}.t{font-weight:bold;font-size:14px}"
    "rect{fill:#f4f6fa;stroke:#456}path{fill:none;stroke:#456}.d{stroke-dasharray:5 4}"
    "circle{fill:#fff;stroke:#456}.n{text-anchor:middle;font-size:10px}.c{text-anchor:middle}"
)


def svg(graph: Graph) -> str:
    """Return a graph as the text of an SVG file."""
    places = _places(graph)
    legend = [
        f"{number}  {arrow.text}" for number, arrow in enumerate(graph.arrows, 1) if arrow.text
    ]
    right = max(x for x, _ in places.values()) + BOX_W + MARGIN + 30
    bottom = max(y for _, y in places.values()) + BOX_H + GAP_Y
    width = max(right, MARGIN * 2 + max((len(line) for line in legend), default=0) * CHAR)
    height = bottom + LINE * len(legend) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="a" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto-start-reverse"><path d="M0 0L8 4L0 8z" style="fill:#456"/></marker></defs>',
        f'<text class="t" x="{MARGIN}" y="{MARGIN}">{escape(graph.title)}</text>',
    ]
    drawn: dict[tuple[str, str], int] = {}
    for number, arrow in enumerate(graph.arrows, 1):
        turn = drawn.get((arrow.source, arrow.target), 0)
        drawn[arrow.source, arrow.target] = turn + 1
        parts += _arrow(arrow, number, places, turn)
    for node in graph.nodes:
        x, y = places[node.id]
        radius = BOX_H / 2 if node.round else 6
        parts.append(f'<rect x="{x}" y="{y}" width="{BOX_W}" height="{BOX_H}" rx="{radius}"/>')
        parts.append(
            f'<text class="c" x="{x + BOX_W / 2}" y="{y + BOX_H / 2 + 4}">{escape(node.text)}</text>'
        )
    for row, line in enumerate(legend):
        parts.append(f'<text x="{MARGIN}" y="{bottom + LINE * row}">{escape(line)}</text>')
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _places(graph: Graph) -> dict[str, tuple[int, int]]:
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
    rows: dict[int, int] = {}
    places = {}
    for node in graph.nodes:
        at = column.get(node.id, depth)
        row = rows.get(at, 0)
        rows[at] = row + 1
        shift = (at % 2) * GAP_Y // 2  # so that long arrows do not run through boxes
        places[node.id] = (
            MARGIN + at * (BOX_W + GAP_X),
            MARGIN * 3 + shift + row * (BOX_H + GAP_Y),
        )
    return places


def _arrow(arrow: Arrow, number: int, places: dict[str, tuple[int, int]], turn: int) -> list[str]:
    """Return one arrow and its number; the `turn`-th between the same two boxes bends further out."""
    x0, y0 = places[arrow.source]
    x1, y1 = places[arrow.target]
    if arrow.source == arrow.target:
        x, y, out = x0 + BOX_W / 2 + 40 * turn - 30, float(y0), 40
        way = f"M{x - 14} {y}C{x - 24} {y - out} {x + 24} {y - out} {x + 14} {y}"
        middle = (x, y - out * 0.75)
    else:
        a = (x0 + BOX_W / 2, y0 + BOX_H / 2)
        b = (x1 + BOX_W / 2, y1 + BOX_H / 2)
        a, b = _edge(a, b), _edge(b, a)
        length = max(1.0, hypot(b[0] - a[0], b[1] - a[1]))
        bend = 26 + 30 * turn
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


def _edge(inside: tuple[float, float], towards: tuple[float, float]) -> tuple[float, float]:
    """Return where the line from a box's centre to a point leaves the box."""
    dx, dy = towards[0] - inside[0], towards[1] - inside[1]
    scale = min(
        BOX_W / 2 / abs(dx) if dx else float("inf"), BOX_H / 2 / abs(dy) if dy else float("inf")
    )
    return inside[0] + dx * scale, inside[1] + dy * scale
