"""The record of events while it grows: numbers in arrays, and nothing else.

An event of Python objects is tracked by the garbage collector, and a million of them slow every
collection of the program that is watched. So an event is a run of integers: what it was (numbers
of strings), where, in which mode, and the rows of the snapshots it read, returned and wrote.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping

from tether.facts import Event, Operand

_HEAD = 10  # numbers before the rows


class EventLog:
    """Events, in order; the oldest are forgotten beyond a limit."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.count = 0  # events ever added
        self.dropped = 0
        self._numbers = array("q")
        self._starts = array("q")  # where each event begins, counted from the first ever added
        self._cut = 0  # numbers forgotten
        self._strings: dict[str, int] = {"": 0}
        self._most = limit + max(limit // 4, 1000) if limit is not None else None

    def number(self, text: str) -> int:
        """Number of a string: an operation's name, a note."""
        found = self._strings.get(text)
        return self._strings.setdefault(text, len(self._strings)) if found is None else found

    def add(
        self,
        operation: int,
        site: int,
        reads: Iterable[int],
        results: Iterable[int],
        writes: Iterable[int],
        mode: int,
        span: int,
        inner: int,
        thread: int,
        note: int,
    ) -> int:
        """Append an event, its strings as numbers and its operands as rows; return its index."""
        numbers = self._numbers
        reads, results, writes = tuple(reads), tuple(results), tuple(writes)
        self._starts.append(self._cut + len(numbers))
        numbers.extend(
            (operation, site, mode, span, inner, thread, note,
             len(reads), len(results), len(writes), *reads, *results, *writes)
        )  # fmt: skip
        self.count += 1
        if self._most is not None and len(self._starts) > self._most:
            self._forget()
        return self.count - 1

    def _forget(self) -> None:
        assert self.limit is not None
        surplus = len(self._starts) - self.limit
        until = self._starts[surplus]
        del self._numbers[: until - self._cut]
        del self._starts[:surplus]
        self._cut = until
        self.dropped += surplus

    def rows(self) -> set[int]:
        """Return the rows that any event still holds."""
        numbers, found = self._numbers, set[int]()
        for start in self._starts:
            at = start - self._cut
            size = numbers[at + 7] + numbers[at + 8] + numbers[at + 9]
            found.update(numbers[at + _HEAD : at + _HEAD + size])
        return found

    def events(self, operands: Mapping[int, Operand]) -> Iterator[Event]:
        """Turn the numbers back into facts."""
        strings = {number: text for text, number in self._strings.items()}
        numbers = self._numbers
        for start in self._starts:
            at = start - self._cut
            operation, site, mode, span, inner, thread, note, a, b, c = numbers[at : at + _HEAD]
            rows = [operands[row] for row in numbers[at + _HEAD : at + _HEAD + a + b + c]]
            yield Event(
                strings[operation], site, tuple(rows[:a]), tuple(rows[a : a + b]),
                tuple(rows[a + b :]), mode, span, inner, thread, strings[note],
            )  # fmt: skip
