"""The lives of memories, as columns: when each was there, and how large it is."""

from __future__ import annotations

import numpy as np

from tether.analysis.history import History
from tether.facts import UNKNOWN
from tether.store.lives import storages_of
from tether.store.numbers import Numbers, narrow


class Blocks:
    """A line for each memory, in the order of their numbers; storages on one array are one."""

    def __init__(self, history: History) -> None:
        storages = storages_of(history.trace.storages)
        numbers = history.flow.memories(storages.column("serial"))
        self.numbers, line = np.unique(numbers, return_inverse=True)
        self._line = line.astype(np.int32)
        freed, self._after = storages.column("freed"), len(history.events) + 1
        ends = np.where(freed < 0, self._after, history.positions(freed))
        self.born = self._over(np.minimum, history.positions(storages.column("born")), self._after)
        """The position when the first of it was made."""
        self.freed = self._over(np.maximum, ends, UNKNOWN)
        """The position when the last of it was gone; past the last event: alive."""
        self.nbytes = self._over(np.add, storages.column("nbytes"), 0)
        shared = storages.column("memory") != UNKNOWN
        self.exported = self._over(np.logical_or, shared, 0) != 0
        """Whether it has a number because others wrap it as well."""

    def _over(self, join: np.ufunc, values: Numbers, first: int) -> Numbers:
        """Return what some values of the storages are together, for each memory."""
        found = np.full(len(self.numbers), first, np.int64)
        join.at(found, self._line, values)
        return narrow(found)

    @property
    def alive(self) -> Numbers:
        """Whether some of each is alive at the end."""
        found: Numbers = self.freed == self._after
        return found

    def lines(self, memories: Numbers) -> Numbers:
        """Return the line of each of some memories, -1 for one that has none."""
        if not len(self.numbers):
            return np.full(len(memories), UNKNOWN)
        found = np.minimum(np.searchsorted(self.numbers, memories), len(self.numbers) - 1)
        return np.where(self.numbers[found] == memories, found, UNKNOWN)
