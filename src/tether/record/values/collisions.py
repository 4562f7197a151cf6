"""Writes that did not keep the values they were given: which of them are gone.

An assignment to an index keeps one value for each element, whichever is written last. And where
the values lie in the memory that is written, some may be overwritten before they are read. So the
memory is asked: when the call has returned, the same index is read again and compared with what
was given, bit for bit. A call that changes a tensor in place, and reads other elements of its
memory, is done on copies as well, and the two results are compared. All that at the 1st, 2nd,
4th... write of a line, on the CPU, for up to `LIMIT` bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from tether.facts import Collision, EventId
from tether.record.arrays.contents import Array, words_of
from tether.record.values.altered import ROUNDING, alone

LIMIT = 16 << 20

_PLAIN_PARTS = (int, slice, type(...))
"""Parts of an index that mean a view, in NumPy as in PyTorch."""


class CollisionLog:
    """Finds the values that writes through an index were given, and did not keep."""

    def __init__(self) -> None:
        self.facts: list[Collision] = []
        self._runs: Counter[int] = Counter()  # line -> writes through it
        # Values that may be overwritten before they are read: whose they are, and what they were.
        self._kept: tuple[torch.Tensor, Array] | None = None
        # What a call changes in place, and what it gives on copies.
        self._copied: tuple[torch.Tensor, torch.Tensor] | None = None

    def before(self, values: torch.Tensor, site: int) -> None:
        """Keep the values of a write that lie in the memory it is about to write."""
        runs = self._runs[site] + 1
        there = None if runs & (runs - 1) else _elements(values)
        self._kept = None if there is None else (values, there.copy())

    def onto(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], site: int
    ) -> bool:
        """Do on copies what a call is about to do to a tensor whose memory it reads as well."""
        self._runs[site] += 1
        runs, tensors = self._runs[site], [one for one in args if isinstance(one, torch.Tensor)]
        if runs & (runs - 1) or not alone() or not _is_elsewhere(tensors):
            return False
        with torch.no_grad(), suppress(Exception):  # what raises will do so itself
            copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in args]
            func(*copies, **kwargs)
            self._copied = args[0], copies[0]
        return self._copied is not None

    def computed(self, at: EventId) -> None:
        """Compare what a call left with what it gives on copies."""
        copied, self._copied = self._copied, None
        if copied is not None:
            with torch.no_grad():
                there, given = (one.detach() for one in copied)
                near = ROUNDING * torch.finfo(there.dtype).eps if there.is_floating_point() else 0.0
                same = torch.isclose(there, given, rtol=near, atol=0.0, equal_nan=True)
                lost = same.numel() - int(same.sum())
            if lost:
                self.facts.append(Collision(at, lost, same.numel()))

    def raised(self) -> None:
        """Forget what was kept for a write that did not take place."""
        self._kept = self._copied = None

    def wrote(
        self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, at: EventId,
        site: int,
    ) -> None:  # fmt: skip
        """Look at a call that wrote values through an index, which has returned."""
        self._runs[site] += 1
        runs, kept, self._kept = self._runs[site], self._kept, None
        if kwargs or runs & (runs - 1):
            return
        if kept is not None and name == "__setitem__" and kept[0] is args[-1]:
            counts = self._overlapped(args[0], args[1], kept[1])
        else:
            counts = self._collided(result, args, _given(name, args))
        if counts[0]:
            self.facts.append(Collision(at, *counts))

    @staticmethod
    def _collided(
        result: Any, args: tuple[Any, ...], given: tuple[Any, torch.Tensor] | None
    ) -> tuple[int, int]:
        """Compare what an index shows with the values that were given through it."""
        written = result if isinstance(result, torch.Tensor) else args[0]
        if given is None or given[1].numel() < 2 or written.dtype != given[1].dtype:
            return 0, 0
        there, values = _elements(written), _elements(given[1])
        if there is None or values is None or np.may_share_memory(there, values):
            return 0, 0
        return _differing(there, given[0], values)

    @staticmethod
    def _overlapped(whole: torch.Tensor, key: Any, kept: Array) -> tuple[int, int]:
        """Compare a part of a memory with what it was given of that same memory."""
        parts, there = key if type(key) is tuple else (key,), _elements(whole)
        if there is None or not all(one is None or type(one) in _PLAIN_PARTS for one in parts):
            return 0, 0
        written = there[key]
        if written.dtype != kept.dtype:
            return 0, 0
        return int((written != np.broadcast_to(kept, written.shape)).sum()), written.size


def _is_elsewhere(tensors: list[torch.Tensor]) -> bool:
    """Whether some tensors can be copied, and one may show elements of the first elsewhere."""
    if any(words_of(one) is None or one.nbytes > LIMIT for one in tensors):
        return False
    first = tensors[0]
    return 0 not in first.stride() and any(
        (one.storage_offset(), one.shape, one.stride())
        != (first.storage_offset(), first.shape, first.stride())
        for one in tensors[1:]
    )


def _given(name: str, args: tuple[Any, ...]) -> tuple[Any, torch.Tensor] | None:
    """Return the index that a call wrote through, as it stands between brackets, and the values."""
    if name == "__setitem__":
        key, values = args[1], args[-1]
    elif name.startswith("index_put") and len(args) == 3:
        key, values = tuple(args[1]), args[-1]
    elif name.startswith(("index_copy", "scatter")) and len(args) == 4 and args[0].dim():
        key, values = args[1:3], args[-1]
    else:
        return None
    if not isinstance(values, torch.Tensor):
        return None
    if name.startswith("scatter"):
        return (_along(*key), values) if values.shape == key[1].shape else None
    if name.startswith("index_copy"):
        key = (*[slice(None)] * (key[0] % args[0].dim()), key[1])
    return _numbers(key if type(key) is tuple else (key,)), values


def _numbers(key: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return an index with arrays for tensors; None where none of them could name a place twice.

    And where NumPy puts the dimensions elsewhere than PyTorch: beside a number, around an ellipsis.
    """
    if any(map(_is_number, key)) or any(one is Ellipsis for one in key[1:-1]):
        return None
    found = [_array(one) if isinstance(one, torch.Tensor) else one for one in key]
    if any(one is None and given is not None for given, one in zip(key, found, strict=True)):
        return None
    return tuple(found) if any(map(_repeats, found)) else None


