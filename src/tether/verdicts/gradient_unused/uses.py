"""Which lines compute with the values of the tensors that are trained, and which only keep them."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import UNKNOWN, Event, Site, SiteId
from tether.operations.table import operation

MOST_LINES = 2
"""Lines that are kept of one tensor."""


class Use(NamedTuple):
    """A call that computes with the values of a tensor."""

    at: int
    given: int  # the tensor that the call was given: itself, or its values in another format


class _UsesOf:
    """The calls to which the values of one tensor went."""

    def __init__(self) -> None:
        self.sites: dict[SiteId, bool] = {}  # -> is it in the graph?
        self.first: dict[bool, Use] = {}
        self.kept = SiteId(UNKNOWN)  # the first line that copies, moves or saves it

    def note(self, use: Use, event: Event) -> None:
        """Take note of a call that computes with the values."""
        graph = any(one.requires_grad for one in event.results)
        self.first.setdefault(graph, use)
        alike = sum(one == graph for one in self.sites.values())
        if event.site in self.sites or alike < MOST_LINES:
            self.sites[event.site] = self.sites.get(event.site, False) or graph


class Uses:
    """The calls to which the values of a tensor went, once an optimizer held some.

    To be initialised, or sent to the other ranks as it is, is no use. To be copied, moved or saved
    is none either: what is made of a cast, or of a detached tensor, is.
    """

    def __init__(self, history: History) -> None:
        first = min((history.position(one.at) for one in history.trace.optimizers), default=0)
        self._since = max(first, 0)
        self._history = history
        self._known: dict[int, _UsesOf] = {}

    def _of(self, tensor: int) -> _UsesOf:
        known = self._known.get(tensor)
        if known is None:
            known = self._known[tensor] = self._looked_up(tensor)
        return known

    def _looked_up(self, tensor: int) -> _UsesOf:
        """Follow a tensor, and its values in another format, from call to call in their order."""
        found, alike, waiting = _UsesOf(), {tensor}, list[int]()
        self._wait_for(waiting, tensor, self._since)
        last = UNKNOWN
        while waiting:
            at = heapq.heappop(waiting)
            event = self._history.events[at]
            gives = bool(event.results or operation(event.operation).leaves)
            if at == last or not gives or not self._history.flow.carries[at]:
                continue
            last, used = at, _used(event) & alike
            if used and not _only_keeps(event):
                found.note(Use(at, min(used)), event)
            elif used:
                found.kept = event.site if found.kept == UNKNOWN else found.kept
                same = operation(event.operation).same
                for one in {int(one.tensor) for one in event.results if same} - alike:
                    alike.add(one)
                    self._wait_for(waiting, one, at + 1)
        return found

    def _wait_for(self, waiting: list[int], tensor: int, since: int) -> None:
        for at in self._history.reads_of(tensor):
            if at >= since:
                heapq.heappush(waiting, at)

    def any(self, tensor: int) -> bool:
        """Whether some call computes with a tensor."""
        return bool(self._of(tensor).sites)

    def lines(self, tensor: int) -> list[Site]:
        """Return the first lines that do, those first that make a part of a graph."""
        known = self._of(tensor).sites
        ordered = sorted(known, key=lambda one: not known[one])[:MOST_LINES]
        return [self._history.site(one) for one in ordered]

    def first(self, tensor: int) -> Use | None:
        """Return the first call that does, one that makes a part of a graph if there is one."""
        first = self._of(tensor).first
        return first.get(True) or first.get(False)

    def kept(self, tensor: int) -> SiteId:
        """Return the first line that copies, moves or saves a tensor; -1 for none."""
        return self._of(tensor).kept


def last_use(history: History, tensor: int) -> int:
    """Return the last call, before the next pass, that its values came to; -1 for none.

    What nothing reads is where the values end: in an argument that a call does not look for, say.
    """
    first = history.get(Uses).first(tensor)
    if first is None:
        return UNKNOWN
    reached, last = {tensor, first.given}, UNKNOWN
    for at in range(first.at, history.next_pass(first.at)):
        event = history.events[at]
        if history.flow.carries[at] and reached.intersection(int(o.tensor) for o in event.reads):
            reached |= {int(one.tensor) for one in event.results}
            last = at
    return last


def _used(event: Event) -> set[int]:
    """Return the tensors whose values went into something else."""
    made = {one.tensor for one in event.writes}
    if len(event.results) == 1:
        made.add(event.results[0].tensor)
    return {int(one.tensor) for one in event.reads} - made


def _only_keeps(event: Event) -> bool:
    """Whether a call gives, or puts somewhere, the very values that it was given, or saves them."""
    row = operation(event.operation)
    if row.leaves:
        return row.leaves == "pickle"
    return row.same or row.wraps or row.rebinds or bool(row.copies)
