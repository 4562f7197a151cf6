"""Writes through an index to a tensor of which several places are one element of memory.

Who writes one of those places and later another takes them for two. Who names the same one each
time may mean all of them. Which places an index names is asked of an array that has an element of
its own for each, and is never read; for at most `SHARE` of the run's time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from tether.facts import AddressedApart, EventId, TensorId
from tether.record.budget import Budget
from tether.record.contents import Array

SHARE = 0.002

_MOST = 8
"""Different places of one tensor that later ones are compared with."""


class _Place(NamedTuple):
    """What an index named."""

    event: int
    named: Array  # the elements that it would be were each place one of its own
    memory: Array  # the elements that it is in memory


class AddressLog:
    """Finds tensors written at several places of one element."""

    def __init__(self) -> None:
        self.facts: list[AddressedApart] = []
        self._places: dict[int, list[_Place] | None] = {}  # tensor -> None: it is known
        self._last: dict[int, Any] = {}  # tensor -> the index of its last write, of numbers alone
        self._budget = Budget(SHARE, allowed=0.05)

    def wrote(self, tensor: torch.Tensor, serial: int, key: Any, event: int) -> None:
        """Look at an assignment to an index."""
        known = self._places.setdefault(serial, [])
        if known is None or not shares_elements(tensor):
            return
        parts = key if type(key) is tuple else (key,)
        numbers = all(type(one) is int for one in parts)
        if (numbers and self._last.get(serial) == parts) or self._budget.late():
            return
        with self._budget:
            self._last[serial] = parts if numbers else None
            other = self._other(tensor, parts, event, known)
        if other >= 0:
            self._places[serial] = None
            self.facts.append(AddressedApart(EventId(event), EventId(other), TensorId(serial)))

    @staticmethod
    def _other(
        tensor: torch.Tensor, parts: tuple[Any, ...], event: int, known: list[_Place]
    ) -> int:
        """Return the write that named another place of an element than this one, or -1."""
        plain = [_plain(one) for one in parts]
        if any(one is NotImplemented for one in plain):
            return event  # chosen by a mask or by numbers: of one element some, and others not
        ends = any(one is Ellipsis for one in plain)
        index = tuple(plain) if ends else (*plain, ...)  # else one element would be read
        named = _laid(tensor, _apart(tensor.shape))[index]
        place = _Place(event, named, _laid(tensor, tensor.stride())[index])
        others = [one for one in known if not _meet(one.named, named)]
        if len(others) == len(known) < _MOST:
            known.append(place)
        return next((one.event for one in others if _meet(one.memory, place.memory)), -1)


_TRIED: Any = 10_000
"""Solutions that NumPy tries before it gives up."""

_ELEMENT = np.zeros(1, np.int8)


def shares_elements(tensor: torch.Tensor) -> bool:
    """Whether a tensor has more places than the memory from its first to its last has elements."""
    pairs = zip(tensor.shape, tensor.stride(), strict=True)
    return tensor.numel() > 1 + sum((size - 1) * stride for size, stride in pairs)


def _plain(part: Any) -> Any:
    """Return a part of an index that means a view; of one number its int; else NotImplemented."""
    if part is None or type(part) in (int, slice, type(...)):
        return part
    if isinstance(part, np.integer):
        return int(part)
    one = isinstance(part, torch.Tensor) and not part.dim() and part.device.type == "cpu"
    return int(part) if one and part.dtype is not torch.bool else NotImplemented


def _apart(shape: torch.Size) -> tuple[int, ...]:
    """Return the strides of a tensor of which each place is an element of its own."""
    return tuple(int(np.prod(shape[number + 1 :])) for number in range(len(shape)))


def _laid(tensor: torch.Tensor, strides: tuple[int, ...]) -> Array:
    """Return an array of a tensor's shape with an element of one byte: never to be read."""
    return np.lib.stride_tricks.as_strided(_ELEMENT, tuple(tensor.shape), strides)


def _meet(one: Array, other: Array) -> bool:
    """Whether two arrays have elements in common; where that is too intricate: no."""
    try:
        return bool(np.shares_memory(one, other, max_work=_TRIED))
    except np.exceptions.TooHardError:
        return False
