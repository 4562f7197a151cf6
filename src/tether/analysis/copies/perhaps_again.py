"""Which calls may have computed what an earlier one computed: told by sums of what they were given.

To number what calls computed takes a look at each call, and most are given what no call was given
before: parameters that a step has written since. Calls that computed the same have the same sum, so
only those whose sum comes twice are looked at one by one, with what their line did in between, and
with what all of that was computed of.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tether.analysis.history import History
from tether.facts import UNKNOWN
from tether.store.lives import storages_of
from tether.store.numbers import Numbers, concatenated_ranges, stable_order

_ROUNDS = 4
"""Calls that a sum looks back over: what is computed of a parameter differs after as many."""

_AT_ONCE = 1 << 15  # calls

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def perhaps_again(history: History, calls: Numbers) -> Numbers:
    """Return those of some calls, all that compute, which are to be looked at; in order."""
    if not len(calls):
        return calls
    given = _Operands(history, calls)
    chosen = _of_lines(history.lines[calls], twice(_sums(history, calls, given)))
    return calls[given.with_makers(chosen)]


def twice(sums: Numbers) -> Numbers:
    """Return which numbers are there more than once."""
    ordered = np.sort(sums)
    return np.isin(sums, ordered[1:][ordered[1:] == ordered[:-1]])


def _of_lines(lines: Numbers, chosen: Numbers) -> Numbers:
    """Return which calls are of a line that has a call that was chosen."""
    found = np.zeros(int(lines.max()) + 1, bool)
    found[lines[chosen]] = True
    return found[lines]


class _Operands:
    """What calls were given: for each operand the call that made it, if nothing wrote it since.

    Of the operands no more is kept than that; the rest is worked out again for some calls at once.
    """

    def __init__(self, history: History, calls: Numbers) -> None:
        self._events, self._calls = history.events, calls
        column = self._events.column
        self.reads, self.results = column("reads")[calls], column("results")[calls]
        self.first = np.zeros(len(calls) + 1, np.int64)  # place of each call's first operand
        np.cumsum(self.reads, out=self.first[1:])
        self.first_made = np.zeros(len(calls) + 1, np.int64)
        np.cumsum(self.results, out=self.first_made[1:])
        self._find_makers()

    def _find_makers(self) -> None:
        column, count = self._events.operands.column, len(self._calls)
        storages = column("storage")
        made_by, made = self.made(slice(0, count))
        order = stable_order(storages[made])
        made_by, made = made_by[order], made[order]
        keys = storages[made].astype(np.int64)
        keys *= count
        keys += made_by
        self.maker = np.full(int(self.first[-1]), UNKNOWN, np.int32)
        self.result = np.zeros(int(self.first[-1]), np.int32)  # which of its results
        for some in self.parts():
            of, rows = self.given(some)
            # The last before the call that made something on the operand's storage.
            at = np.searchsorted(keys, storages[rows].astype(np.int64) * count + of) - 1
            last = np.maximum(at, 0)
            there = at >= 0
            for name in ("storage", "version"):
                there &= column(name)[made[last]] == column(name)[rows]
            here = slice(self.first[some.start], self.first[some.stop])
            self.maker[here] = np.where(there, made_by[last], UNKNOWN)
            self.result[here] = order[last] - self.first_made[made_by[last]]

    def parts(self) -> Iterator[slice]:
        """Yield the calls, some at once."""
        count = len(self._calls)
        for begin in range(0, count, _AT_ONCE):
            yield slice(begin, min(begin + _AT_ONCE, count))

    def given(self, some: slice) -> tuple[Numbers, Numbers]:
        """Return the operands of some calls: of which call, and their rows."""
        of, places = concatenated_ranges(self._events.starts[self._calls[some]], self.reads[some])
        return of + np.int32(some.start), self._events.rows[places]

    def made(self, some: slice) -> tuple[Numbers, Numbers]:
        """Return the results of some calls: of which call, and their rows."""
        first = self._events.starts[self._calls[some]] + self.reads[some]
        of, places = concatenated_ranges(first, self.results[some])
        return of + np.int32(some.start), self._events.rows[places]

    def with_makers(self, chosen: Numbers) -> Numbers:
        """Return for each call whether it is chosen, or made what a chosen one was given."""
        needed = bytearray(chosen.tobytes())
        if not chosen.any():
            return chosen
        # The last call first: what made its operands came before it.
        for some in [*self.parts()][::-1]:
            makers = self.maker[self.first[some.start] : self.first[some.stop]]
            calls = np.repeat(np.arange(some.start, some.stop), self.reads[some])
            made = makers >= 0
            pairs = (one[made][::-1].tolist() for one in (calls, makers))
            for call, maker in zip(*pairs, strict=True):
                if needed[call]:
                    needed[maker] = True
        return np.frombuffer(needed, bool)


def _sums(history: History, calls: Numbers, given: _Operands) -> Numbers:
    """Return for each call a number, the same for calls that computed the same."""
    kind = np.concatenate([_kinds(history, calls, given, some) for some in given.parts()])
    found, before = kind, kind
    for _ in range(_ROUNDS):
        found = np.concatenate(
            [_summed(history, before, kind, given, some) for some in given.parts()]
        )
        before = found
    return found


def _kinds(history: History, calls: Numbers, given: _Operands, some: slice) -> Numbers:
    """Return for some calls a number of their lines, modes and threads, and of how results lie."""
    column, own = history.events.column, history.events.operands.column
    _, made = given.made(some)
    laid = [own("shape")[made], own("strides")[made], own("kind")[made] >> 1]
    laid_out = joined(*laid, _devices(history, made))
    first, counts = given.first_made[some] - given.first_made[some.start], given.results[some]
    looks = np.add.reduceat(
        joined(laid_out, np.arange(len(made)) - np.repeat(first, counts)), first
    )
    at = calls[some]
    return joined(history.lines[at], column("grad_mode")[at], column("thread")[at], looks)


def _summed(
    history: History, found: Numbers, kind: Numbers, given: _Operands, some: slice
) -> Numbers:
    """Return for some calls a number of their kinds and of what `found` has of their operands."""
    column, (_, rows) = history.events.operands.column, given.given(some)
    lying, first = _lying(history, rows), given.first[some] - given.first[some.start]
    here = slice(given.first[some.start], given.first[some.stop])
    maker = given.maker[here]
    each = joined(
        np.where(
            maker >= 0,
            joined(found[maker], given.result[here], lying),
            joined(column("storage")[rows], column("version")[rows], lying),
        ),
        np.arange(len(rows)) - np.repeat(first, given.reads[some]),
    )
    return joined(kind[some], np.add.reduceat(each, first))


def _lying(history: History, rows: Numbers) -> Numbers:
    """Return for each operand a number of its offset, layout and type, and whether it is graded."""
    column = history.events.operands.column
    parts = [column(one)[rows] for one in ("offset", "shape", "strides")]
    return joined(*parts, column("kind")[rows] >> 1)


def _devices(history: History, rows: Numbers) -> Numbers:
    """Return the numbers of the devices that operands lie on."""
    return devices_of(history, history.events.operands.column("storage")[rows])


def devices_of(history: History, storages: Numbers) -> Numbers:
    """Return the numbers of the devices that storages lie on."""
    lives = storages_of(history.trace.storages)
    serials, devices = lives.column("serial"), lives.column("device")
    if not len(serials):
        return np.zeros(len(storages), np.int64)
    found: Numbers = devices[np.minimum(np.searchsorted(serials, storages), len(serials) - 1)]
    return found


def joined(*columns: Numbers) -> Numbers:
    """Return for each line of some columns one number, the same for the same line."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found ^ column.astype(np.uint64)) * _FACTOR
        found ^= found >> np.uint64(29)
    return found
