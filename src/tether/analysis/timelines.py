"""What happened to each of many things, and when: looked up by a time, made without objects."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np

from tether.facts import UNKNOWN
from tether.store.numbers import Numbers, stable_order

_AT_ONCE = 1 << 15  # events, or numbers, that are looked at together
_LEAST = np.int32(-1 << 31)
_HALF = 32  # bits of each of two numbers that are put in order as one


def by_events(*columns: Numbers) -> Iterator[tuple[slice, ...]]:
    """Yield where a stretch of events lies in columns of positions in order, one after another."""
    last = max((int(one[-1]) + 1 for one in columns if len(one)), default=0)
    edges = np.arange(0, last + _AT_ONCE, _AT_ONCE)
    bounds = [np.searchsorted(one, edges.astype(one.dtype)).tolist() for one in columns]
    for number in range(len(edges) - 1):
        yield tuple(slice(one[number], one[number + 1]) for one in bounds)


def among(at: Numbers, numbers: Numbers, others_at: Numbers, others: Numbers) -> Numbers:
    """Return for each number of an event whether it is among other numbers of that event."""
    found = np.zeros(len(at), bool)
    for some, known in by_events(at, others_at):
        keys = of_events(at[some], numbers[some], others_at[known], others[known])
        found[some] = np.isin(*keys)
    return found


def of_events(
    at: Numbers, numbers: Numbers, others_at: Numbers, others: Numbers
) -> tuple[Numbers, Numbers]:
    """Return for the numbers of events, and others, what is the same for one number of an event."""
    least = min(int(numbers.min(initial=0)), int(others.min(initial=0)))
    width = max(int(numbers.max(initial=0)), int(others.max(initial=0))) - least + 1
    keys, known = (
        events.astype(np.int64) * width + some - least
        for events, some in ((at, numbers), (others_at, others))
    )
    return keys, known


def same_lines(*columns: Numbers) -> Numbers:
    """Return for each line of some columns a number, the same for the same line, in their order."""
    found = np.zeros(len(columns[0]), np.int32)
    for column in columns:
        least, many = int(column.min(initial=0)), int(found.max(initial=0)) + 1
        width = int(column.max(initial=0)) - least + 1
        if many * width > max(4 * len(column), 1 << 16):
            keys = found.astype(np.int64) * width + column - least
            found = np.unique(keys, return_inverse=True)[1].astype(np.int32)
        else:  # a table of all that could be is small, and nothing has to be put in order
            found = found * width + (column - least)
            there = np.zeros(many * width, bool)
            there[found] = True
            found = (np.cumsum(there, dtype=np.int32) - 1)[found]
    return found


class Groups:
    """Where each number lies in a column of numbers in order."""

    def __init__(self, numbers: Numbers) -> None:
        new = np.ones(len(numbers), bool)
        np.not_equal(numbers[1:], numbers[:-1], out=new[1:])
        begins = np.flatnonzero(new).astype(np.int32)
        self._numbers = array("i", numbers[begins].astype(np.int32).tobytes())
        self._begins = array("i", np.append(begins, np.int32(len(numbers))).tobytes())

    @property
    def numbers(self) -> Numbers:
        """The numbers that there are, each once."""
        return np.asarray(self._numbers)

    @property
    def begins(self) -> Numbers:
        """Where each of `numbers` begins; the last one is the end."""
        return np.asarray(self._begins)

    def of(self, number: int) -> tuple[int, int]:
        """Return where a number begins and ends; nothing lies between if it is not there."""
        at = bisect_left(self._numbers, number)
        if at < len(self._numbers) and self._numbers[at] == number:
            return self._begins[at], self._begins[at + 1]
        return 0, 0


class DistinctPairs:
    """The distinct pairs of two columns: for each number the others beside it, in order.

    The columns come in parts, which together have so many lines.
    """

    def __init__(self, count: int, parts: Iterable[tuple[Numbers, Numbers]]) -> None:
        keys, end = np.empty(count, np.int64), 0
        for numbers, others in parts:
            some = keys[end : end + len(others)]
            some[:] = numbers
            some <<= _HALF
            some += others
            end += len(others)
        keys -= _LEAST  # the lower half is in order where it is negative, too
        keys.sort()
        new = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=new[1:])
        if not new.all():
            keys = keys[new]
        del new
        self.others = keys.astype(np.int32)  # the lower half
        self.others ^= _LEAST
        keys >>= _HALF
        self._groups = Groups(keys)

    def on(self, number: int) -> list[int]:
        """Return what stands beside a number."""
        first, last = self._groups.of(number)
        found: list[int] = self.others[first:last].tolist()
        return found

    def after(self, numbers: Numbers, since: Numbers) -> tuple[Numbers, Numbers]:
        """Return how much beside each of some numbers is more than another, and the first of it."""
        if not len(self.others):
            return np.zeros(len(numbers), np.int64), np.full(len(numbers), UNKNOWN)
        width = max(int(self.others.max()), int(since.max(initial=0))) + 1
        known, begins = self._groups.numbers, self._groups.begins
        keys = np.repeat(known.astype(np.int64) * width, np.diff(begins))
        keys += self.others
        wanted = numbers.astype(np.int64) * width
        first = np.searchsorted(keys, wanted + since, "right")
        count = np.searchsorted(keys, wanted + width) - first
        return count, self.others[np.minimum(first, len(self.others) - 1)]


def order_of(numbers: Numbers, positions: Numbers) -> Numbers:
    """Return the places that put entries in the order of a `Timeline`."""
    if np.all(positions[:-1] <= positions[1:]):
        return stable_order(numbers)
    width = int(positions.max(initial=0)) + 1
    keys = numbers.astype(np.int64) * width + positions
    return np.argsort(keys, kind="stable").astype(np.int32)


class Timeline:
    """What happened to numbered things (tensors, memories), in the order of the events.

    What happened is known by its place in it; `order_of` says which of the entries that were
    given stands there. Of one event the entries keep the order in which they were given.
    """

    def __init__(self, numbers: Numbers, positions: Numbers, order: Numbers | None = None) -> None:
        order = order_of(numbers, positions) if order is None else order
        self._events = array("i", positions[order].astype(np.int32).tobytes())
        self._groups = Groups(numbers[order])

    def before(self, number: int, position: int) -> int:
        """Return the place of the last that happened to a number before an event, or -1."""
        first, last = self._groups.of(number)
        at = bisect_left(self._events, position, first, last)
        return at - 1 if at > first else UNKNOWN

    def latest(self, number: int, position: int) -> int:
        """Return the last event, before another one, that something happened in; or -1."""
        at = self.before(number, position)
        return self._events[at] if at >= 0 else UNKNOWN

    def latest_of_each(self, numbers: Numbers, positions: Numbers) -> Numbers:
        """Return `latest` of many numbers, each before an event of its own."""
        events, known = np.asarray(self._events), self._groups.numbers
        if not len(events):
            return np.full(len(numbers), UNKNOWN, np.int32)
        width = int(events.max()) + 1
        keys = np.repeat(known.astype(np.int64) * width, np.diff(self._groups.begins))
        keys += events
        found = np.empty(len(numbers), np.int32)
        for begin in range(0, len(numbers), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            first = numbers[some].astype(np.int64) * width
            at = np.searchsorted(keys, first + np.minimum(positions[some], width)) - 1
            there = (at >= 0) & (keys[at] >= first)
            found[some] = np.where(there, events[at], UNKNOWN)
        return found

    def back(self, number: int, position: int) -> Iterator[tuple[int, int]]:
        """Yield what happened to a number before an event, the last first: place and event."""
        first, last = self._groups.of(number)
        for at in range(bisect_left(self._events, position, first, last) - 1, first - 1, -1):
            yield at, self._events[at]

    def event(self, at: int) -> int:
        """Return the event of what stands at a place."""
        return self._events[at]


def by_number(numbers: Numbers, positions: Numbers) -> dict[int, array[int]]:
    """Return for each number the positions that stand beside it, as they are given."""
    order = stable_order(numbers)
    each, first = np.unique(numbers[order], return_index=True)
    parts = np.split(positions[order].astype(np.int32), first[1:])
    return {
        number: array("i", some.tobytes())
        for number, some in zip(each.tolist(), parts, strict=False)
    }
