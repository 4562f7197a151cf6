"""Tensors made of lists and arrays: lists of arrays, and data that is given to PyTorch again.

Data is known again by where it lies in memory, and counts as the same only if the elements that a
call made of it are the same bits as before: a new list in the place of an old one that holds the
same numbers is the same data to whoever converts it. Elements are summed from the second time on
that data comes from one place, for at most 0.5 % of the run's time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tether.facts import LEAST_OF_A_LIST, UNKNOWN, Entered, EventId, SiteId
from tether.record.arrays.contents import fingerprint
from tether.record.arrays.listed import ListedLog
from tether.record.arrays.memory import address_of
from tether.record.budget import Budget

_KNOWN = 64  # data that may come again
_LISTS = (list, tuple)  # and no class of the program's own, whose code would run


class EnteredLog:
    """Looks at data that becomes tensors with memory of their own."""

    def __init__(self, listed: ListedLog) -> None:
        self._listed = listed
        self.facts: list[Entered] = []
        self._known: dict[tuple[Any, ...], tuple[int, int | None]] = {}  # -> event, sum of elements
        self._budget = Budget(0.005, allowed=0.05)

    def late(self) -> bool:
        """Whether looking has taken its share of the run."""
        return self._budget.late()

    def look(self, event: int, data: Any, result: torch.Tensor, lists: int) -> None:
        """Note lists of arrays, of numbers, `lists` that tensors became, and data given before."""
        if result.numel() * result.element_size() < LEAST_OF_A_LIST:
            return
        arrays, since = _arrays_in(data), self._before(event, data, result)
        numbers = not arrays and _of_numbers(data)
        if arrays or lists or numbers or since != UNKNOWN:
            listed = SiteId(self._listed.site_of(data) if numbers else UNKNOWN)
            self.facts.append(
                Entered(EventId(event), arrays, EventId(since), lists, numbers, listed)
            )

    def _before(self, event: int, data: Any, result: torch.Tensor) -> int:
        """Return the last call that was given the data and made the same elements of it, or -1."""
        if self._budget.late():
            return UNKNOWN
        with self._budget:
            place = _place(data)
            if not place:
                return UNKNOWN
            known = self._known.pop((*place, result.dtype), None)
            total = fingerprint(result) if known is not None else None
            self._known[*place, result.dtype] = event, total
            if len(self._known) > _KNOWN:
                del self._known[next(iter(self._known))]
        same = known is not None and total is not None and total == known[1]
        return known[0] if known is not None and same else UNKNOWN


def _place(data: Any) -> tuple[Any, ...]:
    """Return where data lies; () where it is of a kind that is not known."""
    if type(data) is np.ndarray:
        return address_of(data), data.shape, data.strides, data.dtype.str
    found: list[int] = []
    first, last = data, data
    while type(first) in _LISTS and type(last) in _LISTS:
        found += (id(first), id(last), len(first), len(last))
        if not first or not last:
            break
        first, last = first[0], last[-1]
    return (*found, id(first), id(last)) if found else ()


def _arrays_in(data: Any) -> int:
    """Return how many arrays of several elements a list holds; 0 where it holds anything else."""
    if type(data) not in _LISTS:
        return 0
    return len(data) if all(type(one) is np.ndarray and one.size > 1 for one in data) else 0


def _of_numbers(data: Any) -> bool:
    """Whether data is a list of numbers, or of such lists, by the first of them."""
    first = data
    while type(first) in _LISTS and first:
        first = first[0]
    return type(data) in _LISTS and type(first) in (int, float, bool, complex)
