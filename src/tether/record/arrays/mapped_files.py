"""Files that an array shows and writes to: `numpy.memmap` and `numpy.load(..., mmap_mode="r+")`.

A write to such an array is a write to the file, which whoever opens it next reads. Some pages,
evenly spread, are summed when it is opened and when the array goes: so a file may be of any size.
"""

from __future__ import annotations

import functools
import os
import weakref
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tether.facts import UNKNOWN, MappedFile, Moment, SiteId
from tether.record.arrays.contents import memory_at
from tether.record.arrays.lives import ArrayLife
from tether.record.arrays.memory import address_of, size_of
from tether.record.mode_stack import muted
from tether.record.patches.replacing import Original, Replacements
from tether.record.sites import here
from tether.record.tape import Tape

__tracebackhide__ = True

PAGES = 64
"""Pages of a file that are summed, each of 4 KiB: a hundredth of a millisecond."""

MOST = 1_000
"""Openings that are followed."""

_PAGE = 4096
_MODE = 2  # place of the mode among the arguments of `numpy.memmap`, behind the class


class _Opened:
    """One array on a file, from when it was opened to when it goes."""

    def __init__(self, array: Any, site: int, at: int, file: str) -> None:
        self._address, self._size = address_of(array), size_of(array)
        self._mapping = weakref.ref(array.__dict__["_mmap"])
        self._end = array.__dict__["offset"] + self._size
        self.site, self.at, self.file = site, at, file
        self.life: ArrayLife | None = None
        self.released = UNKNOWN
        self.changed: tuple[int, ...] = ()
        self.flushed = False
        self.asked = True
        self.gone = False
        self._sums = self._now()

    def look(self) -> None:
        """Compare the pages with what they were when the file was opened."""
        if not self.gone and self._is_there():
            pairs = enumerate(zip(self._sums, self._now(), strict=True))
            self.changed = tuple(number for number, (old, new) in pairs if old != new)

    def _is_there(self) -> bool:
        """Whether the file still has all bytes: what was cut off must not be looked at."""
        mapping = self._mapping()
        try:
            return mapping is not None and mapping.size() >= self._end
        except (OSError, ValueError):  # closed
            return False

    def _now(self) -> list[int]:
        step = max(_PAGE, self._size // PAGES)
        return [
            zlib.crc32(memory_at(self._address + first, min(_PAGE, self._size - first)))
            for first in range(0, self._size, step)
        ]


class MappedFiles:
    """The files that were opened to be written to as arrays."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._opened: list[_Opened] = []

    def install(self, replacements: Replacements) -> None:
        """Hear of the arrays that are made on a file, and of those that are told to be written."""
        replacements.replace(np.memmap, "__new__", functools.partial(self._making, replacements))
        replacements.replace(np.memmap, "flush", self._flushing)

    def _making(self, replacements: Replacements, original: Original) -> Original:
        make: Callable[..., Any] = getattr(original, "__func__", original)

        @functools.wraps(make)
        def __new__(  # noqa: N807 -- what it replaces is called so
            kind: type, *args: Any, **kwargs: Any
        ) -> Any:
            array = make(kind, *args, **kwargs)
            listener = replacements.listener()
            if listener is not None:
                with muted(listener):
                    self._made(array, asked=len(args) > _MODE or "mode" in kwargs)
            return array

        return staticmethod(__new__)

    def _made(self, array: Any, *, asked: bool) -> None:
        """Follow an array that writes to a file which was there before."""
        name = array.__dict__.get("filename")
        if array.__dict__.get("mode") != "r+" or name is None or len(self._opened) >= MOST:
            return
        site = self._tape.places.user_place(here(3))[0]
        opened = _Opened(array, site, self._tape.now(), os.fspath(name))
        opened.asked = asked
        self._opened.append(opened)
        released = functools.partial(self._released, opened)
        opened.life = self._tape.arrays.follow(array, released)

    def _released(self, opened: _Opened) -> None:
        opened.look()
        opened.gone, opened.released = True, self._tape.now()

    def _flushing(self, original: Original) -> Original:
        @functools.wraps(original)
        def flush(array: Any) -> None:
            original(array)
            name = array.__dict__.get("filename")
            for one in self._opened:
                if name is not None and one.file == os.fspath(name):
                    one.flushed = True

        return flush

    def facts(self) -> list[MappedFile]:
        """Return what became of each file that was changed."""
        for one in self._opened:
            one.look()
        return [
            MappedFile(
                Moment(one.at), SiteId(one.site), os.path.basename(one.file), one.changed,
                one.flushed, Moment(one.released), one.asked,
            )
            for one in self._opened if one.changed
        ]  # fmt: skip
