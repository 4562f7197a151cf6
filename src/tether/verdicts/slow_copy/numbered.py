"""Which calls computed what an earlier call had computed: told by what they were given.

Two calls at one place of the program gave the same if they are of one operation, which leaves
nothing to chance, and were given the same: the same elements of one memory in one version, or what
calls that gave the same had made. No bytes are compared; of the numbers that a call was given
beside tensors its text says whether they are constants, but for a conversion.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tether.analysis.copies.perhaps_again import devices_of, perhaps_again
from tether.analysis.history import History
from tether.facts import RAISED, UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.source.calls import takes_tensors_alone
from tether.store.numbers import Numbers, concatenated_ranges

TURNS = 8
"""Other results of a line that may lie between two that are the same: the layers of a loop."""

Line = tuple[int, int, str]
"""Where a call was made: the user's site, the library's site and the operation."""

_Key = tuple[object, ...]
_AT_ONCE = 1 << 14  # calls
_MOST = 64  # operands that a result is followed back to


class _MadeOf(NamedTuple):
    """What a memory was made of, as long as nothing wrote it."""

    number: int  # the same for what was computed from the same
    version: int
    given: tuple[int, ...]  # what was there before, of which it was computed: operands


class _Computing(NamedTuple):
    """A call that computes, as numbers."""

    position: int
    line: int
    grad_mode: int
    thread: int
    reads: list[int]  # places of operands
    results: list[int]


class Numbered:
    """The calls of a history that computed what one shortly before had computed."""

    def __init__(self, history: History) -> None:
        self._history, self._events = history, history.events
        self._made: dict[int, _MadeOf] = {}  # by storage
        self._numbers: dict[_Key, int] = {}
        self._names: dict[int, Line] = {}
        self._recent: dict[int, deque[tuple[_Key, int]]] = defaultdict(lambda: deque(maxlen=TURNS))
        self.runs: dict[Line, int] = defaultdict(int)
        self.again: dict[Line, list[tuple[int, int]]] = defaultdict(list)  # before, and again
        self.repeats: set[int] = set()  # positions of those that computed it again
        self.given: dict[int, tuple[Operand, ...]] = {}  # of what, by position
        fresh_at, fresh = self._fresh()
        self.bytes = int(history.sizes(fresh).sum())  # of all new memory that any call made
        calls = perhaps_again(history, np.flatnonzero(self._computing(fresh_at)))
        counts = self._events.column("reads")[calls] + self._events.column("results")[calls]
        rows = self._events.rows[concatenated_ranges(self._events.starts[calls], counts)[1]]
        # An operand is known by its place among those that these calls have.
        self._rows = np.unique(rows)
        self._lies, self._looks = (array("q", one.tobytes()) for one in _looks(history, self._rows))
        self._storages, self._versions = (
            array("q", self._events.operands.column(one)[self._rows].astype(np.int64).tobytes())
            for one in ("storage", "version")
        )
        # `.data` has a version of its own: of what is ever written no version tells what is there.
        unseen = [history.flow.memory_of(one.storage) for one in history.trace.unseen]
        heard = history.memories[self._events.touched("writes")[1]]
        stays = ~np.isin(history.memories[self._rows], [*np.unique(heard), *unseen])
        self._stays: list[bool] = stays.tolist()
        for one in self._calls(calls, np.searchsorted(self._rows, rows).astype(np.int32)):
            self._look(one)
        # What served on the way is larger than what was found, and is kept as long as that.
        del self._made, self._numbers, self._recent, self._rows
        del self._lies, self._looks, self._storages, self._versions, self._stays

    def _calls(self, positions: Numbers, operands: Numbers) -> Iterator[_Computing]:
        """Yield calls as numbers, of which all operands are given."""
        first = 0
        for begin in range(0, len(positions), _AT_ONCE):
            some = positions[begin : begin + _AT_ONCE]
            counts = [self._events.column(name)[some] for name in ("reads", "results")]
            last = first + int(np.sum(counts))
            yield from self._some(some, counts, operands[first:last].tolist())
            first = last

    def _some(
        self, positions: Numbers, counts: list[Numbers], operands: list[int]
    ) -> Iterator[_Computing]:
        column, end = self._events.column, 0
        columns = (
            positions, self._history.lines[positions], column("grad_mode")[positions],
            column("thread")[positions], *counts,
        )  # fmt: skip
        for position, line, mode, thread, reads, results in zip(
            *(one.tolist() for one in columns), strict=True
        ):
            begin, middle, end = end, end + reads, end + reads + results
            given, made = operands[begin:middle], operands[middle:end]
            yield _Computing(position, line, mode, thread, given, made)

    def _look(self, call: _Computing) -> None:
        given = tuple(self._roots(call.reads))
        if len(given) > _MOST:
            return
        looks = tuple(self._looks[row] for row in call.results)
        key = (call.line, call.grad_mode, call.thread, *map(self._value, call.reads), looks)
        number = self._numbers.setdefault(key, len(self._numbers))
        for place, row in enumerate(call.results):
            if self._stays[row]:
                storage, version = self._storages[row], self._versions[row]
                self._made[storage] = _MadeOf(number << 8 | place, version, given)
        self._note(call.position, call.line, key, given)

    def _note(self, position: int, line: int, key: _Key, given: tuple[int, ...]) -> None:
        """Note a run of a line, and whether one shortly before computed the same."""
        name, recent = self._named(line, position), self._recent[line]
        self.runs[name] += 1
        before = next((known for known in recent if known[0] == key), None)
        if before is not None:
            recent.remove(before)
            self.again[name].append((before[1], position))
            self.repeats.add(position)
            self.given[position] = tuple(
                self._events.operands[row] for row in self._rows[list(given)].tolist()
            )
        recent.append((key, position))

    def _named(self, line: int, position: int) -> Line:
        """Return the line of a call, by its number."""
        if line not in self._names:
            event = self._events[position]
            self._names[line] = event.site, event.inner, event.operation
        return self._names[line]

    def _value(self, row: int) -> _Key:
        """Return what is the same for operands that show the same elements."""
        storage, version = self._storages[row], self._versions[row]
        made = self._made.get(storage)
        if made is not None and made.version == version:
            return made.number, self._lies[row]
        return storage, version, self._lies[row]

    def _roots(self, reads: list[int]) -> dict[int, None]:
        """Return what was there before of which a call's operands were computed."""
        found: dict[int, None] = {}
        for row in reads:
            storage, version = self._storages[row], self._versions[row]
            made = self._made.get(storage)
            if made is not None and made.version == version:
                found |= dict.fromkeys(made.given)
            else:
                found[row] = None
        return found

    # -- which calls -----------------------------------------------------------------------------

    def _fresh(self) -> tuple[Numbers, Numbers]:
        """Return the results that lie in no memory that their call was given."""
        made_at, made = self._events.touched("results")
        fresh = ~self._history.on_given
        return made_at[fresh], made[fresh]

    def _computing(self, fresh_at: Numbers) -> Numbers:
        """Whether each call computes its results of tensors, and of nothing that is not known."""
        events = self._events
        count, column = len(events), events.column
        every = np.bincount(fresh_at, minlength=count) == column("results")
        asks = every & (column("results") > 0) & (column("reads") > 0) & (column("writes") == 0)
        asks &= ~self._events.flagged(RAISED) & (column("detail") == 0)
        asks &= column("span") == UNKNOWN
        unknown = events.operands.column("version") < 0
        for at, rows in (events.touched("reads"), events.touched("results")):
            asks[at[unknown[rows]]] = False
        asks &= events.called(_is_certain)
        chosen = np.flatnonzero(asks)
        reads = column("reads")[chosen]
        lines = self._history.lines[chosen].astype(np.int64)
        kinds = lines * (int(reads.max(initial=0)) + 1) + reads
        _, first, which = np.unique(kinds, return_index=True, return_inverse=True)
        plain = np.array([self._is_plain(events[at]) for at in chosen[first].tolist()], bool)
        found = np.zeros(count, bool)
        found[chosen[plain[which]]] = True
        return found

    def _is_plain(self, event: Event) -> bool:
        """Whether the text of a call gives it nothing but tensors and constants."""
        text = self._history.site(event.inner if event.inner >= 0 else event.site).expression
        alone = takes_tensors_alone(event.operation, text, len(event.reads))
        # Of a conversion the result itself says what it was asked for.
        return alone or (operation(event.operation).copies in ("cast", "move"))


def _looks(history: History, rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return for some operands a number of how each lies, and one of that and on what device.

    The first is the same for one offset, shape, strides, type and whether it requires grad; the
    second has the device in the place of the offset.
    """
    column = history.events.operands.column
    device = devices_of(history, column("storage")[rows])
    parts = [column(one)[rows] for one in ("offset", "shape", "strides")]
    parts.append(column("kind")[rows] >> 1)
    own = _one_number(parts)
    return own, _one_number([*parts[1:], device])


def _one_number(columns: list[Numbers]) -> Numbers:
    """Return for each line of some columns one number, the same for the same line."""
    number = columns[0].astype(np.int64)
    for column in columns[1:]:
        _, number = np.unique(number, return_inverse=True)
        number = number * (int(column.max(initial=0)) + 2) + column + 1
    return number


def _is_certain(name: str) -> bool:
    """Whether an operation gives the same elements of the same."""
    row = operation(name)
    return row.known and not (row.random or row.empty or row.leaves)
