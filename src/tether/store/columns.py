"""The large tables of a recording as columns of numbers: events, their operands, lives.

A recording of ten million calls fits as numbers where as objects it would not. `Events` and
`Lives` read like the list and the mapping that `Trace` promises, and make an `Event` or a
`TensorFact` when one is asked for; whoever looks through all of them looks at the columns.
NumPy holds them: arrays of numbers are all that is needed, and PyTorch's users have it.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    ValuesView,
)
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, overload

import numpy as np
import numpy.typing as npt

from tether.facts import Event, Operand, StorageFact, TensorFact

Numbers = npt.NDArray[Any]
Place = Literal["reads", "results", "writes"]
"""Where an event has an operand."""

HEAD = ("operation", "site", "grad_mode", "span", "inner", "thread", "flags", "losses", "detail",
        "kind", "nodes", "reads", "results", "writes")  # fmt: skip
"""The numbers of an event: those of its fields, and how many operands it read, returned, wrote."""

OPERAND = ("row", "tensor", "storage", "version", "offset", "shape", "strides", "kind")
"""The numbers of an operand: its row, its fields, and ``kind``: the number of its dtype times 4,
plus 2 if it requires grad, plus 1 if it is a leaf."""

_COUNTED = ("tensor", "storage", "version")  # what is computed with: of 32 bits at least

TENSOR = ("serial", "kind", "born", "died")
STORAGE = ("serial", "nbytes", "device", "born", "freed", "memory", "start")

_KEPT = 1 << 16
"""Objects of each kind that are kept once made: laws look at them in turn. So many take 50 MB more
than an eighth as many, and 230,000 calls are judged in a fifth less time (9.4 s for 11.8)."""
_BLOCK = 1 << 12  # events that are made at once
_AT_ONCE = 1 << 18  # numbers that are looked up at once
PLACES: tuple[Place, ...] = ("reads", "results", "writes")

Fact = TypeVar("Fact")


@dataclass
class Names:
    """What numbers stand for: strings of events, and shapes, strides and words of operands."""

    strings: dict[int, str] = field(default_factory=lambda: {0: ""})
    words: dict[int, str] = field(default_factory=dict)  # classes, dtypes, devices
    tuples: dict[int, tuple[int, ...]] = field(default_factory=dict)


def stable_order(numbers: Numbers) -> Numbers:
    """Return the places that put numbers of 32 bits in order, equal ones as they are.

    Each number and its place are sorted as one of 64 bits: in place, by half the memory.
    """
    keys = numbers.astype(np.int64)
    keys <<= 32
    keys += np.arange(len(keys), dtype=np.int32)
    keys.sort()
    return keys.astype(np.int32)  # the lower half


def in_order(table: Numbers) -> Numbers:
    """Return a table in the order of its first column: itself, where it is."""
    first = table[:, 0]
    if np.all(first[:-1] <= first[1:]):
        return table
    if table.dtype.itemsize == 4:
        return table[stable_order(first)]
    return table[np.argsort(first, kind="stable")]


def concatenated_ranges(first: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return all places of some ranges, and before them the number of the range of each."""
    of = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    ends = np.cumsum(counts, dtype=first.dtype)
    places = np.repeat(first - ends + counts.astype(first.dtype), counts)
    places += np.arange(len(of), dtype=first.dtype)
    return of, places


def narrow(table: Numbers) -> Numbers:
    """Return numbers in 32 bits, where all of them fit: nearly always."""
    least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    fits = least <= int(table.min(initial=0)) and int(table.max(initial=0)) <= most
    return table.astype(np.int32, copy=False) if fits else table


def narrowest(column: Numbers) -> Numbers:
    """Return numbers in the fewest bits in which the sum or difference of any two of them fits."""
    least, most = int(column.min(initial=0)), int(column.max(initial=0))
    for kind in (np.int8, np.int16):
        bounds = np.iinfo(kind)
        if bounds.min // 2 <= least and most <= bounds.max // 2:
            return column.astype(kind, copy=False)
    return narrow(column)


def view_of(column: Numbers) -> Sequence[int]:
    """Return a column to take single numbers from, which an array is slow at."""
    view: Any = memoryview(column)  # type: ignore[arg-type]
    found: Sequence[int] = view
    return found


