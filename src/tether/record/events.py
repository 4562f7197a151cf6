"""The record of events while it grows: numbers in two arrays, and nothing else.

An event of Python objects is tracked by the garbage collector, and a million of them slow every
collection of the program that is watched. So an event is a run of integers (what it was, where, in
which mode: numbers of strings and places) and the rows of the snapshots it read, returned and
wrote. `struct` packs a run in half the time that ``array.extend`` takes.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Sequence

import numpy as np

from tether.store.columns import HEAD
from tether.store.numbers import Numbers

PACK_HEAD: Callable[..., bytes] = struct.Struct(f"{len(HEAD)}i").pack
"""Packs the numbers of one event, in the order of `store.columns.HEAD`."""

PACK_ROWS: list[Callable[..., bytes]] = [struct.Struct(f"{n}i").pack for n in range(16)]
"""Packs so many rows; 32 bits a number: two thousand million snapshots."""

BEAT = 256  # events between two looks at the clock, where the recording is saved as it grows
_BYTES = 4 * len(HEAD)
_COUNTS = HEAD.index("reads")


class EventLog:
    """Events, in order; the oldest are forgotten beyond a limit."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.count = 0  # events ever added
        self.dropped = 0
        self.kept: list[int] = []  # of those before `dropped` the ones that are still there
        self.heads = bytearray()  # 32 bits a number
        self.rows = bytearray()
        self.rewritten = 0  # how often the start of both was written anew
        self.strings: dict[str, int] = {"": 0}
        self._next_string = itertools.count(1).__next__
        self.full: float = float("inf")  # count at which `attend` is to be called
        self._overfull: float = float("inf")  # count at which the oldest are forgotten
        self._look_at: float = float("inf")  # count at which `on_look` is called next
        self.on_look: Callable[[], None] = lambda: None
        self.worth_keeping: Callable[[Numbers, Numbers], Numbers] = lambda heads, _: heads[:0, 0]
        self.on_forget: Callable[[], None] = lambda: None  # what hangs on events can go as well
        self.on_beat: Callable[[], None] | None = None  # called every `BEAT` events
        if limit is not None:
            self._overfull = limit + max(limit // 4, 1000)
        self._next_due()

    def number(self, text: str) -> int:
        """Return the number of a string: an operation's name, a class."""
        found = self.strings.get(text)
        return self.strings.setdefault(text, self._next_string()) if found is None else found

    def add(self, head: Sequence[int], rows: Sequence[int]) -> int:
        """Append an event, its strings as numbers and its operands as rows; return its index.

        `head` has the numbers of `store.columns.HEAD`.
        """
        total = len(rows)
        pack = PACK_ROWS[total] if total < len(PACK_ROWS) else struct.Struct(f"{total}i").pack
        first, second = PACK_HEAD(*head), pack(*rows)
        # Nothing is called between these lines: no other thread comes in between.
        index = self.count
        self.heads += first
        self.rows += second
        self.count = index + 1
        if index >= self.full:
            self.attend()
        return index

    def beat(self, call: Callable[[], None] | None) -> None:
        """Call `call` every `BEAT` events from now on; None: nothing."""
        self.on_beat = call
        self._next_due()

    def look(self, first: int, call: Callable[[], None]) -> None:
        """Call `call` at event `first`, and at each doubling of their number."""
        self._look_at, self.on_look = first, call
        self._next_due()

    def _next_due(self) -> None:
        beat = self.count + BEAT if self.on_beat is not None else self._overfull
        self.full = min(self._overfull, beat, self._look_at)

    def attend(self) -> None:
        """Do what is due at this count of events."""
        if self.count >= self._look_at:
            self._look_at = 2 * self.count
            self.on_look()
        self._next_due()
        if self.on_beat is not None:
            self.on_beat()
        if self.count > self._overfull:
            self.forget()

    def forget(self) -> None:
        """Drop the oldest events, so that `limit` are left, and those worth keeping."""
        assert self.limit is not None
        surplus = self.count - self.limit - self.dropped + len(self.kept)
        heads, rows = self.columns()
        ends = np.cumsum(heads[:surplus, _COUNTS:].sum(axis=1, dtype=np.int64))
        cut = int(ends[-1])
        chosen = self.worth_keeping(heads[:surplus], rows[:cut])
        old_rows = [rows[ends[n] - heads[n, _COUNTS:].sum() : ends[n]] for n in chosen.tolist()]
        first = len(self.kept)
        self.kept = [
            self.kept[n] if n < first else self.dropped + n - first for n in chosen.tolist()
        ]
        kept_heads = heads[chosen].tobytes()
        kept_rows = b"".join(some.tobytes() for some in old_rows)
        self.heads[: surplus * _BYTES] = kept_heads
        self.rows[: cut * 4] = kept_rows
        self.rewritten += 1
        self.dropped = self.count - self.limit
        self._overfull = self.count + max(self.limit // 4, 1000)
        self._next_due()
        self.on_forget()

    def columns(self, first: int = 0, row: int = 0) -> tuple[Numbers, Numbers]:
        """Return the heads from event number `first` on, and the rows from number `row` on."""
        heads = np.frombuffer(bytes(self.heads[first * _BYTES :]), np.int32)
        return heads.reshape(-1, len(HEAD)), np.frombuffer(bytes(self.rows[row * 4 :]), np.int32)
