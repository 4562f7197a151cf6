"""The record of events while it grows: numbers in one array, and nothing else.

An event of Python objects is tracked by the garbage collector, and a million of them slow every
collection of the program that is watched. So an event is a run of integers: what it was (numbers
of strings), where, in which mode, and the rows of the snapshots it read, returned and wrote.
`struct` packs a run in half the time that ``array.extend`` takes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from tether.facts import Event, Operand

_HEAD = 10  # numbers before the rows

PACK: list[Callable[..., bytes]] = [struct.Struct(f"{_HEAD + n}i").pack for n in range(16)]
"""Packs an event with so many rows; 32 bits a number: two thousand million snapshots."""


class EventLog:
    """Events, in order; the oldest are forgotten beyond a limit."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.count = 0  # events ever added
        self.dropped = 0
        self.numbers = bytearray()  # 32 bits each
        self._strings: dict[str, int] = {"": 0}
        self.full: float = float("inf")  # count at which the oldest are forgotten
        self.on_forget: Callable[[], None] = lambda: None  # what hangs on events can go as well
        if limit is not None:
            self.full = limit + max(limit // 4, 1000)

    def number(self, text: str) -> int:
        """Return the number of a string: an operation's name, a note."""
        found = self._strings.get(text)
        return self._strings.setdefault(text, len(self._strings)) if found is None else found

    def add(
        self,
        operation: int,
        site: int,
        reads: Sequence[int],
        results: Sequence[int],
        writes: Sequence[int],
        mode: int,
        span: int,
        inner: int,
        thread: int,
        note: int,
    ) -> int:
        """Append an event, its strings as numbers and its operands as rows; return its index."""
        a, b, c = len(reads), len(results), len(writes)
        total = a + b + c
        pack = PACK[total] if total < len(PACK) else struct.Struct(f"{_HEAD + total}i").pack
        data = pack(
            operation, site, mode, span, inner, thread, note, a, b, c, *reads, *results, *writes
        )
        # Nothing is called between these lines: no other thread comes in between.
        index = self.count
        self.numbers += data
        self.count = index + 1
        if index >= self.full:
            self.forget()
        return index

    def forget(self) -> None:
        """Drop the oldest events, so that `limit` are left."""
        assert self.limit is not None
        surplus = self.count - self.dropped - self.limit
        numbers = memoryview(self.numbers).cast("i")
        at = 0
        for _ in range(surplus):
            at += _HEAD + sum(numbers[at + 7 : at + _HEAD])
        numbers.release()
        del self.numbers[: at * 4]
        self.dropped += surplus
        self.full = self.count + max(self.limit // 4, 1000)
        self.on_forget()

    def rows(self) -> set[int]:
        """Return the rows that any event still holds."""
        found = set[int]()
        with memoryview(self.numbers) as raw, raw.cast("i") as numbers:
            at, end = 0, len(numbers)
            while at < end:
                first = at + _HEAD
                at = first + sum(numbers[at + 7 : first])
                found.update(numbers[first:at])
        return found

    def events(self, operands: Mapping[int, Operand]) -> Iterator[Event]:
        """Turn the numbers back into facts."""
        strings = {number: text for text, number in self._strings.items()}
        numbers = memoryview(bytes(self.numbers)).cast("i")
        at, end = 0, len(numbers)
        while at < end:
            operation, site, mode, span, inner, thread, note, a, b, c = numbers[at : at + _HEAD]
            first = at + _HEAD
            at = first + a + b + c
            rows = [operands[row] for row in numbers[first:at]]
            yield Event(
                strings[operation], site, tuple(rows[:a]), tuple(rows[a : a + b]),
                tuple(rows[a + b :]), mode, span, inner, thread, strings[note],
            )  # fmt: skip
