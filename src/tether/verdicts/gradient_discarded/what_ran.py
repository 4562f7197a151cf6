"""Which events came from within a stretch of the text, by whichever functions it calls."""

from __future__ import annotations

import ast
import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings, WaysThere
from tether.facts import Event, SiteId
from tether.source.going_through import TextPart
from tether.source.on_the_way import start
from tether.source.syntax import Source
from tether.store.numbers import Numbers

_AGAIN = (
    *(ast.For, ast.AsyncFor, ast.While),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
"""What stands in them may run several times in a turn of what is around them."""


class RanWithin:
    """What ran within stretches of the text."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._texts = history.get(Surroundings)
        self._parts: dict[int, TextPart] = {}
        self._ways = history.get(WaysThere)
        self._reads = history.events.column("reads") > 0

    @cached_property
    def _calls(self) -> dict[int, Numbers]:
        """The events of each line of the user's."""
        sites = self._history.events.column("site")
        order = np.argsort(sites, kind="stable")
        numbers, first = np.unique(sites[order], return_index=True)
        return dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))

    def reading(self, within: Sequence[TextPart]) -> Numbers:
        """Return the events that read tensors on a way through all of some stretches, in order."""
        found = self._within(within)
        return found[self._reads[found]]

    def any_of(self, within: TextPart) -> Numbers:
        """Return all events on ways through a stretch, in order."""
        return self._within((within,))

    @cached_property
    def _by_way(self) -> list[tuple[tuple[TextPart, ...], Numbers]]:
        """The events of each line of the user's by each way, the line and those above it."""
        found: dict[tuple[int, ...], list[Numbers]] = defaultdict(list)
        for number, calls in self._calls.items():
            firsts, ways = zip(*self._ways.ways(SiteId(number)), strict=True)
            parts = np.split(calls, np.searchsorted(calls, firsts[1:]))
            for way, some in zip(ways, parts, strict=True):
                found[number, *way].append(some)
        return [(tuple(map(self._part, way)), np.concatenate(some)) for way, some in found.items()]

    def _part(self, number: int) -> TextPart:
        """Return the text of a line of the recording; the whole line where no more is known."""
        known = self._parts.get(number)
        if known is None:
            site = self._history.site(number)
            key = self._texts.source(site.file).key(site)
            line, column, end_line, end_column = key or (site.line, 0, site.line, 0)
            known = TextPart(site.file, (line, column), (end_line, end_column))
            self._parts[number] = known
        return known

    def _within(self, within: Sequence[TextPart]) -> Numbers:
        found = [np.zeros(0, np.int64)]
        for parts, some in self._by_way:
            if all(any(_is_in(part, one) for part in parts) for one in within):
                found.append(some)
        return np.sort(np.concatenate(found))

    def true(self, test: TextPart) -> bool:
        """Whether the truth of a tensor was asked for by a condition, and it was true."""
        calls = self._history.events.at(self.any_of(test))
        return any(event.operation == "__bool__" and event.on and self._part(event.site) == test
                   for _, event in calls)  # fmt: skip

    def turns(self, source: Source, within: TextPart, after: int) -> int:
        """Return how often a line of a stretch was run after an event, at least, in turns."""
        counts: dict[SiteId, int] = defaultdict(int)
        calls = self.any_of(within)
        for _, event in self._history.events.at(calls[calls > after]):
            if _once(event) and self._is_plain(source, event, within):
                counts[event.site] += 1
        return max(counts.values(), default=0)

    def _is_plain(self, source: Source, event: Event, within: TextPart) -> bool:
        """Whether a call runs once in a turn: it stands in a stretch itself, in no loop there."""
        site = self._history.site_of(event)
        node = source.node_at(site) if _is_in(self._part(event.site), within) else None
        inside = itertools.takewhile(lambda one: _start(one) >= within.first, source.outwards(node))
        return node is not None and not any(isinstance(one, _AGAIN) for one in inside)


def _once(event: Event) -> bool:
    """Whether a line makes such a call once when it runs."""
    return event.inner == event.site or event.is_backward or event.operation == "step"


def _start(node: ast.AST) -> tuple[int, int]:
    """Return where a node begins; what is no part of the text begins nowhere."""
    return start(node) if hasattr(node, "lineno") else (0, 0)


def _is_in(part: TextPart, within: TextPart) -> bool:
    """Whether a part of the text lies in another one; a whole line where it begins there."""
    if part.file != within.file:
        return False
    if part.last[1] == 0:
        return within.first[0] <= part.first[0] <= within.last[0]
    return within.first <= part.first and part.last <= within.last
