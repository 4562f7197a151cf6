"""Which lines compute with the values of the tensors that are trained, and which only keep them."""

from __future__ import annotations

from collections import defaultdict
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


class Uses:
    """The calls to which values went, once an optimizer held some.

    To be initialised, or sent to the other ranks as it is, is no use. To be copied, moved or saved
    is none either: what is made of a cast, or of a detached tensor, is.
    """

    def __init__(self, history: History) -> None:
        first = min((history.position(one.at) for one in history.trace.optimizers), default=0)
        self._sites: dict[int, dict[SiteId, bool]] = defaultdict(dict)  # -> is it in the graph?
        self._first: dict[tuple[int, bool], Use] = {}
        self.kept: dict[int, SiteId] = {}  # the first line that copies, moves or saves it
        self._history = history
        of: dict[int, int] = {one: one for one in history.held | history.asked.keys()}
        for at in range(max(first, 0), len(history.events)):
            event = history.events[at]
            if history.flow.carries[at] and (event.results or operation(event.operation).leaves):
                self._note(at, event, of)

    def _note(self, at: int, event: Event, of: dict[int, int]) -> None:
        """Take note of a call that tensors, or their values in another format, went into."""
        keeps = _only_keeps(event)
        for given in _used(event) & of.keys():
            if not keeps:
                self._use(of[given], Use(at, given), event)
                continue
            self.kept.setdefault(of[given], event.site)
            if operation(event.operation).same:
                of.update((int(one.tensor), of[given]) for one in event.results)

    def _use(self, tensor: int, use: Use, event: Event) -> None:
        graph = any(one.requires_grad for one in event.results)
        self._first.setdefault((tensor, graph), use)
        known = self._sites[tensor]
        if event.site in known or len([one for one in known.values() if one == graph]) < MOST_LINES:
            known[event.site] = known.get(event.site, False) or graph

    def any(self, tensor: int) -> bool:
        """Whether some call computes with a tensor."""
        return tensor in self._sites

    def lines(self, tensor: int) -> list[Site]:
        """Return the first lines that do, those first that make a part of a graph."""
        known = self._sites.get(tensor, {})
        ordered = sorted(known, key=lambda one: not known[one])[:MOST_LINES]
        return [self._history.site(one) for one in ordered]

    def first(self, tensor: int) -> Use | None:
        """Return the first call that does, one that makes a part of a graph if there is one."""
        return self._first.get((tensor, True)) or self._first.get((tensor, False))


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
