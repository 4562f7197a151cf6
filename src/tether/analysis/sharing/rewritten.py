"""Arrays that PyTorch read, that NumPy code wrote, and that PyTorch read again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Holder, Rewritten, Site
from tether.source.array_writes import array_writes


class RewrittenArray(NamedTuple):
    """One array's memory at two calls, with other bytes."""

    before: int  # position of the call that made a tensor of it first
    read: int  # position of the call that found other bytes
    times: int
    names: tuple[str, ...]  # by which the program reaches the array, attributes first
    perhaps: tuple[Site, ...]  # statements that may have written it
    part_of: str  # the attribute or slot of an array that has it as a part; "": none was met


class RewrittenArrays:
    """All of them, in the order of the events."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._holders: dict[int, list[Holder]] = defaultdict(list)  # event -> arrays
        self._of_site: dict[int, list[Holder]] = {}
        for one in history.trace.holders if history.trace.rewritten else ():
            if one.tensor == UNKNOWN and one.sought == "given":
                self._holders[one.event].append(one)
        for event, some in self._holders.items():
            at = history.position(event)
            if 0 <= at < len(history.events):
                self._of_site.setdefault(history.events[at].site, some)
        told = [self._told(fact) for fact in history.trace.rewritten]
        self.all = sorted(one for one in told if one is not None)

    def _told(self, fact: Rewritten) -> RewrittenArray | None:
        history = self._history
        before, read = history.position(fact.since), history.position(fact.event)
        if not 0 <= before < read < len(history.events):
            return None
        event = history.events[read]
        memory = history.flow.memory(event.results[0])
        writes = history.get(Sharing).writes.get(memory)
        if any(before < one.at < read for one in writes):
            return None  # a call of PyTorch's did it
        holders = self._holders.get(fact.event) or self._of_site.get(event.site, [])
        names = sorted((one.name for one in holders), key=lambda name: "." not in name)
        wholes = (one.name for one in holders if one.part and one.kind != "variable")
        return RewrittenArray(
            before, read, fact.times, tuple(dict.fromkeys(names)), self.perhaps(holders),
            next(wholes, ""),
        )  # fmt: skip

    def perhaps(self, holders: Iterable[Holder]) -> tuple[Site, ...]:
        """Return the statements that may have written an array, those of PyTorch's left out."""
        return self.written_as({(one.function, one.name) for one in holders})

    def written_as(self, names: Collection[tuple[str, str]]) -> tuple[Site, ...]:
        """Return the statements that may have written what some functions' variables have."""
        found = array_writes(self._history.trace.sources, names) if names else []
        return tuple(one for one in found if (one.file, one.line) not in self._heard)

    @cached_property
    def _heard(self) -> set[tuple[str, int]]:
        """The lines at which a call of PyTorch wrote."""
        history = self._history
        calls = history.get(Sharing).writes.calls()
        sites = np.unique(history.events.column("site")[calls]).tolist()
        return {(one.file, one.line) for one in map(history.site, sites)}
