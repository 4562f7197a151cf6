"""Which calls may have computed what an earlier one computed: told by sums of what they were given.

To number what calls computed takes a look at each call, and most are given what no call was given
before: parameters that a step has written since. Calls that computed the same have the same sum, so
only those whose sum comes twice are looked at one by one, with what their line did in between, and
with what all of that was computed of.
"""

from __future__ import annotations

import numpy as np

from tether.analysis.history import History
from tether.store.columns import Numbers, storages_of

_ROUNDS = 4
"""Calls that a sum looks back over: what is computed of a parameter differs after as many."""

_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def perhaps_again(history: History, calls: Numbers) -> Numbers:
    """Return those of some calls, all that compute, which are to be looked at; in order."""
    if not len(calls):
        return calls
    given = _Operands(history, calls)
    sums, lines = _sums(history, calls, given), history.lines[calls]
    _, which, counts = np.unique(sums, return_inverse=True, return_counts=True)
    chosen = np.isin(lines, lines[counts[which] > 1])
    return calls[given.with_makers(chosen)]


class _Operands:
    """What calls were given: for each operand the call that made it, if nothing wrote it since."""

    def __init__(self, history: History, calls: Numbers) -> None:
        events = history.events
        table, reads = events.operands.table, events.column("reads")[calls].astype(np.int64)
        self.first = np.cumsum(reads) - reads  # place of each call's first operand
        self.of, places = stretches(events.starts[calls], reads)
        self.rows = events.rows[places]
        results = events.column("results")[calls].astype(np.int64)
        self.first_made = np.cumsum(results) - results
        made_by, places = stretches(events.starts[calls] + reads, results)
        self.made = events.rows[places]
        keys = table[self.made, 2] * len(calls) + made_by
        order = np.argsort(keys, kind="stable").astype(np.int32)
        # The last before the call that made something on the operand's storage.
        at = np.searchsorted(keys[order], table[self.rows, 2] * len(calls) + self.of) - 1
        last = order[np.maximum(at, 0)]
        self.is_made = at >= 0
        for column in (2, 3):  # on that storage, in the version that it had
            self.is_made &= table[self.made[last], column] == table[self.rows, column]
        self.maker = made_by[last]
        self.result = (last - self.first_made[self.maker]).astype(np.int32)  # which of its results

    def with_makers(self, chosen: Numbers) -> Numbers:
        """Return for each call whether it is chosen, or made what a chosen one was given."""
        needed = bytearray(chosen.tobytes())
        if not chosen.any():
            return chosen
        calls, makers = (one[self.is_made][::-1].tolist() for one in (self.of, self.maker))
        # The last call first: what made its operands came before it.
        for call, maker in zip(calls, makers, strict=True):
            if needed[call]:
                needed[maker] = True
        return np.frombuffer(needed, bool)


def _sums(history: History, calls: Numbers, given: _Operands) -> Numbers:
    """Return for each call a number, the same for calls that computed the same."""
    events = history.events
    table, column = events.operands.table, events.column
    lying, device = _lying(history, given.rows), _devices(history, given.made)
    place = np.arange(len(given.rows)) - given.first[given.of]
    laid = _joined(*(table[given.made, n] for n in (5, 6)), table[given.made, 7] >> 1, device)
    counts = column("results")[calls]
    place_made = np.arange(len(given.made)) - np.repeat(given.first_made, counts)
    looks = np.add.reduceat(_joined(laid, place_made), given.first_made)
    kind = _joined(history.lines[calls], column("grad_mode")[calls], column("thread")[calls], looks)
    as_it_was = _joined(table[given.rows, 2], table[given.rows, 3], lying)
    found = kind
    for _ in range(_ROUNDS):
        made = _joined(found[given.maker], given.result, lying)
        each = _joined(np.where(given.is_made, made, as_it_was), place)
        found = _joined(kind, np.add.reduceat(each, given.first))
    return found


def _lying(history: History, rows: Numbers) -> Numbers:
    """Return for each operand a number of its offset, layout and type, and whether it is graded."""
    table = history.events.operands.table
    return _joined(*(table[rows, n] for n in (4, 5, 6)), table[rows, 7] >> 1)


def _devices(history: History, rows: Numbers) -> Numbers:
    """Return the numbers of the devices that operands lie on."""
    return devices_of(history, history.events.operands.table[rows, 2])


def devices_of(history: History, storages: Numbers) -> Numbers:
    """Return the numbers of the devices that storages lie on."""
    lives = storages_of(history.trace.storages)
    serials, devices = lives.column("serial"), lives.column("device")
    if not len(serials):
        return np.zeros(len(storages), np.int64)
    found: Numbers = devices[np.minimum(np.searchsorted(serials, storages), len(serials) - 1)]
    return found


def _joined(*columns: Numbers) -> Numbers:
    """Return for each line of some columns one number, the same for the same line."""
    found = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        found = (found ^ column.astype(np.uint64)) * _FACTOR
        found ^= found >> np.uint64(29)
    return found


def stretches(first: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return all places of some stretches, each with the number of its stretch before it."""
    of = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    ends = np.cumsum(counts)
    return of, np.arange(len(of)) - np.repeat(ends - counts, counts) + np.repeat(first, counts)
