"""By which calls in the text a recorded line was reached, and whether the text's own ways fit."""

from __future__ import annotations

import ast
import enum
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping

from tether.facts import MOST_REACHED, Trace
from tether.source.flow import Flow
from tether.source.held import Way
from tether.source.scopes import ROOT, Scope, way_by

_UNKNOWN = ast.Pass()  # stands in a way for callers that are not known
_NOT_KNOWN: Way = (_UNKNOWN,)


class Fit(enum.Enum):
    """Whether a recorded call can be of a run that the text has."""

    NOT, PERHAPS, SURE = range(3)


def same_way(run: Way, way: Way) -> Fit:
    """Return whether a recorded way can be that of a run in the text."""
    for known, met in zip(run, way, strict=False):
        if met is _UNKNOWN:  # nothing that a caller gave comes into a run of which none is known
            return Fit.SURE if known is None else Fit.PERHAPS
        if known is not met:
            return Fit.NOT
    return Fit.SURE


class WaysOfRuns:
    """Tells of the recorded calls by which run of the text's functions they were made."""

    def __init__(self, trace: Trace, flow: Flow, nodes: Mapping[int, ast.AST]) -> None:
        self._sites, self._flow, self._nodes = trace.sites, flow, nodes
        self._first = {int(one.site): tuple(map(int, one.above)) for one in trace.callers}
        self._later: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
        for fact in trace.reached:
            self._later[fact.site].append((fact.at, tuple(map(int, fact.above))))
        full = len(trace.reached) >= MOST_REACHED
        self._until = trace.reached[-1].at if full else trace.ended
        self._known: dict[tuple[int, ...], Way] = {}
        self._ways: dict[int, set[Way]] = defaultdict(set)
        for scope, way in flow.runs:
            self._ways[scope].add(way)

    def at(self, site: int, moment: int) -> Way:
        """Return the way by which a line was reached at a time."""
        if moment > self._until:
            return self._way((site,))
        above = self._first.get(site, ())
        if site in self._later:
            later = self._later[site]
            number = bisect_right(later, moment, key=lambda one: one[0])
            above = later[number - 1][1] if number else above
        return self._way((site, *above))

    def _way(self, lines: tuple[int, ...]) -> Way:
        """Return the way that the first of some lines above each other was reached by."""
        if lines not in self._known:
            self._known[lines] = self._found(lines)
        return self._known[lines]

    def _found(self, lines: tuple[int, ...]) -> Way:
        scope = self._scope(lines[0]) if lines else None
        if scope is None:
            return _NOT_KNOWN
        if scope.parent is None:
            return ()
        above = self._leave(lines, scope)
        call = self._nodes.get(above[0]) if above else None
        if not isinstance(call, ast.Call) or scope not in self._flow.scopes.called(call):
            return _NOT_KNOWN
        way = way_by(call, self._way(above))
        known = self._ways[id(scope)]
        # Nothing came into the run by this call: it is as if its caller were not known.
        return way if any(same_way(one, way) is not Fit.NOT for one in known) else ROOT

    def _leave(self, lines: tuple[int, ...], scope: Scope) -> tuple[int, ...]:
        """Return the lines above a function's own, whose lambdas and comprehensions are frames."""
        for at, line in enumerate(lines):
            if self._scope(line) is scope and not self._sites[line].function.endswith(">"):
                return lines[at + 1 :]
        return ()

    def _scope(self, line: int) -> Scope | None:
        node = self._nodes.get(line)
        return self._flow.scopes.around.get(node) if node is not None else None