class Columns:
    """A table by its columns, each as narrow as can be: most of them fit into a byte or two."""

    def __init__(self, names: Sequence[str], columns: Iterable[Numbers]) -> None:
        self.by_name = {
            name: (narrow if name in _COUNTED else narrowest)(np.ascontiguousarray(column))
            for name, column in zip(names, columns, strict=True)
        }
        self.views = [view_of(one) for one in self.by_name.values()]
        self.count = len(self.views[0])

    def of(self, positions: Numbers) -> Iterator[tuple[int, ...]]:
        """Yield the lines at some positions."""
        return zip(*(one[positions].tolist() for one in self.by_name.values()), strict=True)


class Operands:
    """Every distinct operand of a recording, in the order of its row."""

    def __init__(self, columns: Iterable[Numbers], names: Names) -> None:
        rows, *others = columns
        if np.any(rows[:-1] > rows[1:]):
            order = np.argsort(rows, kind="stable")
            rows, *others = (one[order] for one in (rows, *others))
        self.columns = Columns(OPERAND[1:], others)
        # Mostly numbered without a gap: the row is the position.
        self._rows = None if np.array_equal(rows, np.arange(len(rows))) else np.array(rows)
        self._names = names
        self._made: dict[int, Operand] = {}
        self._most = _KEPT

    def __len__(self) -> int:
        return self.columns.count

    def column(self, name: str) -> Numbers:
        """Return one number of every operand, by its name in `OPERAND`."""
        return self.columns.by_name[name]

    def positions(self, rows: Numbers) -> Numbers:
        """Return where the operands of these rows are; raises `KeyError` for others."""
        known = self._rows
        if not len(rows) or known is None:
            if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < len(self):
                raise KeyError("a row that is not there")
            return rows.astype(np.int32, copy=False)
        found = np.empty(len(rows), np.int32)
        for begin in range(0, len(rows), _AT_ONCE):
            some = rows[begin : begin + _AT_ONCE]
            at = np.minimum(np.searchsorted(known, some), len(known) - 1)
            if np.any(known[at] != some):
                raise KeyError("a row that is not there")
            found[begin : begin + len(some)] = at
        return found

    def __getitem__(self, position: int) -> Operand:
        made = self._made.get(position)
        if made is None:
            if len(self._made) > self._most:
                self._made.clear()
            made = self._made[position] = self._operand(
                [column[position] for column in self.columns.views]
            )
        return made

    def many(self, positions: Numbers) -> list[Operand]:
        """Return the operands at some positions, one object for each that is there repeatedly."""
        once, which = np.unique(positions, return_inverse=True)
        made = [*map(self._operand, self.columns.of(once))]
        return [made[number] for number in which.tolist()]

    def _operand(self, row: Iterable[int]) -> Operand:
        tensor, storage, version, offset, shape, strides, kind = row
        names = self._names
        made: Any = Operand
        operand: Operand = made(
            tensor, storage, version, offset, names.tuples[shape], names.tuples[strides],
            names.words[kind >> 2], bool(kind & 2), bool(kind & 1),
        )  # fmt: skip
        return operand


