"""Large results that hold what a living tensor holds: looked at as they are made, line by line.

Compared with what the call was given, and with the last large tensors of as many elements. A line
is looked at for as long as each of its runs gave what was there; most are done with after the
first, by a look at a few elements.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np
import torch

from tether.record.arrays.contents import Array, has_zero, words_of
from tether.record.values.indexed import View

_LAST = 4
"""Tensors of as many elements of a type that are compared."""
_SIZES = 64
"""Sizes that are known at a time."""

_Found = tuple[torch.Tensor, View]


class EqualLog:
    """Finds large results whose elements a tensor showed already."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, int, int], bool] = {}  # whether each run gave what was there
        self._last: dict[tuple[int, torch.dtype], deque[weakref.ref[torch.Tensor]]] = {}

    def open(self, line: tuple[str, int, int]) -> bool:
        """Whether a line's next run is to be looked at."""
        return self._lines.get(line, True)

    def look(
        self, line: tuple[str, int, int], result: torch.Tensor, given: Sequence[torch.Tensor]
    ) -> _Found | None:
        """Return the tensor whose elements a result has in their order, and as which view."""
        for source in (*given, *self._known(result)):
            if source.dtype == result.dtype and source is not result:
                view = by_value(source, result)
                if view is not None and _same_slope(source, result, given):
                    self._lines[line] = True
                    return source, view
        self._lines[line] = False
        return None

    def remember(self, result: torch.Tensor) -> None:
        """Keep a result as one that later ones may be like."""
        key = (result.numel(), result.dtype)
        known = self._last.get(key)
        if known is None:
            if len(self._last) >= _SIZES:
                del self._last[next(iter(self._last))]
            known = self._last[key] = deque(maxlen=_LAST)
        known.append(weakref.ref(result))

    def _known(self, result: torch.Tensor) -> Iterator[torch.Tensor]:
        found = self._last.get((result.numel(), result.dtype), ())
        yield from (one for ref in reversed(found) if (one := ref()) is not None)


def _same_slope(source: torch.Tensor, result: torch.Tensor, given: Sequence[torch.Tensor]) -> bool:
    """Whether a gradient would be the same too, of a call that takes each element times a factor.

    A number is one factor for all; of several the one of an element that is zero is unknown.
    """
    if not result.requires_grad or len(given) == 1:
        return True
    return has_zero(source) is False


# -- by value --------------------------------------------------------------------------------------
# Whether two tensors show the same elements, by their bits, and as which view of the older.


def by_value(source: torch.Tensor, result: torch.Tensor) -> View | None:
    """Return the view of a tensor that a result is, where their elements are the same bits.

    Elements that are all one and the same say nothing of where they came from.
    """
    if source.numel() != result.numel() or 0 in source.stride():
        return None
    if source.shape == result.shape:
        strides = source.stride()
    elif source.is_contiguous() and result.is_contiguous():
        strides = result.stride()
    else:
        return None
    one, other = words_of(source), words_of(result)
    if one is None or other is None or one.size != other.size or not _ends_alike(one, other):
        return None
    same = np.array_equal(one.reshape(-1), other.reshape(-1))
    if not same or bool((other == other.flat[0]).all()):
        return None
    return int(source.storage_offset()), tuple(result.shape), strides


def _ends_alike(one: Array, other: Array) -> bool:
    """Whether a few elements are the same: most that differ do so there, and cost no more."""
    places = (0, one.size // 2, one.size // 3, -1) if one.size else ()
    return all(one.flat[at] == other.flat[at] for at in places)
