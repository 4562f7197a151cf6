"""Arrays of which parts became tensors of another type again and again: whether they were written.

The bytes of the whole are summed when a second part is taken, and again when the array goes or the
recording ends.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from tether.facts import Drawn, EventId
from tether.record.arrays.contents import Array
from tether.record.arrays.lives import ArrayLife, ArrayLives
from tether.record.arrays.memory import ByteSum, owner_of

MOST = 16
"""Arrays that are followed."""
LARGEST = 16 << 20
"""Bytes of an array that is summed up."""


class _Drawing:
    """An array of which parts became tensors."""

    __slots__ = ("bytes", "changed", "event", "kept", "life", "times", "whole")

    def __init__(self, event: int, arrays: ArrayLives, root: Array, whole: int) -> None:
        self.event, self.whole = event, whole
        self.times, self.bytes = 0, 0
        self.kept: ByteSum | None = None
        self.changed: bool | None = None
        self.life: ArrayLife = arrays.follow(root, self._gone)

    def written(self) -> bool:
        """Whether the array holds other bytes than when the second part was taken."""
        if self.changed is not None or self.kept is None:
            return bool(self.changed)
        return self.kept.changed()

    def _gone(self) -> None:
        if not sys.is_finalizing():
            self.changed = self.written()


class DrawnLog:
    """Follows arrays of which parts become tensors of a type that takes no more room."""

    def __init__(self, arrays: ArrayLives) -> None:
        self._arrays = arrays
        self._followed: list[_Drawing] = []
        self._by_root: dict[tuple[int, torch.dtype], _Drawing] = {}

    def look(self, event: int, data: Any, result: torch.Tensor) -> None:
        """Count one more part."""
        root = _root(data) if _narrowed(data, result) else None
        if root is None:
            return
        key = id(root), result.dtype
        one = self._by_root.get(key)
        if one is None or one.life() is not root:
            if len(self._followed) >= MOST:
                self._forget()
            if len(self._followed) >= MOST:
                return
            whole = int(root.size) * result.element_size()
            one = _Drawing(event, self._arrays, root, whole)
            self._followed.append(one)
            self._by_root[key] = one
        one.times += 1
        one.bytes += result.numel() * result.element_size()
        if one.times == 2:
            one.kept = ByteSum(root)

    def _forget(self) -> None:
        """Let go of arrays that went before more was taken of them than they had."""
        self._by_root = {key: one for key, one in self._by_root.items() if one.life() is not None}
        self._followed = [
            one for one in self._followed if one.life() is not None or one.bytes > one.whole
        ]

    def facts(self) -> list[Drawn]:
        """Return what is known of arrays of which more was taken than they have."""
        return [
            Drawn(EventId(one.event), one.times, one.bytes, one.whole, one.written())
            for one in self._followed
            if one.times > 1 and one.bytes > one.whole
        ]


def _root(data: Array) -> Array | None:
    """Return the array that an array is a part of, and that owns the memory."""
    root: Array = owner_of(data)
    if type(root) is not np.ndarray or not root.flags.owndata or root.dtype != data.dtype:
        return None
    return root if data.nbytes < root.nbytes <= LARGEST else None


def _narrowed(data: Any, result: torch.Tensor) -> bool:
    """Whether elements of an array were converted to a type that takes no more room."""
    if type(data) is not np.ndarray:
        return False
    other = str(result.dtype) != f"torch.{data.dtype.name}"
    return other and result.element_size() <= data.itemsize