class Events(Sequence[Event]):
    """The events of a recording: `heads` has the numbers of each, `rows` their operands in turn.

    `rows` are positions in `operands`; those of event ``i`` begin at ``starts[i]``.
    """

    def __init__(
        self, heads: Iterable[Numbers], rows: Numbers, operands: Operands, names: Names
    ) -> None:
        self.heads = Columns(HEAD, heads)
        self.rows = rows
        self.operands = operands
        self.names = names
        counts = [self.column(place) for place in PLACES]
        few = sum(int(one.sum(dtype=np.int64)) for one in counts) <= np.iinfo(np.int32).max
        self.starts = np.zeros(len(self) + 1, np.int32 if few else np.int64)
        for one in counts:
            np.add(self.starts[1:], one, out=self.starts[1:])
        np.cumsum(self.starts, out=self.starts)
        self._starts = view_of(self.starts)
        self._made: dict[int, Event] = {}
        self._most = _KEPT
        self._touched: dict[tuple[Place, ...], tuple[Numbers, Numbers]] = {}

    def column(self, name: str) -> Numbers:
        """Return one number of every event, by its name in `HEAD`, as narrow as it is kept."""
        return self.heads.by_name[name]

    def flagged(self, flags: int) -> Numbers:
        """Return for each event whether it has one of some flags."""
        wide = self.column("flags").astype(np.int32)  # those that no event has may not fit
        found: Numbers = wide & flags > 0
        return found

    def operation(self, position: int) -> str:
        """Return the operation of the event at a position, of which nothing else is made."""
        return self.names.strings[int(self.column("operation")[position])]

    def where(self, wanted: Callable[[str], object]) -> Iterator[tuple[int, Event]]:
        """Yield the events whose operation is wanted, by its name, with their positions."""
        yield from self.at(np.flatnonzero(self.called(wanted)))

    def called(self, wanted: Callable[[str], object]) -> Numbers:
        """Return for each event whether its operation is wanted, by its name."""
        numbers, strings = self._operations, self.names.strings
        chosen = np.zeros(int(numbers[-1]) + 1 if len(numbers) else 0, bool)
        chosen[[number for number in numbers.tolist() if wanted(strings[number])]] = True
        found: Numbers = chosen[self.column("operation")]
        return found

    @cached_property
    def _operations(self) -> Numbers:
        """The numbers of the operations that there are: few, of however many events."""
        return np.unique(self.column("operation"))

    def having(self, *places: Place, without: Sequence[Place] = ()) -> Iterator[tuple[int, Event]]:
        """Yield the events that have operands in these places and none in others."""
        chosen = np.ones(len(self), bool)
        for place in places:
            chosen &= self.column(place) > 0
        for place in without:
            chosen &= self.column(place) == 0
        yield from self.at(np.flatnonzero(chosen))

    def at(self, positions: Numbers) -> Iterator[tuple[int, Event]]:
        """Yield the events at some positions, with these: many are quicker made than each."""
        for begin in range(0, len(positions), _BLOCK):
            some = positions[begin : begin + _BLOCK]
            yield from zip(some.tolist(), self._many(some), strict=True)

    def graded(self, *places: Place) -> Numbers:
        """Return for each event whether something that it read, returned or wrote requires grad."""
        found = np.zeros(len(self), bool)
        requires = self.operands.column("kind") & 2 > 0
        at, rows = self.touched(*places)
        found[at[requires[rows]]] = True
        return found

    def touched(self, *places: Place) -> tuple[Numbers, Numbers]:
        """Return for each operand that events read, returned or wrote its event and its position.

        In the order of the events, and within an event as `rows` has them; all places without any.
        """
        found = self._touched.get(places) or self._touching(places)
        if len(places) == 1:  # of several places few ask, and each for others
            self._touched[places] = found
        return found

    def _touching(self, places: tuple[Place, ...]) -> tuple[Numbers, Numbers]:
        wanted = [not places or one in places for one in PLACES]
        each = np.zeros(len(self), np.int32)
        for place in places or PLACES:
            each += self.column(place)
        events = np.repeat(np.arange(len(self), dtype=np.int32), each)
        if all(wanted):
            return events, self.rows
        rows, end = np.empty(len(events), self.rows.dtype), 0
        for begin in range(0, len(self), _AT_ONCE):
            some = slice(begin, begin + _AT_ONCE)
            counts = np.stack([self.column(one)[some] for one in PLACES], axis=1)
            here = np.repeat(np.tile(wanted, len(counts)), counts.ravel())
            first, last = self.starts[begin], self.starts[begin + len(counts)]
            found = self.rows[first:last][here]
            rows[end : end + len(found)] = found
            end += len(found)
        return events, rows

    def __len__(self) -> int:
        return self.heads.count

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        made = self._made.get(index) if isinstance(index, int) else None
        return self._looked_up(index) if made is None else made

    def _looked_up(self, index: int | slice) -> Event | list[Event]:
        """Return the event at a position, which may have to be made, or those of a slice."""
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        if index < 0:
            index += self.heads.count
        if not 0 <= index < self.heads.count:
            raise IndexError("there is no such event")
        rows = self.rows[self._starts[index] : self._starts[index + 1]]
        operands = [self.operands[row] for row in rows.tolist()]
        made = self._event([column[index] for column in self.heads.views], operands)
        if len(self._made) > self._most:
            self._made.clear()
        self._made[index] = made
        return made

    def __iter__(self) -> Iterator[Event]:
        for begin in range(0, len(self), _BLOCK):
            end = min(begin + _BLOCK, len(self))
            yield from self._many(np.arange(begin, end))

    def _many(self, positions: Numbers) -> list[Event]:
        """Return the events at some positions, made together where they are not kept."""
        first, last = self.starts[positions], self.starts[positions + 1]
        ends = np.cumsum(last - first)
        rows = np.repeat(last - ends, last - first) + np.arange(ends[-1] if len(ends) else 0)
        operands, end, made = self.operands.many(self.rows[rows]), 0, []
        for position, head, until in zip(
            positions.tolist(), self.heads.of(positions), ends.tolist(), strict=True
        ):
            made.append(self._made.get(position) or self._event(head, operands[end:until]))
            end = until
        return made

    def _event(self, head: Iterable[int], operands: list[Operand]) -> Event:
        operation, site, mode, span, inner, thread, flags, losses, detail, *rest = head
        kind, nodes, a, b, _ = rest
        strings = self.names.strings
        made: Any = Event
        event: Event = made(
            strings[operation], site, tuple(operands[:a]), tuple(operands[a : a + b]),
            tuple(operands[a + b :]), mode, span, inner, thread, flags, losses, strings[detail],
            kind, nodes,
        )  # fmt: skip
        return event

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]


