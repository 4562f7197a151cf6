"""Arrays in several places that NumPy code fills again: looked for while the program runs.

An environment that hands out the array which it fills is never seen by PyTorch where what is kept
of it is stacked first. The looks at what the variables lead to meet such an array more than once:
its bytes are summed, and where they are others than at the look before, who holds it is asked.
"""

from __future__ import annotations

import weakref
import zlib
from typing import Any, NamedTuple

from tether.record.arrays.contents import memory_at
from tether.record.arrays.memory import is_array, owner_of, root_of, size_of, stretch_of
from tether.record.names.holders import HolderLog
from tether.record.tape import Tape

PLACES = 3
"""Places in which an array is met, from which it is looked at."""

LARGEST = 1 << 20
"""Bytes of an array that is looked at."""

MOST = 8
"""Arrays that one look asks about."""


class MetArrays:
    """How often one look came by each piece of memory that an array shows."""

    def __init__(self) -> None:
        self._times: dict[tuple[int, int], list[Any]] = {}

    def met(self, array: Any) -> None:
        """Note an array that is in a place."""
        self._times.setdefault(stretch_of(array), []).append(array)

    def several(self) -> list[Any]:
        """Return one array of each memory that was met in several places, the most met first."""
        found = sorted(self._times.values(), key=len, reverse=True)
        return [some[0] for some in found if len(some) >= PLACES]


class _Filled(NamedTuple):
    """What an array held at a look."""

    owner: weakref.ref[Any]
    sum: int


class RefilledArrays:
    """Arrays that were met in several places, by where they lie; `HolderLog` tells of them."""

    def __init__(self, tape: Tape, holders: HolderLog) -> None:
        self._tape = tape
        self._holders = holders
        self._known: dict[tuple[int, int], _Filled] = {}

    def look(self, arrays: list[Any]) -> None:
        """Ask who holds those of some arrays that are new here, or have other bytes than before."""
        changed = [one for one in arrays if self._is_own(one) and self._changed(one)][:MOST]
        if changed:
            self._holders.met(changed, self._tape.now() - 1)

    @staticmethod
    def _is_own(array: Any) -> bool:
        """Whether an array lies on memory of NumPy's, without gaps, and is small enough."""
        first, last = stretch_of(array)
        if not 0 < last - first == size_of(array) <= LARGEST:
            return False
        root, tensor = root_of(array)
        return tensor is None and is_array(root)

    def _changed(self, array: Any) -> bool:
        place, owner = stretch_of(array), owner_of(array)
        total = zlib.crc32(memory_at(place[0], place[1] - place[0]))
        before = self._known.get(place)
        self._known[place] = _Filled(weakref.ref(owner), total)
        return before is None or before.owner() is not owner or before.sum != total
