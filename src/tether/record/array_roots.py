"""What an array or a buffer has its memory from, and how far into it a tensor begins."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tether.record.array_memory import address_of, base_of, is_array, size_of


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
