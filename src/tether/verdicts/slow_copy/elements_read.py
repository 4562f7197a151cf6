"""How many elements of a memory calls read in a stretch of the run, and how few they wrote.

What only shows a memory as another tensor reads none, nor does a call that puts other values in
their place. What gives some elements as they are reads as many as it gives.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from tether.analysis.history import History
from tether.facts import Event, Operand, TensorId
from tether.operations.table import ALL, operation


class _Use(NamedTuple):
    at: int
    read: int  # elements
    written: int  # elements that were given other values, by a call that says which


class ElementsRead:
    """What calls read of each memory that is asked for."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._known: dict[int, tuple[list[_Use], list[int]]] = {}
        self._saves: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for at, _ in history.events.where("save".__eq__):
            for one in history.saved(at):
                self._saves[history.flow.memory(one)].append((at, elements(one)))

    def between(self, operand: Operand, after: int, until: float) -> int:
        """Return how many elements of a memory were read after one event and before another.

        An element that two calls read counts twice.
        """
        uses, totals = self._uses(operand)
        first = bisect_right(uses, after, key=_at)
        last = max(bisect_left(uses, until, key=_at), first)
        return totals[last] - totals[first]

    def least_written(self, operand: Operand, after: int, until: float) -> int:
        """Return the elements of the smallest part of a memory that was given other values; or 0.

        By a call between two events that leaves nothing of the old ones, wherever it writes.
        """
        uses, _ = self._uses(operand)
        first, last = bisect_right(uses, after, key=_at), bisect_left(uses, until, key=_at)
        return min((one.written for one in uses[first:last] if one.written), default=0)

    def _uses(self, operand: Operand) -> tuple[list[_Use], list[int]]:
        memory = self._history.flow.memory(operand)
        if memory not in self._known:
            events = self._history.events
            uses = [self._use(at, events[at], memory) for at in self._history.on_memory(memory)]
            uses += [_Use(at, count, 0) for at, count in self._saves.get(memory, ())]
            uses.sort(key=_at)
            self._known[memory] = uses, list(accumulate((one.read for one in uses), initial=0))
        return self._known[memory]

    def _use(self, at: int, event: Event, memory: int) -> _Use:
        """Return what one call read and wrote of a memory."""
        row = operation(event.operation)
        read, written = (self._on(memory, some) for some in (event.reads, event.writes))
        if event.raised or not read or _reads_no_values(event, read[0]):
            return _Use(at, 0, 0)
        named = bool(event.named or row.overwrites)
        if named or (row.places and row.part):
            read = _without(read, {one.tensor for one in written})
        counted = sum(_looked_at(event, one) for one in read)
        return _Use(at, counted, min(map(elements, written), default=0) if named else 0)

    def _on(self, memory: int, operands: Sequence[Operand]) -> list[Operand]:
        return [one for one in operands if self._history.flow.memory(one) == memory]


def _without(read: list[Operand], targets: set[TensorId]) -> list[Operand]:
    """Return what was read beside the targets of a call, each of which is an argument once."""
    kept = []
    for one in read:
        if one.tensor in targets:
            targets.remove(one.tensor)
        else:
            kept.append(one)
    return kept


def elements(operand: Operand) -> int:
    """Return how many elements an operand has."""
    return math.prod(operand.shape)


def _at(use: _Use) -> int:
    return use.at


def _reads_no_values(event: Event, operand: Operand) -> bool:
    """Whether a call only shows a memory as another tensor, or asks how it lies."""
    row = operation(event.operation)
    if event.writes or row.leaves:
        return False
    return bool(row.strides or row.template == ALL or event.shows(operand))


def _looked_at(event: Event, operand: Operand) -> int:
    """Return how many elements of an operand a call reads: what picks, those that it gives."""
    row = operation(event.operation)
    picks = row.picks and not row.pools and operand.tensor == event.reads[0].tensor
    if picks and len(event.results) == 1 and event.results[0].dtype == operand.dtype:
        return min(elements(operand), elements(event.results[0]))
    return elements(operand)
