"""NumPy's arrays as they lie in memory: whose it is, where, and whether its bytes changed.

An array is asked through NumPy's own descriptors, so that no class of the program's that inherits
from an array hears of it.
"""

from __future__ import annotations

import copy
import zlib
from collections.abc import Iterator
from typing import Any, TypeGuard

import numpy as np
import torch

from tether.record.arrays.contents import Array, memory_at

_own: Any = np.ndarray


def is_array(data: Any) -> TypeGuard[Array]:
    """Whether an object is an array, by its type alone: `__class__` may be the program's."""
    return issubclass(type(data), np.ndarray)


def base_of(array: Array) -> Any:
    """Return what an array has its memory from; None where the memory is its own."""
    return _own.base.__get__(array)


def owner_of(array: Array) -> Array:
    """Return the last array on the way to where the memory comes from."""
    while is_array(base := base_of(array)):
        array = base
    return array


def size_of(array: Array) -> int:
    """Return how many bytes the elements of an array take."""
    return int(_own.nbytes.__get__(array))


def address_of(array: Array) -> int:
    """Return where the first element of an array lies."""
    return int(_own.__array_interface__.__get__(array)["data"][0])


def holds_objects(array: Array) -> bool:
    """Whether the elements of an array are Python's objects."""
    return bool(_own.dtype.__get__(array).hasobject)


def objects_in(array: Array, most: int) -> Iterator[tuple[str, Any]]:
    """Yield the first objects that an array holds, each with its index as a user writes it."""
    if _own.dtype.__get__(array).kind != "O":
        return
    elements = _own.flat.__get__(array)
    shape = _own.shape.__get__(array)
    for number in range(min(most, _own.size.__get__(array))):
        place = ", ".join(str(one) for one in np.unravel_index(number, shape))
        yield f"[{place}]", elements[number]


def stretch_of(array: Array) -> tuple[int, int]:
    """Return where the elements of an array lie, the whole stretch from the first to the last."""
    shape, strides, width = (
        part.__get__(array) for part in (_own.shape, _own.strides, _own.itemsize)
    )
    begin = address_of(array)
    if 0 in shape:
        return begin, begin
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    end = begin + sum(step for step in steps if step > 0) + width
    return begin + sum(step for step in steps if step < 0), end


class ByteSum:
    """The sum of the bytes of an array, to be compared with what they are later."""

    __slots__ = ("_address", "_size", "_sum")

    def __init__(self, array: Array) -> None:
        self._address, self._size = address_of(array), size_of(array)
        self.keep()

    def keep(self) -> None:
        """Take the bytes as they are now for those to compare with."""
        self._sum = self._now()

    def changed(self) -> bool:
        """Whether the bytes are others than those kept."""
        return self._now() != self._sum

    def _now(self) -> int:
        return zlib.crc32(memory_at(self._address, self._size))


class StretchSeen:
    """Elements of an array where they lie, without holding the array."""

    __slots__ = ("_address", "_at", "_dtype", "_shape", "_strides", "_sum")

    def __init__(self, array: Array) -> None:
        first, last = stretch_of(array)
        self._address, self._at = (first, last - first), address_of(array) - first
        self._shape, self._strides, self._dtype = array.shape, array.strides, array.dtype
        self._sum = self._now()

    def _now(self) -> int:
        memory = memory_at(*self._address)
        there = np.ndarray(self._shape, self._dtype, memory, self._at, self._strides)
        return zlib.crc32(np.ascontiguousarray(there).reshape(-1).view(np.uint8).data)

    def again(self) -> StretchSeen:
        """Return the same elements as they are now."""
        found = copy.copy(self)
        found._sum = self._now()
        return found

    def holds(self, array: Array) -> bool:
        """Whether an array lies within the stretch of these elements."""
        first, last = stretch_of(array)
        begin, size = self._address
        return begin <= first < last <= begin + size

    def changed(self) -> bool:
        """Whether the elements are others than they were at first."""
        return self._now() != self._sum


# -- array roots -----------------------------------------------------------------------------------
# What an array or a buffer has its memory from, and how far into it a tensor begins.


class Buffer:
    """Memory of an object that is no array: a bytearray, a mapped file, an `array.array`."""

    def __init__(self, owner: int, address: int, nbytes: int, *, own: bool) -> None:
        self.owner = owner
        self.own = own  # this process's, and no other's
        self.address = address
        self.nbytes = nbytes


def _buffer(data: Any) -> Any:
    """Return where the memory of a buffer lies; `data` itself where it is none."""
    try:
        view = memoryview(data)
    except TypeError:
        return data
    with view:
        array = np.frombuffer(view, np.uint8)
        found = Buffer(
            id(view.obj), address_of(array), view.nbytes,
            own=isinstance(view.obj, (bytes, bytearray)),
        )  # fmt: skip
        del array
    return found


def root_of(data: Any) -> tuple[Any, torch.Tensor | None]:
    """Walk an array's bases: the array that owns the memory, and the tensor that does, if any."""
    for _ in range(32):
        base = base_of(data) if is_array(data) else None
        if base is None:
            break
        if isinstance(base, torch.Tensor):
            return data, base
        data = base
    return (_buffer(data) if _address(data) is None else data), None


def distance_in(root: Any, result: torch.Tensor, nbytes: int) -> int | None:
    """Return how far into the memory of `root` a tensor begins, None where it does not."""
    address, start = _address(root), _address(result)
    if address is None or start is None or not 0 <= start - address < max(1, nbytes):
        return None
    return start - address


def bytes_of(data: Any) -> int:
    """Return how many bytes an array or a buffer takes; 0 of anything else."""
    if is_array(data):
        return size_of(data)
    return data.nbytes if isinstance(data, Buffer) else 0


def _address(data: Any) -> int | None:
    """First byte of an array's or a tensor's storage."""
    if isinstance(data, torch.Tensor):
        return int(data.untyped_storage().data_ptr())
    if is_array(data):
        return address_of(data)
    return data.address if isinstance(data, Buffer) else None
