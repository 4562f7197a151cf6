"""Arrays of which parts became tensors of another type again and again: whether they were written.

The bytes of the whole are summed when a second part is taken, and again when the array goes or the
recording ends.
"""

from __future__ import annotations

import sys
import weakref
import zlib
from typing import Any

import numpy as np
import torch

from tether.facts import Drawn, EventId
from tether.record.contents import memory_at

MOST = 16
"""Arrays that are followed."""
LARGEST = 16 << 20
"""Bytes of an array that is summed up."""


class _Drawing:
    """An array of which parts became tensors."""

    __slots__ = ("address", "bytes", "changed", "event", "ref", "size", "sum", "times", "whole")

    def __init__(self, event: int, root: Any, whole: int) -> None:
        self.event, self.whole = event, whole
        self.address, self.size = int(root.__array_interface__["data"][0]), int(root.nbytes)
        self.times, self.bytes, self.sum = 0, 0, 0
        self.changed: bool | None = None
        self.ref = weakref.ref(root, self._gone)

    def now(self) -> int:
        """Sum the bytes up as they are."""
        return zlib.crc32(memory_at(self.address, self.size))

    def written(self) -> bool:
        """Whether the array holds other bytes than when the second part was taken."""
        return self.now() != self.sum if self.changed is None else self.changed

    def _gone(self, _: object) -> None:
        """NumPy calls back before it gives the memory up."""
        if not sys.is_finalizing():
            self.changed = self.written()


class DrawnLog:
    """Follows arrays of which parts become tensors of a type that takes no more room."""

    def __init__(self) -> None:
        self._followed: list[_Drawing] = []
        self._by_root: dict[tuple[int, torch.dtype], _Drawing] = {}

    def look(self, event: int, data: Any, result: torch.Tensor) -> None:
        """Count one more part."""
        root = _root(data)
        if root is None or not _narrowed(data, result):
            return
        key = id(root), result.dtype
        one = self._by_root.get(key)
        if one is None or one.ref() is not root:
            if len(self._followed) >= MOST:
                self._forget()
            if len(self._followed) >= MOST:
                return
            one = _Drawing(event, root, int(root.size) * result.element_size())
            self._followed.append(one)
            self._by_root[key] = one
        one.times += 1
        one.bytes += result.numel() * result.element_size()
        if one.times == 2:
            one.sum = one.now()

    def _forget(self) -> None:
        """Let go of arrays that went before more was taken of them than they had."""
        self._by_root = {key: one for key, one in self._by_root.items() if one.ref() is not None}
        self._followed = [
            one for one in self._followed if one.ref() is not None or one.bytes > one.whole
        ]

    def facts(self) -> list[Drawn]:
        """Return what is known of arrays of which more was taken than they have."""
        return [
            Drawn(EventId(one.event), one.times, one.bytes, one.whole, one.written())
            for one in self._followed
            if one.times > 1 and one.bytes > one.whole
        ]


def _root(data: Any) -> Any | None:
    """Return the array that an array is a part of, and that owns the memory."""
    if type(data) is not np.ndarray:
        return None
    root = data
    while type(root.base) is np.ndarray:
        root = root.base
    fits = data.nbytes < root.nbytes <= LARGEST and root.flags.owndata
    return root if fits and root.dtype == data.dtype else None


def _narrowed(data: Any, result: torch.Tensor) -> bool:
    """Whether elements were converted to a type that takes no more room."""
    other = str(result.dtype) != f"torch.{data.dtype.name}"
    return other and result.element_size() <= data.itemsize
