"""What does the tape look like? A drawing of a small one: nodes in the order of backward, what each saved beside it."""

from __future__ import annotations

from html import escape

from referee.records.anatomy import Tape, TapeNode
from referee.units import format_bytes

MOST_NODES = 120
"""A drawing of more nodes than this is no help."""

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 44, 26, 34, 16

_STYLE = """
.node { fill: #eef3fb; stroke: #4a6fa5; }
.leaf { fill: #eef7ee; stroke: #4f8a4f; }
.saves { fill: #fdf3e3; stroke: #b57d1f; }
.edge { stroke: #8a8f98; fill: none; marker-end: url(#head); }
text { font: 12px system-ui, sans-serif; fill: #20242a; }
.small { font-size: 10px; fill: #5b616b; }
"""


def render_tape_svg(tape: Tape, *, title: str = "") -> str:
    """The tape as an SVG picture of its own. Raises ``ValueError`` for an empty tape and for one too large to read."""
    if not tape.nodes:
        raise ValueError(f"there is no tape to draw: {tape.why_empty or 'it is empty'}")
    if tape.size > MOST_NODES:
        raise ValueError(f"a tape of {tape.size:,} nodes is too large to draw; {MOST_NODES} can be read")
    places = _places(tape.nodes)
    columns = 1 + max(column for column, _ in places.values())
    rows = 1 + max(row for _, row in places.values())
    width = 2 * _MARGIN + columns * _WIDTH + (columns - 1) * _GAP_X
    height = 2 * _MARGIN + rows * _HEIGHT + (rows - 1) * _GAP_Y + (20 if title else 0)
    top = _MARGIN + (20 if title else 0)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        f' role="img" aria-label="{escape(title or "tape", quote=True)}">',
        f"<style>{_STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="#8a8f98"/></marker></defs>',
        f'<text x="{_MARGIN}" y="{_MARGIN + 4}">{escape(title)}</text>' if title else "",
        *(_edge(places[node.number], places[child], top) for node in tape.nodes for child in node.next),
        *(_node(node, places[node.number], top) for node in tape.nodes),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _places(nodes: tuple[TapeNode, ...]) -> dict[int, tuple[int, int]]:
    """Column and row of each node: a row below all that lead to it, columns filled from the left."""
    row: dict[int, int] = {}
    for node in nodes:  # in the order of backward, so that whatever leads to a node comes before it
        row.setdefault(node.number, 0)
        for child in node.next:
            row[child] = max(row.get(child, 0), row[node.number] + 1)
    filled: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    for node in nodes:
        at = row[node.number]
        places[node.number] = (filled.get(at, 0), at)
        filled[at] = filled.get(at, 0) + 1
    return places


def _corner(place: tuple[int, int], top: int) -> tuple[int, int]:
    column, row = place
    return _MARGIN + column * (_WIDTH + _GAP_X), top + row * (_HEIGHT + _GAP_Y)


def _edge(start: tuple[int, int], end: tuple[int, int], top: int) -> str:
    (x0, y0), (x1, y1) = _corner(start, top), _corner(end, top)
    x0, y0, x1 = x0 + _WIDTH // 2, y0 + _HEIGHT, x1 + _WIDTH // 2
    middle = (y0 + y1) // 2
    return f'<path class="edge" d="M{x0} {y0}C{x0} {middle} {x1} {middle} {x1} {y1}"/>'


def _node(node: TapeNode, place: tuple[int, int], top: int) -> str:
    x, y = _corner(place, top)
    saved = sum(one.bytes for one in node.saved)
    kind = "leaf" if node.variable else "saves" if saved else "node"
    elsewhere = not saved and any(one.view_bytes for one in node.saved)
    kept = "saves what another holds" if elsewhere else f"saves {format_bytes(saved)}"
    below = kept if node.saved else ("accumulates" if node.variable else "saves nothing")
    return (
        f'<rect class="{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<text x="{x + 10}" y="{y + 18}">{escape(node.variable or node.name)}</text>'
        f'<text class="small" x="{x + 10}" y="{y + 34}">{escape(below)}</text>'
    )
