"""Copies that NumPy made at a line of the program's: whether any of them was needed.

The recorder has heard the calls, and has seen in memory whether the array or its copy was written
while both lived (`record.arrays.calls`). A copy that outlives a tensor's array is asked about once
more: what is recorded of the tensor's memory says whether anything wrote that.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tether.analysis.copies.memory_lives import MemoryLives
from tether.analysis.copies.needs import FLOOR, read_unseen
from tether.analysis.history import History
from tether.analysis.surroundings import Surroundings
from tether.facts import RUNS_OF_ARRAYS, UNKNOWN, ArrayCall, ArrayLine, Operand, Site
from tether.source.array_writes import array_writes, may_put_back
from tether.source.copied_arrays import ArrayCopyText, array_copied


class CopiedByNumPy(NamedTuple):
    """A line none of whose copies was needed."""

    line: ArrayLine
    calls: list[ArrayCall]
    text: ArrayCopyText


class NumPyCopies:
    """The lines at which NumPy copies arrays for nothing, in the order of their first runs."""

    def __init__(self, history: History) -> None:
        self._history = history
        self.found: list[CopiedByNumPy] = []
        if read_unseen(history):
            return
        self._operands = self._tensors_of({one.storage for one in history.trace.array_calls})
        memories = {history.flow.memory(one) for one in self._operands.values()}
        self._lives = MemoryLives(history, memories)
        calls: dict[int, list[ArrayCall]] = defaultdict(list)
        for call in history.trace.array_calls:
            calls[call.site].append(call)
        for line in history.trace.array_lines:
            self._judge(line, calls[line.site])

    def _tensors_of(self, storages: set[int]) -> dict[int, Operand]:
        """Return a tensor on each storage that gave an array."""
        found = {one: next(self._shown_on(one), None) for one in storages - {UNKNOWN}}
        return {storage: one for storage, one in found.items() if one is not None}

    def _shown_on(self, storage: int) -> Iterator[Operand]:
        """Yield the tensors on a storage that calls were given, or gave."""
        for at in self._history.on_memory(self._history.flow.memory_of(storage)):
            event = self._history.events[at]
            yield from (one for one in (*event.reads, *event.results) if one.storage == storage)

    def _judge(self, line: ArrayLine, calls: list[ArrayCall]) -> None:
        """Keep a line of which no copy was needed, if those that are kept already are left out."""
        left_out = {one.line.site for one in self.found}
        runs = [one for one in calls if one.before == UNKNOWN]
        asked = [one for one in calls if one.before == UNKNOWN or one.before in left_out]
        known = len(runs) >= min(line.runs, RUNS_OF_ARRAYS)
        if line.bytes < FLOOR or not known or not all(map(self._is_needless, asked)):
            return
        site = self._history.site(line.site)
        source = self._history.get(Surroundings).source(site.file)
        text = array_copied(source, site, line.operation)
        if text is not None and not self._may_be_written(site, text):
            self.found.append(CopiedByNumPy(line, runs, text))

    def _may_be_written(self, site: Site, text: ArrayCopyText) -> bool:
        """Whether the text writes into the variable that has the copy, though it changed nothing.

        Or writes the old elements back into the array. What a container is given has no name.
        """
        name, sources = site.target, self._history.trace.sources
        if may_put_back(sources, text.array, name):
            return True
        if not name or not name.replace(".", "").isidentifier():
            return False
        return bool(array_writes(sources, [(site.function, name)]))

    def _is_needless(self, call: ArrayCall) -> bool:
        if not call.alike or call.taker:
            return call.alike
        if call.changed != "no" or self._lets_go(call):
            return False
        return call.storage == UNKNOWN or not self._differs_later(call)

    def _lets_go(self, call: ArrayCall) -> bool:
        """Whether a larger memory goes while the copy of a part of it lives on."""
        if call.released == UNKNOWN or call.beside <= min(FLOOR, call.nbytes):
            return False
        return call.gone == UNKNOWN or call.released < call.gone

    def _differs_later(self, call: ArrayCall) -> bool:
        """Whether a tensor and the copy of its array go different ways once the array has gone.

        The tensor is written while the copy lives; or the copy is, and the tensor is read.
        """
        tensor = self._operands.get(call.storage)
        if tensor is None or call.released == UNKNOWN:
            return tensor is None  # the array lives as long: the bytes of both were compared
        history, until = self._history, math.inf
        if call.gone != UNKNOWN:
            until = history.position(call.gone)
        if any(self._lives.written(tensor, history.position(call.moment) - 1, until)):
            return True
        since = history.position(call.released)
        return call.rewritten and any(at >= since for at in history.on_storage(tensor))


def copied_by_numpy(history: History) -> Iterator[CopiedByNumPy]:
    """Yield the lines none of whose copies was needed."""
    yield from history.get(NumPyCopies).found
