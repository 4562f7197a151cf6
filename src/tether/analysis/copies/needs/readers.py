"""Which calls read a copy, and which do something else with it."""

from __future__ import annotations

from collections import defaultdict

from tether.analysis.copies.already_there import Copied
from tether.analysis.copies.needs.index import CopyIndex
from tether.analysis.copies.needs.words import CopyQuestion
from tether.analysis.training.rates import LOADS
from tether.facts import Event, SiteId
from tether.operations.table import operation


class CopyReaders(CopyQuestion):
    """Whether a copy was read, handed on, or only written and shown."""

    def __init__(self, index: CopyIndex) -> None:
        super().__init__(index)
        self._known_readers: dict[int, tuple[dict[int, list[int]], list[int]]] = {}
        self._known_heard: dict[SiteId, bool] = {}

    def heard(self, copied: Copied) -> bool:
        """Whether a call is heard that reads what the line made once, or a part of it.

        What no run of the line hands to a call that is heard is read in a way that is not.
        """
        site = self._index.event(copied).site
        if site not in self._known_heard:
            self._known_heard[site] = any(map(self.was_read, self._index.runs[site]))
        return self._known_heard[site]

    def was_read(self, copied: Copied) -> bool:
        """Whether a call after a copy was made did more than write or show it."""
        memory = self._flow.memory(copied.copy)
        return not all(self.reads_nothing(one, memory) for one in self._index.afterwards(copied))

    def was_handed_on(self, copied: Copied) -> bool:
        """Whether a call gave a view of a copy, or the copy itself, and did not write it.

        Not what the copying itself goes on to make of it: a deep copy makes it a Parameter.
        """
        memory, own = self._flow.memory(copied.copy), self._index.event(copied).site
        return any(
            self._flow.memory(one) == memory
            for event in self._index.afterwards(copied)
            if event.site != own
            for one in event.results
            if all(one.tensor != written.tensor for written in event.writes)
        )

    def reads_nothing(self, event: Event, memory: int) -> bool:
        """Whether an event gives or writes nothing but a memory, if it was given that at all.

        What an optimizer loads its steps read.
        """
        if event.operation == LOADS and event.results:
            return False
        given = any(self._flow.memory(one) == memory for one in event.reads)
        out = {self._flow.memory(one) for one in (*event.results, *event.writes)}
        if (given and _changes_object(event)) or self.trains(event, memory):
            return False
        return not given or out == {memory}

    def trains(self, event: Event, memory: int) -> bool:
        """Whether an optimizer holds what an event was given or gave of a memory."""
        held = (one for one in (*event.reads, *event.results) if one.tensor in self._index.held)
        return any(self._flow.memory(one) == memory for one in held)

    def by_thread(self, tensor: int) -> tuple[dict[int, list[int]], list[int]]:
        """Return the reads of a tensor by thread, and those that a transfer goes on with."""
        known = self._known_readers.get(tensor)
        if known is None:
            threads: dict[int, list[int]] = defaultdict(list)
            reads, events = self._index.reads[tensor], self._history.events
            for at in reads:
                threads[events[at].thread].append(at)
            transfers = [at for at in reads if events[at].non_blocking]
            known = self._known_readers[tensor] = (threads, transfers)
        return known

    def only_computes(self, event: Event, memory: int) -> bool:
        """Whether an event does nothing to the memory of a model, or its tensors as such."""
        changes = _changes_object(event) or event.kind >= 0
        return not (changes or self.trains(event, memory))


def _changes_object(event: Event) -> bool:
    """Whether a call does something to the object, which would be another without the copy."""
    row = operation(event.operation)
    return bool(row.own) or (bool(row.replaces) and not row.makes)
