"""What happened to each of many things, and when: looked up by a time, made without objects."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

import numpy as np

from tether.facts import UNKNOWN
from tether.store.columns import Numbers


class Log:
    """What happened to numbered things (tensors, memories), in the order of the events.

    What happened is known by its place in the log; `order` says which of the entries that were
    given stands there. Of one event the entries keep the order in which they were given.
    """

    def __init__(self, numbers: Numbers, positions: Numbers) -> None:
        self._width = int(positions.max(initial=0)) + 1
        keys = numbers.astype(np.int64) * self._width + positions
        self.order = np.argsort(keys, kind="stable").astype(np.int32)
        self._keys = array("q", keys[self.order].tobytes())  # one number is found quicker there
        self._sorted = np.asarray(self._keys)

    def before(self, number: int, position: int) -> int:
        """Return the place of the last that happened to a number before an event, or -1."""
        first = number * self._width
        at = bisect_left(self._keys, first + min(position, self._width)) - 1
        return at if at >= 0 and self._keys[at] >= first else UNKNOWN

    def latest(self, number: int, position: int) -> int:
        """Return the last event, before another one, that something happened in; or -1."""
        at = self.before(number, position)
        return self._keys[at] - number * self._width if at >= 0 else UNKNOWN

    def latest_of_each(self, numbers: Numbers, positions: Numbers) -> Numbers:
        """Return `latest` of many numbers, each before an event of its own."""
        first = numbers.astype(np.int64) * self._width
        at = np.searchsorted(self._sorted, first + np.minimum(positions, self._width)) - 1
        events = self._sorted[at] - first if len(self._sorted) else np.full(len(first), UNKNOWN)
        return np.where(at >= 0, np.maximum(events, UNKNOWN), UNKNOWN)

    def back(self, number: int, position: int) -> Iterator[tuple[int, int]]:
        """Yield what happened to a number before an event, the last first: place and event."""
        first, at = number * self._width, self.before(number, position)
        while at >= 0 and self._keys[at] >= first:
            yield at, self._keys[at] - first
            at -= 1

    def event(self, at: int) -> int:
        """Return the event of what stands at a place."""
        return self._keys[at] % self._width


def by_number(numbers: Numbers, positions: Numbers) -> dict[int, array[int]]:
    """Return for each number the positions that stand beside it, as they are given."""
    order = np.argsort(numbers, kind="stable")
    each, first = np.unique(numbers[order], return_index=True)
    parts = np.split(positions[order].astype(np.int64), first[1:])
    return {
        number: array("q", some.tobytes())
        for number, some in zip(each.tolist(), parts, strict=False)
    }