def _is_number(one: Any) -> bool:
    return isinstance(one, int) or (isinstance(one, torch.Tensor) and not one.dim())


def _repeats(one: Any) -> bool:
    """Whether a part of an index could name a place twice: an array of truths does not."""
    listed = isinstance(one, (list, np.ndarray))
    return listed and np.asarray(one).dtype != np.bool_ and np.size(one) > 1


def _array(index: torch.Tensor) -> Array | None:
    """Return a tensor of numbers or truths as an array; None where it cannot be read."""
    words = None if index.is_floating_point() else _elements(index)
    if words is None or index.dtype is torch.bool:
        return words if words is None else words.astype(bool)
    return words.view(f"i{index.element_size()}")


def _along(dim: int, index: torch.Tensor) -> tuple[Any, ...] | None:
    """Return the index that `scatter` writes through along a dimension."""
    found = _numbers((index,))
    if found is None:
        return None
    places: list[Any] = list(np.ogrid[tuple(slice(size) for size in index.shape)])
    places[dim] = found[0]
    return tuple(places)


def _differing(there: Array, key: Any, values: Array) -> tuple[int, int]:
    """Count the values that are not where an index puts them, and all that it puts somewhere."""
    if key is None:
        return 0, 0
    try:
        kept = there[key]
        return int((kept != np.broadcast_to(values, kept.shape)).sum()), kept.size
    except (IndexError, ValueError):
        return 0, 0  # an index that NumPy reads in another way


def _elements(tensor: torch.Tensor) -> Array | None:
    """Return the elements of a tensor, in its shape; None where not each has its own place."""
    if tensor.layout is not torch.strided or tensor.is_complex():
        return None
    if 0 in tensor.stride() or tensor.nbytes > LIMIT:
        return None
    return words_of(tensor)
