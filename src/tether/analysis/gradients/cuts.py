"""Where values that were computed from trained parameters left the graph, and a loss used them.

No judgement: a target is cut off on purpose. It is the list in which a cut that was not meant
stands too, whether or not the parameters behind it get a gradient by another way. Of each line with
a backward pass the first and the last pass are followed back, over values, to the calls that read
what has a graph and gave what has none.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from tether.analysis.dataflow import Edge, values_read
from tether.analysis.gradients.cut_words import described
from tether.analysis.gradients.graph import Graph
from tether.analysis.gradients.leaving import gives_graph, has_graph, is_view_without
from tether.analysis.history import History, losses_of
from tether.analysis.speaking import Speaker
from tether.analysis.surroundings import WaysThere
from tether.facts import GRAD_ON, Event, Operand, Site, SiteId
from tether.operations.table import operation

MOST_CALLS = 200_000
"""Calls behind one loss that are looked at."""

MOST_CALLS_OF_A_LINE = 50
"""Calls of one line whose graph is followed back to parameters."""

MOST_OF_ITS_OWN = 64
"""Calls behind the value of a parameter that are asked whether they read another one."""


class ActedCut(NamedTuple):
    """The cuts of one line."""

    site: Site  # the call that cuts, or the switch by which gradients are off there
    what: str  # "`x.detach()` shares the values but not the graph"
    names: tuple[str, ...]  # of the parameters that the values were computed from
    callers: tuple[Site, ...]  # from where that line was reached, the nearest first
    entered: Site  # the first line where the values went into the graph of a loss
    loss: Site
    meant: bool  # the program's own line asks for it: detach(), no_grad()


class Met(NamedTuple):
    """One call that cuts, and the loss that used what it gave: positions."""

    cut: int
    entered: int  # the call by which its values joined the graph of the loss
    loss: int


class _Way(NamedTuple):
    """A call on the way back from a loss."""

    at: int
    entered: int  # the call by which its values joined the graph of the loss
    numbers: bool = False  # what it gave was made numbers, and did not choose among others
    chooses: bool = False  # what it gave went into truths or places that choose

    def joined(self, other: _Way) -> _Way:
        """Return the two ways to one call as one: what it gave is used as soon as one uses it."""
        return _Way(
            self.at,
            min(self.entered, other.entered),
            self.numbers or other.numbers,
            self.chooses and other.chooses,
        )


class _Waiting:
    """Ways on from a loss, the latest call first: all that used what it gave come before it."""

    def __init__(self, ways: Iterable[_Way]) -> None:
        self._ways: dict[int, _Way] = {}
        self._calls: list[int] = []
        for one in ways:
            self.add(one)

    def add(self, way: _Way) -> None:
        """Take one more way; of those to one call only all together count."""
        if way.at < 0:
            return
        known = self._ways.get(way.at)
        if known is None:
            heapq.heappush(self._calls, -way.at)
        self._ways[way.at] = way if known is None else known.joined(way)

    def __iter__(self) -> Iterator[_Way]:
        while self._calls:
            yield self._ways[-heapq.heappop(self._calls)]


class Cuts:
    """The cuts of a history: those that no line asks for first, then in the program's order."""

    def __init__(self, history: History, found: Iterable[ActedCut] | None = None) -> None:
        """Find the cuts, or take those that were `found` before."""
        self._history = history
        self.found = sorted(self._all(), key=lambda one: one.meant) if found is None else [*found]

    def _all(self) -> Iterator[ActedCut]:
        groups: dict[SiteId | Site, list[Met]] = defaultdict(list)
        for met in self.met:
            groups[self._history.events[met.cut].site].append(met)
        for some in sorted(groups.values(), key=lambda one: min(met.cut for met in one)):
            found = self._told(some)
            if found is not None:
                yield found

    @cached_property
    def met(self) -> list[Met]:
        """The single calls that cut, by the backward pass whose loss used what they gave."""
        return [met for backward in self._passes() for met in self._behind(backward)]

    @cached_property
    def _trained(self) -> set[int]:
        """What an optimizer holds; where there is none, what gradients were looked for."""
        looks = self._history.trace.gradients
        return self._history.held or {tensor for one in looks for tensor in one.status}

    def _passes(self) -> Iterator[int]:
        """Yield the first and the last backward pass of each line."""
        lines: dict[SiteId, list[int]] = defaultdict(list)
        for at in self._history.backwards:
            if not self._history.events[at].raised:
                lines[self._history.events[at].site].append(at)
        for passes in lines.values():
            yield from dict.fromkeys((passes[0], passes[-1]))

    def _behind(self, backward: int) -> Iterator[Met]:
        """Follow the values of a loss back to where they left the graph."""
        losses = losses_of(self._history.events[backward])
        ends = [one for one in self._history.flow.edges[backward] if one.operand in losses]
        yield from self.behind_calls([edge.source for edge in ends], backward)

    def behind_calls(self, calls: Iterable[int], backward: int) -> Iterator[Met]:
        """Follow the values that some calls gave for a loss back to where they left the graph."""
        events, flow = self._history.events, self._history.flow
        waiting = _Waiting(_Way(at, backward) for at in calls)
        for way in itertools.islice(waiting, MOST_CALLS):
            at = way.at
            if not flow.carries[at]:
                continue
            leaves = self._may_leave[at] and self._leaves(way)
            if leaves:
                yield Met(at, way.entered, backward)
            if not leaves or events[at].grad_mode != GRAD_ON:  # there each layer leaves by itself
                for one in self._before(way):
                    waiting.add(one)

    @cached_property
    def _may_leave(self) -> bytes:
        """For each call whether it read what has a graph and may have given nothing that has one.

        With gradients on what it gave and requires grad has one.
        """
        events = self._history.events
        read, gave = events.graded("reads"), events.graded("results", "writes")
        found: bytes = (read & ~(gave & (events.column("grad_mode") == GRAD_ON))).tobytes()
        return found

    def _leaves(self, way: _Way) -> bool:
        """Whether a call read values that have a graph, and nothing that it gave has one.

        Truths and places count where they become numbers again, not where they choose. The forward
        of a custom Function decides nothing: its `apply` does.
        """
        event = self._history.events[way.at]
        given = (*event.results, *event.writes)
        reads = (event.reads[place] for place in values_read(event))
        read = {one.tensor for one in reads if has_graph(self._history, one)}
        same = read & {one.tensor for one in event.results}  # requires_grad_(): what it was given
        return (
            bool(read and not same)
            and not gives_graph(event)
            and self._has_values_of_leaves(way.at)
            and self._history.inside(event, "function") < 0
            and (
                operation(event.operation).exports
                or any("float" in one.dtype for one in given if not self._chooses(way, one))
                or way.numbers
            )
        )

    def _has_values_of_leaves(self, at: int) -> bool:
        """Whether a call read values that came from a leaf, as far as is known.

        Of a memory that was written in parts each part has the graph, also one with a constant.
        """
        flow, waiting, seen = self._history.flow, [at], {at}
        while waiting:
            at = waiting.pop()
            for edge in flow.edges[at] if flow.carries[at] else ():
                if edge.operand is None or not has_graph(self._history, edge.operand):
                    continue
                if edge.operand.leaf or edge.source < 0 or not flow.carries[edge.source]:
                    return True
                if edge.source not in seen:
                    seen.add(edge.source)
                    waiting.append(edge.source)
        return False

    def _edges(self, at: int) -> Iterator[Edge]:
        """Yield what went into a call, but for what a parameter had got of itself.

        And but for what may not have gone there: another caller's value, or another field.
        """
        flow = self._history.flow
        return (
            one
            for one in flow.edges[at]
            if not self._gives_back(one)
            and (one.operand is not None or (one.source, at) not in flow.doubtful)
        )

    def _gives_back(self, edge: Edge) -> bool:
        """Whether a parameter had got its own values, in other memory, as a moved module's do."""
        taken = edge.operand
        if taken is None or not taken.leaf or edge.source < 0:
            return False
        if not taken.requires_grad and taken.tensor not in self._trained:  # frozen for this loss
            return False
        events, flow = self._history.events, self._history.flow
        behind = (events[at] for at in (edge.source, *flow.behind(edge.source, MOST_OF_ITS_OWN)))
        read = {int(one.tensor) for event in behind for one in event.reads}
        return read & self._trained <= {taken.tensor}

    def _chooses(self, way: _Way, given: Operand) -> bool:
        """Whether a call gave a view alone, and that went into what chooses among others."""
        return way.chooses and is_view_without(self._history.events[way.at], given)

    def _before(self, way: _Way) -> Iterator[_Way]:
        """Yield where a call's values came from, each with the call that took it into the graph."""
        event = self._history.events[way.at]
        if event.operation == "step" or event.is_backward:
            return
        joins, whole = _goes_back(event), _gives_no_float(event)
        chooses = (way.chooses or whole) and not way.numbers
        numbers = (way.numbers and whole) or operation(event.operation).copies in ("cast", "move")
        for edge in self._edges(way.at):
            entered = way.at if joins and self._comes_in(edge) else way.entered
            yield _Way(edge.source, entered, numbers, chooses and not numbers)

    def _comes_in(self, edge: Edge) -> bool:
        """Whether what went into a call has no graph behind it: none, or it is a leaf."""
        taken = edge.operand
        return taken is None or taken.leaf or not has_graph(self._history, taken)

    def _told(self, some: list[Met]) -> ActedCut | None:
        """Return the cuts of one line; None where nothing that is trained lies behind them."""
        history = self._history
        calls = self._unlike(met.cut for met in some)
        behind = set[int]().union(*map(history.get(Graph).leaves_behind, calls))
        tensors = sorted(behind & self._trained, key=self._order)
        if not tensors:
            return None
        first = min(some, key=lambda one: (one.loss, one.entered, one.cut))
        cut, event = described(history, first.cut), history.events[first.cut]
        site = history.site(cut.site)
        names = dict.fromkeys(history.name_of(one) for one in tensors)
        return ActedCut(
            site, Speaker(history, site).said(cut.what), tuple(names),
            tuple(history.get(WaysThere).callers(event.site, (first.cut,))),
            history.site_of(history.events[first.entered]),
            history.site_of(history.events[first.loss]),
            history.site(event.inner).user and _asked_for(event),
        )  # fmt: skip

    def _unlike(self, calls: Iterable[int]) -> list[int]:
        """Return the first calls of those that read the same leaves, and nothing else, and others.

        A line that goes through all parameters again and again reads each of them in few.
        """
        found: dict[object, int] = {}
        others = 0
        for at in dict.fromkeys(calls):
            reads = self._history.events[at].reads
            leaves = all(one.leaf for one in reads)
            others += not leaves
            if leaves or others <= MOST_CALLS_OF_A_LINE:
                found.setdefault(frozenset(one.tensor for one in reads) if leaves else at, at)
        return [*found.values()]

    def _order(self, tensor: int) -> int:
        return self._history.order.get(tensor, len(self._history.order) + tensor)


def _goes_back(event: Event) -> bool:
    """Whether a graph leads back from what a call gave: none does from a leaf that it made."""
    given = (*event.results, *event.writes)
    return gives_graph(event) and not all(one.leaf for one in given if one.requires_grad)


def _gives_no_float(event: Event) -> bool:
    """Whether all that a call gave are whole numbers or truths, or Python's own."""
    return not any("float" in one.dtype for one in (*event.results, *event.writes))


def _asked_for(event: Event) -> bool:
    """Whether a call, or a block that it stands in, has no other use than to leave the graph."""
    return operation(event.operation).cuts or event.grad_mode != GRAD_ON
