"""Arrays that show a small part of a tensor's memory, where nothing else is left of that memory.

A view of ``t.numpy()`` keeps the array that the call gave, and with it the whole memory of ``t``.
No list of Python's says who refers to an array, so they are met on the way of a search for names;
what is told of has all its references among them. A search is due when 10, 20, 40... arrays on
large memory are alive.
"""

from __future__ import annotations

import sys
import weakref
from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
import torch

from tether.facts import ArrayKept, EventId, Moment
from tether.record.arrays.memory import base_of, size_of
from tether.record.tape import Tape

LARGE = 64 << 10
"""Bytes of a storage that is looked at."""

FACTOR = 8
"""Times that a storage is larger than what arrays show of it."""

FIRST = 10
"""Arrays alive on large memory at which the first search is due."""


class _Out(NamedTuple):
    """An array that a call gave, on the memory of a tensor."""

    event: int
    storage: int
    nbytes: int
    ref: weakref.ref[Any]

    def references(self) -> int:
        """Return how many hold the array."""
        return sys.getrefcount(self.ref()) - _OURS

    def base(self) -> Any:
        """Return the tensor that the array has its memory from."""
        array: Any = self.ref()
        return None if array is None else base_of(array)


class _Met(NamedTuple):
    """An array that a search came to."""

    number: int  # its `id`
    path: str
    nbytes: int


class SmallArrays:
    """The arrays that are out, what a search meets of them, and the facts found so far."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._out: dict[int, _Out] = {}  # by the id of the array that the call gave
        self._met: dict[int, list[_Met]] = {}
        self._due = FIRST
        self.facts: dict[int, ArrayKept] = {}

    def gave(self, event: int, storage: int, nbytes: int, array: Any) -> bool:
        """Take note of an array that a call gave; return whether a search is due."""
        if nbytes < LARGE or type(array) is not np.ndarray:
            return False
        number = id(array)

        def gone(_: object) -> None:
            self._out.pop(number, None)

        self._out[number] = _Out(event, storage, nbytes, weakref.ref(array, gone))
        if len(self._out) < self._due:
            return False
        self._due *= 2
        return True

    def met(self, path: str, array: Any) -> None:
        """Take note of an array that a search came to."""
        base = base_of(array)
        owner = base if id(base) in self._out else array
        if self._out and id(owner) in self._out:
            self._met.setdefault(id(owner), []).append(_Met(id(array), path, size_of(array)))

    def searched(self) -> None:
        """Tell of the memories of which the arrays met in a search are all that is left."""
        met, self._met = self._met, {}
        storages: dict[int, list[tuple[int, _Out]]] = defaultdict(list)
        for number, out in list(self._out.items()) if met else ():
            storages[out.storage].append((number, out))
        for outs in storages.values():
            shown = [one for number, _ in outs for one in met.get(number, ())]
            views = {one.number: one.nbytes for one in shown}
            small = 0 < sum(views.values()) * FACTOR <= outs[0][1].nbytes
            if small and _nothing_else(outs, met):
                self._tell(outs[0][1], shown[0].path, sum(views.values()))

    def _tell(self, out: _Out, path: str, shown: int) -> None:
        now = Moment(self._tape.now())
        since = self.facts[out.event].since if out.event in self.facts else now
        self.facts[out.event] = ArrayKept(EventId(out.event), since, now, path, shown, out.nbytes)


def _nothing_else(outs: list[tuple[int, _Out]], met: dict[int, list[_Met]]) -> bool:
    """Whether the arrays that were met hold all that keeps a memory."""
    tensors = set()
    for number, out in outs:
        found = met.get(number, [])
        places = sum(one.number == number for one in found)
        if out.references() != places + len({one.number for one in found} - {number}):
            return False
        tensors.add(id(out.base()))
    base = outs[0][1].base()
    return issubclass(type(base), torch.Tensor) and _holds(base) == len(tensors) + _WRAPPER


def _holds(tensor: torch.Tensor) -> int:
    """Return how many tensors and wrappers hold the memory of one."""
    count: int = torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return count


_alone = np.empty(1)
_OURS = 0
_OURS = _Out(0, 0, 0, weakref.ref(_alone)).references() - 1  # of those that asking has
_WRAPPER = _holds(torch.empty(1)) - 1
