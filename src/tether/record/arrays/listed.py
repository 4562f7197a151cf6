"""Lists of numbers that arrays and bytes became, until PyTorch is given them.

`ndarray.tolist` and `struct.unpack` are heard where a line of the program's calls them
(`record.patches.arrays`). A list takes no weak reference: it is known again by where it lies, how
long it is, and its first and last number.
"""

from __future__ import annotations

import types
from typing import Any

from tether.facts import UNKNOWN
from tether.record.tape import Tape

LEAST = 64
"""Bytes of an array, or numbers of bytes, whose list is remembered."""
_KNOWN = 256  # lists that may come
_DEEP = 4  # lists within lists that are looked through
_LISTS = (list, tuple)

_Mark = tuple[int, int, int, int]


class ListedLog:
    """Remembers the last lists that arrays and bytes became, and where."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._sites: dict[_Mark, int] = {}

    def made(self, numbers: Any, frame: types.FrameType | None) -> None:
        """Remember a list that a call of a frame has made."""
        self._sites[_mark(numbers)] = self._tape.places.user_place(frame)[0]
        if len(self._sites) > _KNOWN:
            del self._sites[next(iter(self._sites))]

    def site_of(self, data: Any) -> int:
        """Return the line that made the last list within some data; `UNKNOWN` if none did."""
        for _ in range(_DEEP if self._sites else 0):
            if type(data) not in _LISTS or not data:
                break
            found = self._sites.get(_mark(data))
            if found is not None:
                return found
            data = data[-1]
        return UNKNOWN


def _mark(numbers: Any) -> _Mark:
    return id(numbers), len(numbers), id(numbers[0]), id(numbers[-1])
