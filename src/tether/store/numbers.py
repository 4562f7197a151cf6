"""Arrays of numbers: as narrow as can be, in order, and the ranges in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]


def stable_order(numbers: Numbers) -> Numbers:
    """Return the places that put numbers of 32 bits in order, equal ones as they are.

    Each number and its place are sorted as one of 64 bits: in place, by half the memory.
    """
    keys = numbers.astype(np.int64)
    keys <<= 32
    keys += np.arange(len(keys), dtype=np.int32)
    keys.sort()
    return keys.astype(np.int32)  # the lower half


def in_order(table: Numbers) -> Numbers:
    """Return a table in the order of its first column: itself, where it is."""
    first = table[:, 0]
    if np.all(first[:-1] <= first[1:]):
        return table
    if table.dtype.itemsize == 4:
        return table[stable_order(first)]
    return table[np.argsort(first, kind="stable")]


def concatenated_ranges(first: Numbers, counts: Numbers) -> tuple[Numbers, Numbers]:
    """Return all places of some ranges, and before them the number of the range of each."""
    of = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
    ends = np.cumsum(counts, dtype=first.dtype)
    places = np.repeat(first - ends + counts.astype(first.dtype), counts)
    places += np.arange(len(of), dtype=first.dtype)
    return of, places


def narrow(table: Numbers) -> Numbers:
    """Return numbers in 32 bits, where all of them fit: nearly always."""
    least, most = np.iinfo(np.int32).min, np.iinfo(np.int32).max
    fits = least <= int(table.min(initial=0)) and int(table.max(initial=0)) <= most
    return table.astype(np.int32, copy=False) if fits else table


def narrowest(column: Numbers) -> Numbers:
    """Return numbers in the fewest bits in which the sum or difference of any two of them fits."""
    least, most = int(column.min(initial=0)), int(column.max(initial=0))
    for kind in (np.int8, np.int16):
        bounds = np.iinfo(kind)
        if bounds.min // 2 <= least and most <= bounds.max // 2:
            return column.astype(kind, copy=False)
    return narrow(column)


def view_of(column: Numbers) -> Sequence[int]:
    """Return a column to take single numbers from, which an array is slow at."""
    view: Any = memoryview(column)  # type: ignore[arg-type]
    found: Sequence[int] = view
    return found


def numbers(rows: Sequence[Sequence[int]], width: int, dtype: Any = np.int64) -> Numbers:
    """Return rows of so many numbers as an array, also when there are none."""
    return np.array(rows, dtype).reshape(-1, width)
