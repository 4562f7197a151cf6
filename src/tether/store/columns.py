"""The events of a recording and their operands as columns of numbers.

A recording of ten million calls fits as numbers where as objects it would not. `Events` (and
`Lives`, in `store.lives`) read like the list and the mapping that `Trace` promises, and make an
`Event` or a `TensorFact` when one is asked for; whoever looks through all looks at the columns.
NumPy holds them: arrays of numbers are all that is needed, and PyTorch's users have it.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, overload

import numpy as np

from tether.facts import Event, Operand, StorageFact, TensorFact
from tether.store.numbers import Numbers, narrow, narrowest, numbers, view_of

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

_USUAL = 1 << 14  # objects of each kind that are all kept once made: laws look at them in turn
KEPT = 1 << 13  # of more, so many
BLOCK = 1 << 12  # events that are made at once
_AT_ONCE = 1 << 18  # numbers that are looked up at once
PLACES: tuple[Place, ...] = ("reads", "results", "writes")


@dataclass
class Names:
    """What numbers stand for: strings of events, and shapes, strides and words of operands."""

    strings: dict[int, str] = field(default_factory=lambda: {0: ""})
    words: dict[int, str] = field(default_factory=dict)  # classes, dtypes, devices
    tuples: dict[int, tuple[int, ...]] = field(default_factory=dict)


def kept_of(count: int) -> int:
    """Return how many of so many objects to keep once they are made."""
    return count if count <= _USUAL else KEPT


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
        self._most = kept_of(len(self))

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
        self._most = kept_of(len(self))
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
        for begin in range(0, len(positions), BLOCK):
            some = positions[begin : begin + BLOCK]
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
        for begin in range(0, len(self), BLOCK):
            end = min(begin + BLOCK, len(self))
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


def columns_of(events: Sequence[Event]) -> Events:
    """Return events as columns; those made by hand are turned into them."""
    if isinstance(events, Events):
        return events
    numbering = Numbering()
    heads, rows = numbering.events(events)
    operands = Operands(numbering.operands().T, names := numbering.names())
    return Events(heads.T, rows, operands, names)
