"""The graph of ties as SVG: plain shapes with classes, drawn here; the page only moves them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

from tether.facts import Site
from tether.report.page.html import safe
from tether.report.page.layered import Placed, Point, placed
from tether.report.page.tie_nodes import FlowEdge, Key, MemoryEdge, TieGraph, TieNode

HEIGHT = 30  # pixels of a node
LETTER = 7.3  # pixels of a letter of a label
LONGEST = 34  # letters of a label
ASIDE = 46  # pixels between the graph and the names that share its memory
MARGIN = 16


class TiePicture(NamedTuple):
    """A drawing of a graph, and how many nodes and ties it has for who cannot see it."""

    svg: str
    width: int
    height: int
    label: str


def tie_picture(graph: TieGraph, link: Callable[[Site], str]) -> TiePicture | None:
    """Return the drawing, or None of an empty graph. `link` gives the id of a line, or ""."""
    if not graph.nodes:
        return None
    flow = {key for edge in graph.flow for key in edge[:2]}
    widths = {key: _wide(node) for key, node in graph.nodes.items() if key in flow}
    drawn = placed(widths, [edge[:2] for edge in graph.flow])
    places = _places(graph, widths, drawn)
    left, top, wide, high = _box(graph, places)
    parts = [
        *(_flow(edge, drawn.edges[edge[:2]], graph) for edge in graph.flow),
        *(_tie(edge, graph, places) for edge in graph.memory),
        *(_node(node, places[key], link) for key, node in graph.nodes.items()),
    ]
    label = (
        f"{len(graph.nodes)} modules, tensors, cuts and losses; "
        f"{len(graph.flow)} ways of values, {len(graph.memory)} memory ties"
    )
    box = f"{left:.0f} {top:.0f} {wide:.0f} {high:.0f}"
    drawing = "".join(parts)
    svg = (
        f'<svg id="graph" viewBox="{box}" width="{wide:.0f}" height="{high:.0f}" role="group" '
        f'aria-label="{label}">{drawing}</svg>'
    )
    return TiePicture(svg, round(wide), round(high), label)


def _box(graph: TieGraph, places: dict[Key, Point]) -> tuple[float, float, float, float]:
    """Return left, top, width and height of all that is drawn."""
    halves = {key: _wide(graph.nodes[key]) / 2 for key in places}
    left = min(at.x - halves[key] for key, at in places.items()) - MARGIN
    right = max(at.x + halves[key] for key, at in places.items()) + MARGIN
    right += ASIDE if graph.memory else 0
    rows = [at.y for at in places.values()]
    top, bottom = min(rows) - HEIGHT / 2 - MARGIN, max(rows) + HEIGHT / 2 + MARGIN
    return left, top, right - left, bottom - top


def _wide(node: TieNode) -> float:
    return LETTER * len(_label(node)) + 22


def _places(graph: TieGraph, widths: dict[Key, float], drawn: Placed) -> dict[Key, Point]:
    """Return the middle of each node: flow in layers, and to the right what shares memory."""
    places: dict[Key, Point] = {key: drawn.nodes[key] for key in widths}
    edge = max((places[key].x + widths[key] / 2 for key in widths), default=0.0)
    aside = [key for key in graph.nodes if key not in widths]
    wanted = {key: _beside(key, graph, places) for key in aside}
    wide = max((_wide(graph.nodes[key]) for key in aside), default=0.0)
    last = -1e9
    for key in sorted(aside, key=wanted.__getitem__):
        last = max(wanted[key], last + HEIGHT + 16)
        places[key] = Point(edge + (ASIDE if widths else 0) + wide / 2, last)
    return places


def _beside(key: Key, graph: TieGraph, places: dict[Key, Point]) -> float:
    """Return the height at which a name stands beside what it shares memory with."""
    ties = [one for one in graph.memory if key in one[:2]]
    near = [places[end].y for one in ties for end in one[:2] if end in places]
    return sum(near) / len(near) if near else 0.0


def _flow(edge: FlowEdge, way: list[Point], graph: TieGraph) -> str:
    """Draw a way of values; the arrow goes the way of the gradient, from the loss."""
    turn = 1 if way[-1].y >= way[0].y else -1
    tip = Point(way[0].x, way[0].y + turn * HEIGHT / 2)
    line = _curve([tip, *way[1:-1], Point(way[-1].x, way[-1].y - turn * HEIGHT / 2)])
    if not edge.live:
        nodes = graph.nodes[edge.source], graph.nodes[edge.target]
        told = [one for one in nodes if one.key[0] == "cut"] or [nodes[0]]
        return f'<path class="dead{_class(told[0].severity)}" d="{line}"/>'
    back = tip.y + turn * 7
    head = f"M{tip.x - 4:.0f} {back:.0f}L{tip.x:.0f} {tip.y:.0f}L{tip.x + 4:.0f} {back:.0f}"
    return f'<path class="live" d="{line}{head}"/>'


def _curve(way: list[Point]) -> str:
    parts = [f"M{way[0].x:.0f} {way[0].y:.0f}"]
    for one, other in itertools.pairwise(way):
        middle = (one.y + other.y) / 2
        parts.append(
            f"C{one.x:.0f} {middle:.0f} {other.x:.0f} {middle:.0f} {other.x:.0f} {other.y:.0f}"
        )
    return "".join(parts)


def _tie(edge: MemoryEdge, graph: TieGraph, places: dict[Key, Point]) -> str:
    """Draw a memory tie from the side of one node to the side of the other."""
    one, other = places[edge.one], places[edge.other]
    a, b = _wide(graph.nodes[edge.one]) / 2, _wide(graph.nodes[edge.other]) / 2
    if abs(one.x - other.x) < 1:  # one above the other: round the right side
        start, end = one.x + a, other.x + b
        middle = max(start, end) + ASIDE
    else:
        start, end = (one.x - a, other.x + b) if one.x > other.x else (one.x + a, other.x - b)
        middle = (start + end) / 2
    line = f"M{start:.0f} {one.y:.0f}C{middle:.0f} {one.y:.0f}"
    line += f" {middle:.0f} {other.y:.0f} {end:.0f} {other.y:.0f}"
    tensors = f"{edge.tensors} tensor" + ("s" if edge.tensors > 1 else "")
    names = f"{graph.nodes[edge.one].label} and {graph.nodes[edge.other].label}"
    title = safe(f"{names} show the same memory: {tensors}")
    mark = _class(edge.severity)
    numbers = " ".join(map(str, edge.findings))
    return f'<g class="tie{mark}" data-n="{numbers}"><title>{title}</title><path d="{line}"/></g>'


def _label(node: TieNode) -> str:
    """Return the end of what a node is called, which tells it from others."""
    text = node.label
    return text if len(text) <= LONGEST else "\u2026" + text[1 - LONGEST :]


def _class(severity: str) -> str:
    return {"error": " e", "warning": " w", "note": " o"}.get(severity, "")


_WORDS = {
    "module": "module", "tensor": "tensor", "cut": "gradients stop at this call",
    "loss": "backward starts from this loss",
}  # fmt: skip


def _node(node: TieNode, at: Point, link: Callable[[Site], str]) -> str:
    wide, kind = _wide(node), node.key[0]
    title = f"{_WORDS[kind]}: {node.label}"
    if node.findings:
        title += ", finding " + ", ".join(f"#{one}" for one in node.findings[:5])
    shape = (
        f'<rect x="{at.x - wide / 2:.0f}" y="{at.y - HEIGHT / 2:.0f}" width="{wide:.0f}" '
        f'height="{HEIGHT}" rx="{15 if kind in ("loss", "tensor") else 4}"/>'
    )
    if len(node.members) > 1:  # a second sheet behind the first
        shape = shape.replace("<rect", '<rect class="sheet" transform="translate(4 -4)"', 1) + shape
    label = safe(_label(node))
    text = f'<text x="{at.x:.0f}" y="{at.y + 4:.0f}">{label}</text>'
    inner = f"<title>{safe(title)}</title>{shape}{text}"
    numbers = " ".join(map(str, node.findings))
    target = link(node.site) if node.site else ""
    href = f' href="#{target}"' if target else ""
    return f'<a class="node {kind}{_class(node.severity)}" data-n="{numbers}"{href}>{inner}</a>'
