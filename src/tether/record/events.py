"""The record of events while it grows: numbers in one array, and nothing else.

An event of Python objects is tracked by the garbage collector, and a million of them slow every
collection of the program that is watched. So an event is a run of integers: what it was (numbers
of strings), where, in which mode, and the rows of the snapshots it read, returned and wrote.
`struct` packs a run in half the time that ``array.extend`` takes.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence

from tether.facts import Event, Operand
from tether.store.journal import HEAD, events

PACK: list[Callable[..., bytes]] = [struct.Struct(f"{HEAD + n}i").pack for n in range(16)]
"""Packs an event with so many rows; 32 bits a number: two thousand million snapshots."""

BEAT = 256  # events between two looks at the clock, where a journal is kept


class EventLog:
    """Events, in order; the oldest are forgotten beyond a limit."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.count = 0  # events ever added
        self.dropped = 0
        self.numbers = bytearray()  # 32 bits each
        self.cut = 0  # bytes that were at the start of `numbers` and are forgotten
        self.strings: dict[str, int] = {"": 0}
        self._next_string = itertools.count(1).__next__
        self.full: float = float("inf")  # count at which `attend` is to be called
        self._overfull: float = float("inf")  # count at which the oldest are forgotten
        self.on_forget: Callable[[], None] = lambda: None  # what hangs on events can go as well
        self.on_beat: Callable[[], None] | None = None  # called every `BEAT` events
        if limit is not None:
            self.full = self._overfull = limit + max(limit // 4, 1000)

    def number(self, text: str) -> int:
        """Return the number of a string: an operation's name, a note."""
        found = self.strings.get(text)
        return self.strings.setdefault(text, self._next_string()) if found is None else found

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
        pack = PACK[total] if total < len(PACK) else struct.Struct(f"{HEAD + total}i").pack
        data = pack(
            operation, site, mode, span, inner, thread, note, a, b, c, *reads, *results, *writes
        )
        # Nothing is called between these lines: no other thread comes in between.
        index = self.count
        self.numbers += data
        self.count = index + 1
        if index >= self.full:
            self.attend()
        return index

    def beat(self, call: Callable[[], None] | None) -> None:
        """Call `call` every `BEAT` events from now on; None: nothing."""
        self.on_beat = call
        self.full = min(self._overfull, self.count + BEAT) if call else self._overfull

    def attend(self) -> None:
        """Do what is due at this count of events."""
        if self.on_beat is not None:
            self.full = min(self._overfull, self.count + BEAT)
            self.on_beat()
        if self.count > self._overfull:
            self.forget()

    def forget(self) -> None:
        """Drop the oldest events, so that `limit` are left."""
        assert self.limit is not None
        surplus = self.count - self.dropped - self.limit
        numbers = memoryview(self.numbers).cast("i")
        at = 0
        for _ in range(surplus):
            at += HEAD + sum(numbers[at + 7 : at + HEAD])
        numbers.release()
        del self.numbers[: at * 4]
        self.cut += at * 4
        self.dropped += surplus
        self._overfull = self.count + max(self.limit // 4, 1000)
        self.full = self._overfull
        if self.on_beat is not None:
            self.full = min(self._overfull, self.count + BEAT)
        self.on_forget()

    def rows(self) -> set[int]:
        """Return the rows that any event still holds."""
        found = set[int]()
        with memoryview(self.numbers) as raw, raw.cast("i") as numbers:
            at, end = 0, len(numbers)
            while at < end:
                first = at + HEAD
                at = first + sum(numbers[at + 7 : first])
                found.update(numbers[first:at])
        return found

    def events(self, operands: Mapping[int, Operand]) -> Iterator[Event]:
        """Turn the numbers back into facts."""
        strings = {number: text for text, number in self.strings.items()}
        with memoryview(bytes(self.numbers)) as raw, raw.cast("i") as numbers:
            yield from events(numbers, operands, strings)
