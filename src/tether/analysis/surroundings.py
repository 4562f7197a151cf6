"""Where a reader should look beside the line itself: who called it, what decides about it."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator

import numpy as np

from tether.analysis.gradients.graph import Graph
from tether.analysis.history import History, losses_of
from tether.facts import MOST_REACHED, UNKNOWN, Site, SiteId
from tether.finding import Step, say
from tether.operations.table import operation
from tether.source.reading import (
    answering,
    blocks_around,
    callers_of,
    deciders,
    mentions,
    stores_of,
)
from tether.source.syntax import Source, source_of

MOST = 3
"""Lines that one answer names."""

CALLED = say("called from here")
_THIS_WAY = say("its values go this way into the loss")
_MOST_CALLS = 10_000
"""Calls of one line whose ways are asked for."""


class Surroundings:
    """The lines around those that facts speak of."""

    def __init__(self, history: History) -> None:
        self._history = history
        sites = history.trace.sites
        self._callers = {
            sites[one.site].position: [sites[above] for above in one.above]
            for one in history.trace.callers
        }

    def source(self, file: str) -> Source:
        """Return the text of a file, as far as it is kept with the trace."""
        return source_of(file, self._history.trace.sources.get(file, ""))

    def callers(self, site: Site) -> list[Site]:
        """Return the lines from which a line was first reached."""
        return self._callers.get(site.position, [])[:MOST]

    def calls(self, site: Site) -> Iterator[Step]:
        """Yield the lines of the text that call the function which a line stands in."""
        if site.function in ("", "<module>") or site.function.endswith("forward"):
            return
        for line in callers_of(self.source(site.file), site.function):
            said = say("{function} is called here", function=site.function)
            yield Step("called", at_line(site, line), said)

    def mentioned(self, made: Site, path: str) -> Iterator[Step]:
        """Yield the lines of the text that speak of a module: ``heads`` of ``model.heads.0``."""
        parts = [one for one in path.split(".")[1:] if not one.isdigit()]
        for line in mentions(self.source(made.file), parts[0])[:MOST] if parts else ():
            if line != made.line:
                said = say("`{part}` is spoken of here", part=parts[0])
                yield Step("read", at_line(made, line), said)

    def entering(self, cut: int, backward: int) -> Iterator[Step]:
        """Yield where a value that was cut from the graph goes into that of a loss."""
        for one in self._onward(cut, backward)[-2:]:
            yield Step("used", self._history.events[one].site, _THIS_WAY)

    def onward(self, cut: int, backward: int) -> Iterator[Step]:
        """Yield the first line that uses what a call cut from the graph, and where it joins it."""
        way = self._onward(cut, backward)
        own = self._history.events[cut].site
        lines = [site for at in way if (site := self._history.events[at].site) != own]
        for one in dict.fromkeys([*lines[:1], *lines[-1:]]):
            yield Step("used", one, _THIS_WAY)
        if way and self._is_sum_on(way[-1], self._history.site(own)):
            yield from self._taken_up(way[-1], backward)

    def _is_sum_on(self, at: int, line: Site) -> bool:
        """Whether a call of a line adds values of one place: its derivative needs none of them."""
        event = self._history.events[at]
        needs = [*self._history.get(Graph).saved(at, unchecked=True)]
        pointwise = operation(event.operation).pointwise and len(event.reads) > 1
        return pointwise and not needs and self._history.site_of(event).row == line.row

    def _taken_up(self, joined: int, backward: int) -> Iterator[Step]:
        """Yield the lines of the loss's graph that use what one line cut off and added to another.

        A value that goes straight through has what it was cut from at its back in each of them.
        """
        graph = self._history.get(Graph).behind(backward)
        results = self._history.events[joined].results
        readers = (at for one in results for at in self._history.readers(one, joined))
        lines = {self._history.events[at].site: None for at in readers if at in graph}
        for site in list(lines)[:MOST]:
            yield Step("used", site, say("and what it was added to is used here"))

    def _onward(self, cut: int, backward: int) -> list[int]:
        """Return a way of calls from one that cut to the first that the graph of a loss has."""
        graph, flow = self._history.get(Graph).behind(backward), self._history.flow
        came = {cut: UNKNOWN}
        for at in range(cut + 1, backward):
            source = next((one for one in flow.edges.sources(at) if one in came), UNKNOWN)
            if source == UNKNOWN or not (flow.carries[at] or at in graph):
                continue
            came[at] = source
            if at in graph:
                way = [at]
                while came[way[-1]] not in (UNKNOWN, cut):
                    way.append(came[way[-1]])
                return [cut, *reversed(way)] if len(way) == 1 else way[::-1]
        return []

    def deciding(self, site: Site) -> Iterator[Step]:
        """Yield the conditions in the text that decide whether a line is reached."""
        for line in deciders(self.source(site.file), site.line)[:MOST]:
            yield Step("mode", at_line(site, line), say("this decides whether it is reached"))

    def around_both(self, first: Site, second: Site) -> Iterator[Step]:
        """Yield the `with` statements that are around both of two lines, or lines they came from.

        A context may keep what was computed within it.
        """
        others = self._contexts(second)
        for place in self._contexts(first):
            if place in others:
                yield Step("mode", place, say("this block is around the pass and the step"))

    def _contexts(self, site: Site) -> list[Site]:
        return [
            Site(one.file, line, end_line=line, user=one.user)
            for one in (site, *self._callers.get(site.position, ()))
            for line in blocks_around(self.source(one.file), one.line)
        ]

    def rates_stored(self) -> Iterator[Step]:
        """Yield the lines of the text that store a learning rate: such a store is no call."""
        for file in self._history.trace.sources:
            for line in stores_of(self.source(file), "lr")[:MOST]:
                place = Site(file, line, end_line=line)
                yield Step("rate", place, say("the program stores a learning rate here"))

    def leading(self, site: Site) -> Iterator[Step]:
        """Yield the conditions that lead to a line, or to the lines that call its function.

        And what gives the nearest its answer.
        """
        source = self.source(site.file)
        name = getattr(source.function_around(site.line), "name", "")
        lines = [site.line, *(callers_of(source, name) if name else ())]
        conditions = next(filter(None, (deciders(source, one) for one in lines)), [])[-MOST:]
        for line in conditions:
            yield Step("mode", at_line(site, line), say("this decides whether it is reached"))
        for line in answering(source, conditions[-1])[:MOST] if conditions else ():
            yield Step("mode", at_line(site, line), say("its answer depends on this"))

    def loss(self, backward: int) -> Iterator[Step]:
        """Yield the lines at which the loss of a backward pass was put together."""
        graph, events = self._history.get(Graph), self._history.events
        waiting = [
            at for one in losses_of(events[backward]) for at in graph.makers_of(one, backward)
        ]
        told: dict[int, None] = {}
        for _ in range(MOST):
            told |= dict.fromkeys(events[at].site for at in waiting)
            waiting = [parent for at in waiting for parent in graph.parents(at)]
        places = {one.position[:2]: one for one in map(self._history.site, reversed(told))}
        for place in list(reversed(places.values()))[:MOST]:
            yield Step("loss", place, say("the loss is computed here"))


def at_line(site: Site, line: int) -> Site:
    """Return a whole line of a site's file."""
    function = site.function if line == site.line else ""
    return Site(site.file, line, end_line=line, function=function, user=site.user)


