"""Tensors made of an array's elements in memory of their own: whether the array was written after.

The bytes are summed when the tensor is made, and again when the tensor's memory goes, when the
array goes, or when the recording ends. `ByteSum` says why they can still be read then.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tether.facts import UNKNOWN, EventId, Moment, Taken
from tether.record.array_memory import ByteSum, is_array, owner_of
from tether.record.contents import words_of
from tether.record.tape import Tape

MOST = 256
"""Arrays that are followed at a time."""


class _Taking:
    """An array that a tensor was made of."""

    __slots__ = ("array", "beside", "changed", "event", "kept", "released", "tensor")

    def __init__(self, event: int, data: Any, beside: int) -> None:
        self.event = event
        self.beside = beside
        self.kept = ByteSum(data)
        self.changed = ""  # not known yet
        self.released: int = UNKNOWN
        self.array: weakref.ref[Any] | None = None
        self.tensor: weakref.ref[Any] | None = None

    def look(self) -> None:
        """Say whether the array was written since."""
        self.changed = self.changed or ("yes" if self.kept.changed() else "no")


class TakenLog:
    """Follows the arrays that tensors were made of; `late` says whether there is no time for it."""

    def __init__(self, tape: Tape, late: Callable[[], bool]) -> None:
        self._tape = tape
        self._late = late
        self._followed: list[_Taking] = []
        self._open = 0

    def taken(self, event: int, data: Any, result: torch.Tensor) -> None:
        """Follow an array of which a tensor with memory of its own was made."""
        if not is_array(data) or self._open >= MOST or self._late():
            return
        root = owner_of(data)
        if not _is_plain(data, root):
            return
        words = words_of(result)
        if words is None or words.itemsize != data.itemsize or data.shape != tuple(result.shape):
            return
        if not np.array_equal(words, data.view(words.dtype)):
            return
        one = _Taking(event, data, int(root.nbytes - data.nbytes))
        self._followed.append(one)
        self._open += 1
        one.array = weakref.ref(root, lambda _: self._array_gone(one))
        one.tensor = weakref.ref(result.untyped_storage(), lambda _: self._tensor_gone(one))

    def _array_gone(self, one: _Taking) -> None:
        one.released = self._tape.now()
        self._decide(one)

    def _tensor_gone(self, one: _Taking) -> None:
        if one.array is not None and one.array() is not None:
            self._decide(one)

    def _decide(self, one: _Taking) -> None:
        if sys.is_finalizing() or one.changed:
            return
        self._open -= 1
        if self._late():
            one.changed = "unknown"
        else:
            one.look()

    def facts(self) -> list[Taken]:
        """Return what is known of each array."""
        for one in self._followed:
            if not one.changed and one.array is not None and one.array() is not None:
                one.look()
                self._open -= 1
        return [
            Taken(EventId(one.event), one.beside, one.changed or "unknown", Moment(one.released))  # type: ignore[arg-type]
            for one in self._followed
        ]


def _is_plain(data: Any, root: Any) -> bool:
    """Whether an array could have been shared: it may be written, and owns what lies in order."""
    return (
        type(data) is np.ndarray
        and type(root) is np.ndarray
        and data.size > 1
        and data.dtype.kind in "fiub"
        and bool(data.flags.c_contiguous and data.flags.writeable and root.flags.owndata)
    )
