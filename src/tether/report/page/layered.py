"""A layered drawing of a directed graph: where each node stands and how each edge runs.

The usual four steps: layers by the longest way, a bend for each layer that an edge passes, the
order in a layer by the middle of the neighbours, and places that keep neighbours above each other.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

SWEEPS = 6
GAP = 18  # pixels between two nodes of a layer
DEPTH = 58  # pixels from one layer to the next
BEND = 14  # pixels that a passing edge takes up

Node = Hashable
Edge = tuple[Node, Node]


class Point(NamedTuple):
    """A place in the drawing, in pixels; of a node its middle."""

    x: float
    y: float


class Placed(NamedTuple):
    """A drawing: nodes by their middle, edges as points from one middle to the other."""

    nodes: dict[Node, Point]
    edges: dict[Edge, list[Point]]


def placed(widths: Mapping[Any, float], edges: Sequence[tuple[Any, Any]]) -> Placed:
    """Return a drawing; `widths` has every node, in an order that edges follow where they can."""
    forth = [(a, b) for a, b in edges if a != b]
    layer = _layers(list(widths), forth)
    chains = [_bent(edge, layer) for edge in forth]
    wide = {**dict.fromkeys(layer, float(BEND)), **widths}
    rows: list[list[Node]] = [[] for _ in range(max(layer.values(), default=-1) + 1)]
    for node in wide:
        rows[layer[node]].append(node)
    near = _neighbours(chains)
    _sort(rows, near)
    x = _across(rows, near, wide)
    points = {node: Point(x[node], DEPTH * layer[node]) for node in wide}
    ways = {edge: [points[n] for n in way] for edge, way in zip(forth, chains, strict=True)}
    return Placed({node: points[node] for node in widths}, ways)


def _bent(edge: Edge, layer: dict[Node, int]) -> list[Node]:
    """Return an edge as nodes in neighbouring layers: a bend in each layer that it passes."""
    first, last = layer[edge[0]], layer[edge[1]]
    turn = 1 if last > first else -1
    bends: dict[Node, int] = {("bend", *edge, at): at for at in range(first + turn, last, turn)}
    layer |= bends
    return [edge[0], *bends, edge[1]]


def _layers(nodes: Sequence[Node], edges: Sequence[Edge]) -> dict[Node, int]:
    """Return the layer of each node; an edge against the order of the nodes counts turned round."""
    order = {node: place for place, node in enumerate(nodes)}
    layer: dict[Node, int] = dict.fromkeys(nodes, 0)
    after: dict[Node, list[Node]] = defaultdict(list)
    for pair in edges:
        one, other = sorted(pair, key=order.__getitem__)
        after[one].append(other)
    for node in nodes:
        for other in after[node]:
            layer[other] = max(layer[other], layer[node] + 1)
    targets = {other for found in after.values() for other in found}
    for node in reversed(nodes):  # what nothing leads to stands right above what it leads to
        if node not in targets and after[node]:
            layer[node] = min(layer[other] for other in after[node]) - 1
    return layer


def _neighbours(chains: Sequence[Sequence[Node]]) -> dict[Node, list[Node]]:
    near: dict[Node, list[Node]] = defaultdict(list)
    for chain in chains:
        for one, other in itertools.pairwise(chain):
            near[one].append(other)
            near[other].append(one)
    return near


def _sort(rows: Sequence[list[Node]], near: Mapping[Node, list[Node]]) -> None:
    """Order each layer by the middle of its neighbours in the layer beside it."""
    for sweep in range(SWEEPS):
        turn = range(1, len(rows)) if sweep % 2 == 0 else range(len(rows) - 2, -1, -1)
        for at in turn:
            beside = {node: n for n, node in enumerate(rows[at - 1 if sweep % 2 == 0 else at + 1])}
            middle = {}
            for place, node in enumerate(rows[at]):
                found = [beside[one] for one in near.get(node, ()) if one in beside]
                middle[node] = sum(found) / len(found) if found else float(place)
            rows[at].sort(key=middle.__getitem__)


def _across(
    rows: Sequence[Sequence[Node]], near: Mapping[Node, list[Node]], wide: Mapping[Node, float]
) -> dict[Node, float]:
    x: dict[Node, float] = {}
    for row in rows:
        at = -sum(wide[node] + GAP for node in row) / 2
        for node in row:
            x[node] = at + (wide[node] + GAP) / 2
            at += wide[node] + GAP
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = {
                node: sum(x[one] for one in near[node]) / len(near[node])
                if near.get(node)
                else x[node]
                for node in row
            }
            _put(row, wanted, wide, x)
    return x


def _put(
    row: Sequence[Node],
    wanted: Mapping[Node, float],
    wide: Mapping[Node, float],
    x: dict[Node, float],
) -> None:
    """Place a layer where it is wanted, in its order and without overlaps."""
    left = right = None
    low: list[float] = []
    high: list[float] = []
    for node in row:
        half = wide[node] / 2
        at = wanted[node] if left is None else max(wanted[node], left + half)
        low.append(at)
        left = at + half + GAP
    for node in reversed(row):
        half = wide[node] / 2
        at = wanted[node] if right is None else min(wanted[node], right - half)
        high.append(at)
        right = at - half - GAP
    for node, one, other in zip(row, low, reversed(high), strict=True):
        x[node] = (one + other) / 2
