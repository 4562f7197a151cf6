"""Writes to single places of a tensor of which several places are one element of memory.

Who writes one of those places and later another takes them for two, by an assignment to an index
or through a view that an index gave. Who names the same one each time may mean all of them. Which
places an index names is asked of an array that has an element of its own for each, and is never
read; for at most 0.2 % of the run's time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from tether.facts import AddressedApart, EventId, TensorId
from tether.record.arrays.contents import Array
from tether.record.budget import Budget
from tether.record.identity import Identities

_MOST = 8
"""Different places of one tensor that later ones are compared with."""

_PIECES = 1024
"""Tensors that share elements, and views of them, that are followed at a time."""


class _Piece(NamedTuple):
    """A tensor of which several places are one element, or a view that an index gave of one."""

    whole: int  # the tensor that it is of
    named: Array  # the elements that it would be were each place of the whole one of its own


class _Place(NamedTuple):
    """What an index named."""

    event: int
    named: Array  # the elements that it would be were each place one of its own
    memory: Array  # the elements that it is in memory


class AddressLog:
    """Finds tensors written at several places of one element."""

    def __init__(self, who: Identities) -> None:
        self.facts: list[AddressedApart] = []
        self.pieces: dict[int, _Piece] = {}  # tensor -> what it shows of one that shares elements
        self._who = who
        self._places: dict[int, list[_Place] | None] = {}  # tensor -> None: it is known
        self._last: dict[int, Any] = {}  # tensor -> the index of its last write, of numbers alone
        self._budget = Budget(0.002, allowed=0.05)

    def spread(self, results: list[torch.Tensor]) -> None:
        """Follow tensors that a call gave which lays several places on one element."""
        for tensor in results:
            if shares_elements(tensor):
                serial = self._who.serial(tensor)
                self._follow(tensor, _Piece(serial, _laid(tensor, _apart(tensor.shape))))

    def _follow(self, tensor: torch.Tensor, piece: _Piece) -> None:
        self.pieces[self._who.serial(tensor)] = piece
        if len(self.pieces) > _PIECES:
            del self.pieces[next(iter(self.pieces))]

    def met(
        self, name: str, args: tuple[Any, ...], result: Any, event: int, *, wrote: bool
    ) -> None:
        """Look at a call that was given a tensor which is followed, or a view of one."""
        tensor: Any = args[0] if args else None
        piece = self.pieces.get(self._who.serial(tensor)) if type(tensor) is torch.Tensor else None
        if piece is None or self._budget.late():
            return
        with self._budget:
            if not wrote:
                for part, named in _taken(name, piece.named, args, result):
                    self._follow(part, _Piece(piece.whole, named))
            elif not shares_elements(tensor):
                key = args[1] if name == "__setitem__" else ...
                self._wrote(tensor, piece, key if type(key) is tuple else (key,), event)

    def wrote(self, tensor: torch.Tensor, serial: int, key: Any, event: int) -> None:
        """Look at an assignment to an index."""
        if self._places.get(serial, ()) is None or not shares_elements(tensor):
            return
        parts = key if type(key) is tuple else (key,)
        numbers = all(type(one) is int for one in parts)
        if (numbers and self._last.get(serial) == parts) or self._budget.late():
            return
        with self._budget:
            self._last[serial] = parts if numbers else None
            whole = _Piece(serial, _laid(tensor, _apart(tensor.shape)))
            self._wrote(tensor, whole, parts, event)

    def _wrote(
        self, tensor: torch.Tensor, piece: _Piece, parts: tuple[Any, ...], event: int
    ) -> None:
        """Compare the places that a write named with those that others did."""
        known = self._places.setdefault(piece.whole, [])
        other = -1 if known is None else _other(tensor, piece, parts, event, known)
        if other >= 0:
            self._places[piece.whole] = None
            fact = AddressedApart(EventId(event), EventId(other), TensorId(piece.whole))
            self.facts.append(fact)


def _other(
    tensor: torch.Tensor, piece: _Piece, parts: tuple[Any, ...], event: int, known: list[_Place]
) -> int:
    """Return the write that named another place of an element than this one, or -1."""
    index = _index(parts)
    if index is None:  # by a mask or by numbers: of one element of a tensor some, others not
        return event if shares_elements(tensor) else -1
    memory = _laid(tensor, tensor.stride(), int(tensor.storage_offset()))
    place = _Place(event, piece.named[index], memory[index])
    others = [one for one in known if not _meet(one.named, place.named)]
    if len(others) == len(known) < _MOST:
        known.append(place)
    return next((one.event for one in others if _meet(one.memory, place.memory)), -1)


def _taken(name: str, named: Array, args: tuple[Any, ...], result: Any) -> list[tuple[Any, Array]]:
    """Return the views that a call gave by an index or by dimensions, with the places they are."""
    parts = args[1] if len(args) > 1 else 0
    if type(parts) is int and name == "unbind" and type(result) is tuple:
        return list(zip(result, np.moveaxis(named, parts, 0), strict=True))
    if type(parts) is int and name == "select" and len(args) > 2:
        return [(result, np.moveaxis(named, parts, 0)[args[2]])]
    index = _index(parts if type(parts) is tuple else (parts,)) if name == "__getitem__" else None
    if index is None or named[index].shape != tuple(result.shape):
        return []
    return [(result, named[index])]


def _index(parts: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return an index as NumPy takes one that gives a view; None where it chooses otherwise."""
    plain = [_plain(one) for one in parts]
    if any(one is NotImplemented for one in plain):
        return None
    ends = any(one is Ellipsis for one in plain)
    return tuple(plain) if ends else (*plain, ...)  # else one element would be read


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


class _Lying:
    """What NumPy asks of memory that an array is to be laid on."""

    def __init__(self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        address = _ELEMENT.__array_interface__["data"][0] + offset
        self.__array_interface__ = {
            "data": (address, True), "shape": shape, "strides": strides, "typestr": "|i1",
            "version": 3,
        }  # fmt: skip


def _laid(tensor: torch.Tensor, strides: tuple[int, ...], offset: int = 0) -> Array:
    """Return an array of a tensor's shape with elements of one byte: never to be read."""
    return np.asarray(_Lying(offset, tuple(tensor.shape), strides))


def _meet(one: Array, other: Array) -> bool:
    """Whether two arrays have elements in common; where that is too intricate: no."""
    try:
        return bool(np.shares_memory(one, other, max_work=_TRIED))
    except np.exceptions.TooHardError:
        return False
