"""The way from the loss to each parameter, with the cuts where they are, one for each module.

The way shown is the shortest that a gradient can take; where none is left, the shortest that the
parameter's value took, and then at least one call on it cuts.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from tether.analysis.dataflow import Edge
from tether.analysis.gradient_paths import follow
from tether.analysis.history import History
from tether.facts import Site
from tether.operations.table import shown
from tether.report.compose import Findings
from tether.report.gradients import Gradient

MANY_STOPS = 60
"""Calls of one route that are shown; the middle of a longer one is counted."""

MANY_LOSSES = 4
"""Backward passes, each from a line of its own, that are followed."""


class RouteCall(NamedTuple):
    """One call on the way."""

    operation: str
    site: Site
    cut: bool
    times: int = 1  # calls in a row at one place


@dataclass
class Route:
    """A module's parameters and the way to the first of them."""

    module: str
    rows: list[Gradient] = field(default_factory=list)
    stops: list[RouteCall] = field(default_factory=list)  # from the loss on
    omitted: int = 0  # stops left out in the middle
    joined: str = ""  # the module whose way this one shares before its own stops begin
    reached: bool = False  # a way was found


def routes(about: Findings) -> list[Route]:
    """Return a route for each module, in the order of the gradient table."""
    made: dict[str, Route] = {}
    for row in about.gradients:
        made.setdefault(row.module or row.name, Route(row.module or row.name)).rows.append(row)
    if made:
        _RouteWalk(about).fill(list(made.values()))
    return list(made.values())


class _RouteWalk:
    def __init__(self, about: Findings) -> None:
        self.history: History = about.history
        trace = about.trace
        names = {fact.name: fact.tensor for fact in reversed(trace.names)}
        names |= {self.history.name_of(one): one for one in sorted({*names.values()})}
        self.tensors = {row.name: names[row.name] for row in about.gradients if row.name in names}
        lines: dict[int, int] = {}
        for position in self.history.backwards:
            lines.setdefault(self.history.events[position].site, position)
        self.backwards = list(lines.values())[:MANY_LOSSES]
        self.toward: dict[int, int] = {}  # event -> the next event on the way to the loss
        self.entry: dict[int, int] = {}  # tensor -> the event nearest to the loss that read it
        self.cuts: dict[int, set[int]] = defaultdict(set)  # tensor -> events that cut it off

    def fill(self, routes: list[Route]) -> None:
        """Find the ways and give each route its stops."""
        for route in routes:
            missing = [row for row in route.rows if row.status != "reached"]
            row = (missing or route.rows)[0]
            tensor = self.tensors.get(row.name, -1)
            for position in self.backwards:
                found = self._way(tensor, position)
                if found:
                    self._tell(route, tensor, found, missing=bool(missing), backward=position)
                    break
        _join(routes)

    def _way(self, tensor: int, backward: int) -> list[int]:
        """Return the events from the loss to the tensor, or []."""
        for live in (True, False):
            toward, entry = self._spread(backward, live=live)
            if tensor in entry:
                way = [entry[tensor]]
                while way[-1] != backward:
                    way.append(toward[way[-1]])
                return way[::-1]
        return []

    def _spread(self, backward: int, *, live: bool) -> tuple[dict[int, int], dict[int, int]]:
        """Go back from the loss, nearest events first; done once for each loss and kind of way."""
        memo = self.history.memo
        key = f"report.routes {backward} {live}"
        if key in memo:
            kept: tuple[dict[int, int], dict[int, int]] = memo[key]
            return kept
        flow = self.history.flow
        toward: dict[int, int] = {}
        entry: dict[int, int] = {}
        queue = deque([backward])
        while queue:
            position = queue.popleft()
            for edge in flow.edges[position]:
                if edge.operand is not None and (not live or edge.operand.requires_grad):
                    entry.setdefault(edge.operand.tensor, position)
                if self._open(edge, position, live=live) and edge.source not in toward:
                    toward[edge.source] = position
                    queue.append(edge.source)
        memo[key] = toward, entry
        return toward, entry

    def _open(self, edge: Edge, position: int, *, live: bool) -> bool:
        if not 0 <= edge.source < position or not self.history.flow.carries[edge.source]:
            return False
        if not live or edge.operand is None:
            return not live
        return edge.operand.requires_grad and not edge.operand.leaf

    def _tell(
        self, route: Route, tensor: int, way: list[int], *, missing: bool, backward: int
    ) -> None:
        cutting: set[int] = set()
        if missing:
            paths = follow(self.history, [tensor], backward)
            cutting = {*paths.cuts, *paths.steps}
        stops: list[RouteCall] = []
        for position in way:
            event = self.history.events[position]
            site = self.history.site_of(event)
            operation = shown(event.operation)
            last = stops[-1] if stops else None
            cut = position in cutting
            if last and (last.operation, last.site, last.cut) == (operation, site, cut):
                stops[-1] = last._replace(times=last.times + 1)
            else:
                stops.append(RouteCall(operation, site, cut))
        route.stops, route.reached = stops, True


def _join(routes: list[Route]) -> None:
    """Leave out of each route what an earlier one has already shown, and the middle of long ones.

    A route keeps the whole of its way when a cut lies on it.
    """
    shown: dict[tuple[RouteCall, ...], str] = {}
    for route in routes:
        stops = tuple(route.stops)
        if not any(stop.cut for stop in stops):
            for length in range(len(stops), 2, -1):
                if stops[:length] in shown:
                    route.joined = shown[stops[:length]]
                    route.stops = list(stops[length:])
                    break
        if len(stops) <= 4 * MANY_STOPS:
            for length in range(3, len(stops) + 1):
                shown.setdefault(stops[:length], route.module)
        _shorten(route)


def _shorten(route: Route) -> None:
    """Drop from the middle of a long route, never a cut."""
    if len(route.stops) <= MANY_STOPS:
        return
    half = MANY_STOPS // 2
    first, middle, last = route.stops[:half], route.stops[half:-half], route.stops[-half:]
    kept = [stop for stop in middle if stop.cut]
    route.omitted = len(middle) - len(kept)
    route.stops = [*first, *kept, *last]