class Lives(Mapping[Any, Fact], Generic[Fact]):
    """Serial number -> a life, in the order in which they began."""

    NUMBERS: tuple[str, ...] = ()

    def __init__(self, table: Numbers) -> None:
        self.table = in_order(narrow(table))
        self._made: dict[int, Fact] = {}
        serials = self.table[:, 0]
        # Numbered without a gap: the line is the number.
        self._dense = bool(len(serials)) and int(serials[0]) == 0 == int(serials[-1]) + 1 - len(
            table
        )

    def _fact(self, row: list[int]) -> Fact:
        raise NotImplementedError

    def position(self, serial: int) -> int:
        """Return the line of `table` for a serial number, -1 if there is none."""
        serials = self.table[:, 0]
        if self._dense:
            return serial if 0 <= serial < len(serials) else -1
        at = int(np.searchsorted(serials, serial))
        return at if at < len(serials) and serials[at] == serial else -1

    def __getitem__(self, serial: int) -> Fact:
        made = self._made.get(serial)
        if made is None:
            at = self.position(serial)
            if at < 0:
                raise KeyError(serial)
            if len(self._made) > _KEPT:
                self._made.clear()
            made = self._made[serial] = self._fact(self.table[at].tolist())
        return made

    def __iter__(self) -> Iterator[Any]:
        return iter(self.table[:, 0].tolist())

    def __len__(self) -> int:
        return len(self.table)

    def items(self) -> ItemsView[Any, Fact]:
        """Return the serial numbers with their lives, which are made as they are asked for."""
        return _LifeItems(self)

    def values(self) -> ValuesView[Fact]:
        """Return the lives, which are made as they are asked for."""
        return _LifeValues(self)

    def column(self, name: str) -> Numbers:
        """Return one number of every life, by its name in `TENSOR` or `STORAGE`."""
        found: Numbers = self.table[:, self.NUMBERS.index(name)]
        return found

    def rows(self) -> Iterator[tuple[int, Fact]]:
        """Yield serial numbers and lives, one after the other."""
        for begin in range(0, len(self.table), _BLOCK):
            for row in self.table[begin : begin + _BLOCK].tolist():
                yield row[0], self._fact(row)


class _LifeItems(ItemsView[Any, Any]):
    _mapping: Lives[Any]

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping.rows()


class _LifeValues(ValuesView[Any]):
    _mapping: Lives[Any]

    def __iter__(self) -> Iterator[Any]:
        return (fact for _, fact in self._mapping.rows())


class TensorLives(Lives[TensorFact]):
    """The lives of tensors; lines of `TENSOR` numbers."""

    NUMBERS = TENSOR

    def __init__(self, table: Numbers, names: Names) -> None:
        super().__init__(table)
        self.names = names

    def _fact(self, row: list[int]) -> TensorFact:
        made: Any = TensorFact
        fact: TensorFact = made(self.names.words[row[1]], row[2], row[3])
        return fact


