"""The runs of the lines that made the same again, and what each run was made of.

Part of `slow-copy`.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

from tether.facts import COMPARED, Event, Operand
from tether.operations.table import operation
from tether.verdicts.slow_copy.on_device import Lines

FAR = 200
"""Calls behind a result that are looked through."""


class Runs:
    """The lines whose results had the same bytes whenever they were compared."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._history = lines.history
        position = self._history.position
        facts = ((position(one.event), one.looked) for one in self._history.trace.repeated)
        self.looked = {at: looked for at, looked in facts if at >= 0}

    @cached_property
    def lines(self) -> set[tuple[str, int]]:
        """The operations and the user's lines of them."""
        return {self._lines.events[at][:2] for at in self.looked}

    @cached_property
    def places(self) -> dict[int, list[int]]:
        """All runs of each line that were of a size to be compared, by the position of its first.

        A line of a library makes small and large tensors in turn, such as a model's parameters.
        """
        events = self._lines.events
        firsts = {_line(events[at]): at for at in self.looked}
        found: dict[int, list[int]] = {at: [] for at in self.looked}
        names = {name for name, *_ in firsts}
        for at, event in events.where(names.__contains__):
            first = firsts.get(_line(event))
            if first is not None and not event.raised and self._is_compared(event):
                found[first].append(at)
        return found

    def _is_compared(self, event: Event) -> bool:
        storages = self._history.trace.storages
        return any(storages[one.storage].nbytes >= COMPARED for one in event.results)

    def own(self, first: int) -> bool:
        """Whether the user's line makes the call itself."""
        event = self._lines.events[first]
        return first in self._lines.by_line.get((event.site, event.operation), ())

    @cached_property
    def made_of(self) -> dict[int, tuple[Operand, ...] | None]:
        """What was there at the run before of which each later run made its result.

        None where that is not known: chance took part, or too many calls.
        """
        return {
            at: self._inputs(before, at)
            for places in self.places.values()
            for before, at in pairwise(places)
        }

    @cached_property
    def memories(self) -> set[int]:
        """All memory that the runs read or gave."""
        memory, events = self._history.flow.memory, self._lines.events
        read = (one for found in self.made_of.values() for one in found or ())
        places = (at for places in self.places.values() for at in places)
        made = (one for at in places for one in events[at].results)
        return {memory(one) for one in (*read, *made)}

    def _inputs(self, before: int, at: int) -> tuple[Operand, ...] | None:
        """Return the operands from before an earlier run that a run's result was computed of."""
        events, edges = self._lines.events, self._history.flow.edges
        found: dict[int, Operand] = {}
        waiting, met = [at], {at}
        while waiting:
            one = waiting.pop()
            if not self._is_certain(one) or len(met) >= FAR:
                return None
            for source, operand in edges[one]:
                if source > before and source not in met:
                    met.add(source)
                    waiting.append(source)
                elif source <= before:
                    if operand is None:
                        return None
                    found[operand.tensor] = operand
            for operand in events[one].reads if not edges.sources(one) else ():
                found[operand.tensor] = operand
        return tuple(found.values())

    def _is_certain(self, at: int) -> bool:
        """Whether a call gives the same of the same, as far as its name tells."""
        event = self._lines.events[at]
        row = operation(event.operation)
        if row.random or not row.known:
            return False
        return bool(event.reads) or row.fresh or row.enters


def _line(event: Event) -> tuple[str, int, int]:
    return event.operation, event.site, event.inner