# -- ways ------------------------------------------------------------------------------------------
# By which way a call was reached: the lines of the functions that were running, and which asked. A
# value that one call of a function hands on and another one takes is told by the lines of the
# function that saw both: the program's own loop, and not a layer's forward.


class WaysThere:
    """The lines above each call."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._first: dict[int, tuple[SiteId, ...]] = {
            one.site: one.above for one in history.trace.callers
        }
        self._later: dict[int, list[tuple[int, tuple[SiteId, ...]]]] = defaultdict(list)
        reached = history.trace.reached
        for fact in reached:
            self._later[fact.site].append((fact.at, fact.above))
        self._known = reached[-1].at if len(reached) >= MOST_REACHED else history.trace.ended

    def callers(self, number: int, calls: Iterable[int] = ()) -> list[Site]:
        """Return the lines from which some calls came to a line, the nearest first.

        The line is theirs, or one above theirs. Of a line without any calls its one way, if it was
        never reached by another.
        """
        ways = {self._from(number, at): None for at in itertools.islice(calls, _MOST_CALLS)}
        if not ways and number not in self._later:
            ways = {self._first.get(number, ()): None}
        by_depth = itertools.zip_longest(*ways)
        lines = dict.fromkeys(one for some in by_depth for one in some if one is not None)
        return [self._history.site(one) for one in lines][:MOST]

    def calls(self, number: int, tensors: Collection[int]) -> list[int]:
        """Return the calls of a line that met one of some tensors."""
        events = self._history.events
        at, rows = events.touched()
        met = np.isin(events.operands.column("tensor"), list(tensors))[rows]
        found: list[int] = np.unique(at[met & (events.column("site")[at] == number)]).tolist()
        return found

    def _from(self, number: int, at: int) -> tuple[SiteId, ...]:
        """Return the lines above one on the way to a call."""
        way = (self._history.events[at].site, *self.above(at))
        return way[way.index(number) + 1 :] if number in way else ()

    def asked_from(self, number: int, calls: Iterable[int] = ()) -> Iterator[Step]:
        """Yield the line of another function from which some calls came to a line."""
        own = self._history.site(number).function
        for one in [one for one in self.callers(number, calls) if one.function != own][:1]:
            yield Step("called", one, CALLED)

    def above(self, at: int) -> tuple[SiteId, ...]:
        """Return the user's lines from which a call was reached, the nearest first, if known."""
        site, moment = self._history.events[at].site, self._history.trace.event_id(at)
        later = self._later.get(site, ())
        number = bisect_right(later, moment, key=lambda one: one[0])
        if moment > self._known:
            return ()
        return later[number - 1][1] if number else self._first.get(site, ())

    def of_what_made(self, tensor: int) -> list[Site]:
        """Return the line that made a tensor, and those from which it was reached."""
        made = self._history.made_at(tensor)
        if made < 0:
            return []
        lines = (self._history.events[made].site, *self.above(made))
        return [self._history.site(one) for one in lines]

    def ways(self, number: SiteId) -> list[tuple[int, tuple[SiteId, ...]]]:
        """Return the ways to a line, each with the position from which on it was reached by it."""
        position = self._history.position
        later = [(position(at), above) for at, above in self._later.get(number, ())]
        return [(0, self._first.get(number, ())), *later]

    def seen_by(self, at: int, *others: int) -> SiteId:
        """Return the line of a call in the nearest function that ran for other calls as well.

        Its own line where there is none.
        """
        ways = [self._lines(one) for one in (at, *others)]
        common = set(ways[0]).intersection(*ways[1:])
        own = self._history.events[at].site
        # In the last of the others: the pass runs in the function that all of it is for.
        return next((ways[0][one] for one in ways[-1] if one in common), own)

    def _lines(self, at: int) -> dict[tuple[str, str, int], SiteId]:
        """Return a call's line in each function that was running, the nearest first."""
        lines: dict[tuple[str, str, int], SiteId] = {}
        for number in (self._history.events[at].site, *self.above(at)):
            place = self._history.site(number)
            lines.setdefault(place.definition, number)
        return lines