class StorageLives(Lives[StorageFact]):
    """The lives of storages; lines of `STORAGE` numbers."""

    NUMBERS = STORAGE

    def __init__(self, table: Numbers, names: Names) -> None:
        super().__init__(table)
        self.names = names

    def _fact(self, row: list[int]) -> StorageFact:
        made: Any = StorageFact
        _, nbytes, device, *rest = row
        fact: StorageFact = made(nbytes, self.names.words[device], *rest)
        return fact


# -- from objects ----------------------------------------------------------------------------------


class Numbering:
    """Gives numbers to the strings, words and tuples of facts that were made as objects."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {"": 0}
        self._words: dict[str, int] = {}
        self._tuples: dict[tuple[int, ...], int] = {}
        self._operands: dict[Operand, int] = {}

    def word(self, text: str) -> int:
        """Return the number of a class, a dtype or a device."""
        return self._words.setdefault(text, len(self._words))

    def events(self, events: Iterable[Event]) -> tuple[Numbers, Numbers]:
        """Return the heads of events and the rows of their operands."""
        heads, rows, string = [], [], self._strings
        for event in events:
            operands = (*event.reads, *event.results, *event.writes)
            rows += [self._operands.setdefault(one, len(self._operands)) for one in operands]
            heads.append((
                string.setdefault(event.operation, len(string)), event.site, event.grad_mode,
                event.span, event.inner, event.thread, event.flags, event.losses,
                string.setdefault(event.detail, len(string)), event.kind, event.nodes,
                len(event.reads), len(event.results), len(event.writes),
            ))  # fmt: skip
        return numbers(heads, len(HEAD), np.int32), np.array(rows, np.int32)

    def operands(self) -> Numbers:
        """Return the table of the operands of all events so far."""
        tuples = self._tuples
        return numbers(
            [
                (
                    row, one.tensor, one.storage, one.version, one.offset,
                    tuples.setdefault(one.shape, len(tuples)),
                    tuples.setdefault(one.strides, len(tuples)),
                    self.word(one.dtype) << 2 | one.requires_grad << 1 | one.leaf,
                )
                for one, row in self._operands.items()
            ],
            len(OPERAND),
        )  # fmt: skip

    def tensors(self, lives: Mapping[Any, TensorFact]) -> Numbers:
        """Return the table of the lives of tensors."""
        return numbers([(n, self.word(k), b, d) for n, (k, b, d) in lives.items()], len(TENSOR))

    def storages(self, lives: Mapping[Any, StorageFact]) -> Numbers:
        """Return the table of the lives of storages."""
        return numbers(
            [(n, one.nbytes, self.word(one.device), *one[2:]) for n, one in lives.items()],
            len(STORAGE),
        )

    def names(self) -> Names:
        """Return what the numbers given so far stand for."""
        return Names(
            {number: text for text, number in self._strings.items()},
            {number: text for text, number in self._words.items()},
            {number: value for value, number in self._tuples.items()},
        )


def numbers(rows: Sequence[Sequence[int]], width: int, dtype: Any = np.int64) -> Numbers:
    """Return rows of so many numbers as an array, also when there are none."""
    return np.array(rows, dtype).reshape(-1, width)


def storages_of(lives: Mapping[Any, StorageFact]) -> StorageLives:
    """Return the lives of storages as columns."""
    if isinstance(lives, StorageLives):
        return lives
    numbering = Numbering()
    return StorageLives(numbering.storages(lives), numbering.names())


def tensors_of(lives: Mapping[Any, TensorFact]) -> TensorLives:
    """Return the lives of tensors as columns."""
    if isinstance(lives, TensorLives):
        return lives
    numbering = Numbering()
    return TensorLives(numbering.tensors(lives), numbering.names())


def columns_of(events: Sequence[Event]) -> Events:
    """Return events as columns; those made by hand are turned into them."""
    if isinstance(events, Events):
        return events
    numbering = Numbering()
    heads, rows = numbering.events(events)
    operands = Operands(numbering.operands().T, names := numbering.names())
    return Events(heads.T, rows, operands, names)
