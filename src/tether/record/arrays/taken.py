"""Tensors made of an array's elements in memory of their own: whether the array was written after.

An array that goes while the tensor lives is compared with it then. Where the tensor's memory went
first the last time that a line ran, the bytes of its array are summed when the tensor is made, and
again when either goes or the recording ends. When looking has taken its share of the run, an
array's life is followed, and not its bytes.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tether.facts import UNKNOWN, EventId, MemoryId, Moment, Taken
from tether.record.arrays.contents import Array, memory_at, words_of
from tether.record.arrays.lives import ArrayLife
from tether.record.arrays.memory import ByteSum, address_of, is_array, owner_of
from tether.record.budget import Budget
from tether.record.tape import Tape

MOST = 256
"""Arrays that are followed at a time."""


class _Taking:
    """An array that a tensor was made of."""

    __slots__ = (
        "address", "array", "beside", "changed", "decided", "event", "kept", "memory", "released",
        "site", "size", "tensor",
    )  # fmt: skip

    def __init__(self, event: int, site: int, data: Array, beside: int, memory: int) -> None:
        self.event, self.site, self.memory = event, site, memory
        self.beside = beside
        self.address, self.size = address_of(data), data.nbytes
        self.kept: ByteSum | None = None
        self.changed = ""  # not known yet
        self.decided = False  # either is gone
        self.released: int = UNKNOWN
        self.array: ArrayLife | None = None
        self.tensor: weakref.ref[Any] | None = None

    def look(self) -> None:
        """Say whether the array was written since."""
        if self.kept is not None:
            self.changed = "yes" if self.kept.changed() else "no"
            return
        storage = self.tensor() if self.tensor is not None else None
        if storage is None or storage.nbytes() < self.size or not storage.data_ptr():
            self.changed = "unknown"
            return
        self.changed = "no" if _alike(self.address, storage.data_ptr(), self.size) else "yes"


class TakenLog:
    """Follows the arrays that tensors were made of, while there is time for it."""

    def __init__(self, tape: Tape, budget: Budget) -> None:
        self._tape = tape
        self._budget = budget
        self.number: Callable[[Any], int] = lambda _: UNKNOWN  # of the memory of an array
        self._following = Budget(0.005, allowed=0.05)
        self._followed: list[_Taking] = []
        self._open = 0
        self._outlived: dict[int, bool] = {}  # line -> whether its last array outlived its tensor

    def taken(self, event: int, site: int, data: Any, result: torch.Tensor) -> None:
        """Follow an array of which a tensor with memory of its own was made."""
        if not is_array(data) or self._open >= MOST:
            return
        looks = not self._budget.late()
        if looks or not self._following.late():
            with self._budget if looks else self._following:
                self._follow(event, site, data, result, looks=looks)

    def _follow(
        self, event: int, site: int, data: Array, result: torch.Tensor, *, looks: bool
    ) -> None:
        root = owner_of(data)
        if not _is_plain(data, root) or not _is_copied(data, result):
            return
        one = _Taking(event, site, data, int(root.nbytes - data.nbytes), self.number(root))
        if not looks:
            one.changed = "unknown"
        elif self._outlived.get(site, True):
            one.kept = ByteSum(data)
        self._followed.append(one)
        self._open += 1
        one.array = self._tape.arrays.follow(root, lambda: self._array_gone(one))
        one.tensor = weakref.ref(result.untyped_storage(), lambda _: self._tensor_gone(one))

    def _array_gone(self, one: _Taking) -> None:
        one.released = self._tape.now()
        self._decide(one, outlived=False)

    def _tensor_gone(self, one: _Taking) -> None:
        if one.array is not None and one.array() is not None:
            self._decide(one, outlived=True)

    def _decide(self, one: _Taking, *, outlived: bool) -> None:
        if sys.is_finalizing() or one.decided:
            return
        self._open -= 1
        one.decided = True
        if one.changed:
            return
        self._outlived[one.site] = outlived
        if self._budget.late():
            one.changed = "unknown"
            return
        with self._budget:
            one.look()

    def at_end(self) -> None:
        """Look at the arrays that live as the recording ends: what is decided stays so."""
        for one in self._followed:
            if not one.changed and one.array is not None and one.array() is not None:
                one.look()
                one.decided = True
                self._open -= 1

    def facts(self) -> list[Taken]:
        """Return what is known of each array."""
        return [_fact(one) for one in self._followed]


def _fact(one: _Taking) -> Taken:
    changed: Any = one.changed or "unknown"
    moment, memory = Moment(one.released), MemoryId(one.memory)
    return Taken(EventId(one.event), one.beside, changed, moment, memory)


def _alike(one: int, other: int, size: int) -> bool:
    """Whether two stretches of memory hold the same bytes: eight at a time, and the rest."""
    rest = size % 8
    parts: list[tuple[int, int, Any]] = [(0, size - rest, np.uint64), (size - rest, rest, np.uint8)]
    for first, count, kind in parts:
        if count:
            here, there = (memory_at(at + first, count) for at in (one, other))
            if not np.array_equal(np.frombuffer(here, kind), np.frombuffer(there, kind)):
                return False
    return True


def _is_plain(data: Any, root: Any) -> bool:
    """Whether an array could have been shared: it may be written, and owns what lies in order."""
    return (
        type(data) is np.ndarray
        and type(root) is np.ndarray
        and data.size > 1
        and data.dtype.kind in "fiub"
        and bool(data.flags.c_contiguous and data.flags.writeable and root.flags.owndata)
    )


def _is_copied(data: Array, result: torch.Tensor) -> bool:
    """Whether a tensor has the elements of an array as they are, in memory of its own.

    A conversion to the array's own type gives them all; a few are looked at.
    """
    words = words_of(result)
    if words is None or str(result.dtype) != f"torch.{data.dtype.name}":
        return False
    if data.shape != words.shape or not words.flags.c_contiguous:
        return False
    if address_of(words) == address_of(data):
        return False
    own = data.view(words.dtype)
    return all(own.flat[at] == words.flat[at] for at in (0, own.size // 2, -1))
