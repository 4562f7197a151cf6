"""Large results that a line makes anew, with the same bytes each time: looked at as they are made.

The bytes of a line's first result are summed and compared with those of its 2nd, 3rd, 4th, 8th,
16th... The first that differs ends it. Only memory of the CPU that takes no part in a gradient
graph is looked at, from `COMPARED` to `MOST` bytes, for at most 0.5 % of the run's time.
"""

from __future__ import annotations

import functools
import sys
import weakref
import zlib
from typing import Any

import numpy as np
import torch

from tether.facts import COMPARED, ArrayAgain, EventId, Repeated
from tether.record.arrays.contents import Array, fingerprint, memory_at
from tether.record.arrays.lives import ArrayLife, ArrayLives
from tether.record.arrays.memory import address_of, holds_objects, owner_of, size_of
from tether.record.budget import Budget

MOST = 16 << 20
_EACH = 4
"""Runs of a line that are each looked at; of later ones every power of two."""


class _Made:
    """What one line made, as long as it is the same."""

    __slots__ = ("event", "looked", "runs", "sum")

    def __init__(self, event: int, total: int) -> None:
        self.event = event
        self.sum = total
        self.runs = self.looked = 1


class RepeatLog:
    """Compares what lines make with what they made before."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int, int], _Made | None] = {}  # None: it is not the same
        self._budget = Budget(0.005, allowed=0.05)

    def look(self, name: str, place: tuple[int, int], event: int, result: torch.Tensor) -> None:
        """Look at a result in new memory."""
        key = (name, *place)
        line = self._lines.get(key)
        if line is None and key in self._lines:
            return
        runs = 1 if line is None else line.runs + 1
        if line is not None:
            line.runs = runs
        if runs > _EACH and runs & (runs - 1):
            return
        if self._budget.late():
            return
        with self._budget:
            total = _sum_of(result)
        if line is None:
            self._lines[key] = None if total is None else _Made(event, total)
        elif total != line.sum:
            self._lines[key] = None
        else:
            line.looked += 1

    def facts(self) -> list[object]:
        """Return the lines that made the same whenever they were looked at."""
        return [
            Repeated(EventId(one.event), one.looked)
            for one in self._lines.values()
            if one is not None and one.looked > 1
        ]


# -- arrays again ----------------------------------------------------------------------------------
# NumPy's arrays that a program makes anew, with the same bytes each time. An archive whose member
# is read for each sample, a table converted for each: no call of PyTorch tells of it. So the array
# behind what PyTorch is given is looked at. A line is told of whose arrays were each in memory of
# their own, had gone before the last was met, and held the same from when they were met to when
# they went. (Arrays that PyTorch is not given are left alone: NumPy resizes none in place that
# anything refers to.) Some elements are compared each time; all of them at the 1st to 4th, the 8th,
# 16th... and as these go, for at most 0.5 % of the run's time.


MOST_OF_ARRAY = 64 << 20
"""Bytes of an array that is looked at."""
_SAMPLE = 256
"""Words that are compared of each."""
_ROW = 1024


def _sum_of(result: torch.Tensor) -> int | None:
    """Return a sum of a result's bytes; None of what is too large, or has no one memory."""
    if result.layout is not torch.strided or result.nbytes > MOST:
        return None
    return fingerprint(result)


class _SameArrays:
    """What was met at one line, as long as it is the same."""

    __slots__ = ("event", "given", "gone", "last", "lives", "looked", "nbytes", "runs", "sample",
                 "sum")  # fmt: skip

    def __init__(self, event: int, root: Array, given: int) -> None:
        self.event, self.given, self.nbytes = event, given, size_of(root)
        self.sample, self.sum = _some(root), _all(root)
        self.runs = self.looked = self.gone = 0
        self.last: weakref.ref[Array] | None = None
        self.lives: dict[int, ArrayLife] = {}  # of those that are followed, by the run


class ArrayAgainLog:
    """Compares the arrays that a line has to do with, one with those before it."""

    def __init__(self, arrays: ArrayLives) -> None:
        self._arrays = arrays
        self._lines: dict[int, _SameArrays | None] = {}  # by site; None: they are not the same
        self._budget = Budget(0.005, allowed=0.05)

    def look(self, event: int, site: int, data: Any) -> None:
        """Look at the array behind what a call was given."""
        if not self._budget.late():
            with self._budget:
                self._met(site, event, data)

    def _met(self, site: int, event: int, data: Any) -> None:
        line = self._lines.get(site)
        if (line is None and site in self._lines) or (root := _root(data)) is None:
            return  # known to differ, or nothing to compare
        if line is None:
            line = self._lines[site] = _SameArrays(event, root, size_of(data))
        if line.last is not None and line.last() is root:
            return
        if size_of(root) != line.nbytes or _some(root) != line.sample:
            self._lines[site] = None
            return
        self._compare(site, line, root)

    def _compare(self, site: int, line: _SameArrays, root: Array) -> None:
        """Compare all of an array with that of the first, and follow it, if it is its turn."""
        line.looked, line.gone = line.looked + line.gone, 0
        line.runs += 1
        follows = line.runs <= _EACH or not line.runs & (line.runs - 1)
        if follows and line.runs > 1 and _all(root) != line.sum:
            self._lines[site] = None
            return
        line.last = weakref.ref(root)
        if follows:
            place = address_of(root), size_of(root)
            gone = functools.partial(self._gone, site, line, line.runs, place)
            line.lives[line.runs] = self._arrays.follow(root, gone)

    def _gone(self, site: int, line: _SameArrays, run: int, place: tuple[int, int]) -> None:
        """Look whether an array goes as it came."""
        del line.lives[run]
        if sys.is_finalizing() or self._lines.get(site) is not line or self._budget.late():
            return
        with self._budget:
            if _sum_at(*place) == line.sum:
                line.gone += 1
            else:
                self._lines[site] = None

    def facts(self) -> list[object]:
        """Return the lines whose arrays were the same whenever they were looked at."""
        return [
            ArrayAgain(EventId(one.event), one.looked, one.runs, one.nbytes, one.given)
            for one in self._lines.values()
            if one is not None and one.looked > 1
        ]


def _root(data: Any) -> Array | None:
    """Return the array that owns the memory of another, if it is of a size to be looked at."""
    if type(data) is not np.ndarray:
        return None
    root = owner_of(data)
    fit = type(root) is np.ndarray and root.flags.owndata and not holds_objects(root)
    return root if fit and COMPARED <= size_of(root) <= MOST_OF_ARRAY else None


def _some(root: Array) -> int:
    """Return a sum of some words of an array, from all over it."""
    words = _words(address_of(root), size_of(root))
    return zlib.crc32(words[:: max(1, words.size // _SAMPLE)].tobytes())


def _all(root: Array) -> int:
    return _sum_at(address_of(root), size_of(root))


def _sum_at(address: int, size: int) -> int:
    """Return a sum of some memory that tells two elements in each other's place."""
    words = _words(address, size)
    square = words[: words.size // _ROW * _ROW].reshape(-1, _ROW)
    found = zlib.crc32(square.sum(axis=0).tobytes())
    found = zlib.crc32(square.sum(axis=1).tobytes(), found)
    rest = square.nbytes
    return zlib.crc32(memory_at(address + rest, size - rest), found) if size > rest else found


def _words(address: int, size: int) -> Array:
    return np.frombuffer(memory_at(address, size // 8 * 8), np.uint64)
