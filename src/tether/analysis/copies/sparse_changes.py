"""What changes a sparse tensor beside writes to the memory that it shows, that of its values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.history import History
from tether.operations.table import operation


class SparseChange(NamedTuple):
    """A call that changes what a sparse tensor says."""

    at: int
    indices: bool  # it writes where the values stand, and not the values


class SparseChanges:
    """The calls that gave a sparse tensor other memory, or wrote its indices."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._of: dict[int, list[SparseChange]] = defaultdict(list)
        for tensor, at in self._moved():
            self._of[tensor].append(SparseChange(at, indices=False))
        for at, event in history.events.where(lambda name: operation(name).indices):
            for one in event.results if event.reads else ():
                for write in history.writes_to(one, at):
                    found = SparseChange(write, indices=True)
                    self._of[event.reads[0].tensor].append(found)

    def after(self, tensor: int, position: int) -> SparseChange | None:
        """Return the first change of a tensor after a call."""
        later = (one for one in self._of.get(tensor, ()) if one.at > position)
        return min(later, default=None)

    def _moved(self) -> Iterator[tuple[int, int]]:
        """Yield each tensor with the calls that wrote it and left it on other memory.

        A write in place gives a sparse tensor new values; of another one it goes into its memory.
        """
        events = self._history.events
        tensor, storage = (events.operands.column(one) for one in ("tensor", "storage"))
        replacing = events.called(lambda name: bool(operation(name).replaces))
        at, rows = events.touched("writes")
        kept = ~replacing[at]
        at, rows = at[kept], rows[kept]
        before, read = events.touched("reads")
        near = np.isin(before, at)
        before, read = before[near], read[near]
        if not len(before):
            return
        most = int(tensor.max(initial=0)) + 2
        given = before.astype(np.int64) * most + tensor[read]
        order = np.argsort(given, kind="stable")
        wanted = at.astype(np.int64) * most + tensor[rows]
        place = np.minimum(np.searchsorted(given[order], wanted), len(order) - 1)
        found = order[place]
        moved = (given[found] == wanted) & (storage[read[found]] != storage[rows])
        yield from zip(tensor[rows[moved]].tolist(), at[moved].tolist(), strict=True)
