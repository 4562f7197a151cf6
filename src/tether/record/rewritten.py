"""Arrays that come to PyTorch again with other bytes: what NumPy code wrote in between.

A tensor made of an array lies on its memory, and is often gone after one line; with it goes whoever
compares its bytes. What the memory held is kept here as a sum for as long as the array lives, by
the place in it, and looked up as a tensor is made of that place again. A write of PyTorch's makes
all that is known of an array's memory void.
"""

from __future__ import annotations

from typing import NamedTuple

from tether.facts import EventId, Rewritten

MOST = 4096
"""Places that are known at a time: each takes some hundred bytes."""

Place = tuple[int, int, int]
"""The memory's number, the first byte in it and how many."""


class _Read(NamedTuple):
    """What a place held as a call made a tensor of it."""

    sum: int
    event: int
    site: int


class RewrittenLog:
    """What the places of arrays held, and the calls that found other bytes there."""

    def __init__(self) -> None:
        self._known: dict[int, dict[tuple[int, int], _Read]] = {}
        self._count = 0
        self._found: dict[tuple[int, int], Rewritten] = {}  # by the lines of the two calls

    def entered(
        self, place: Place, total: int, event: int, site: int, *, copied: bool = False
    ) -> bool:
        """Note what a call made a tensor of; say whether there were other bytes before.

        A tensor that is a copy shows no array, so that no tie acted.
        """
        memory, *within = place
        known, key = self._known.setdefault(memory, {}), (within[0], within[1])
        before = known.get(key)
        if before is None:
            if self._count >= MOST:
                return False
            self._count += 1
        known[key] = _Read(total, event, site)
        if before is None or before.sum == total:
            return False
        if copied:
            return True
        lines = before.site, site
        fact = self._found.get(lines)
        self._found[lines] = (
            Rewritten(EventId(event), EventId(before.event), 1)
            if fact is None
            else fact._replace(times=fact.times + 1)
        )
        return True

    def forget(self, memory: int) -> None:
        """Forget an array's memory: it is gone, or PyTorch wrote it."""
        self._count -= len(self._known.pop(memory, ()))

    def clear(self) -> None:
        """Forget all arrays: who wrote them is not known any more."""
        self._known.clear()
        self._count = 0

    def facts(self) -> list[Rewritten]:
        """Return the calls that found other bytes, the first one for each two lines."""
        return list(self._found.values())
