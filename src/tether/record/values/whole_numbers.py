"""Whole numbers that became floating-point numbers and come back: whether they are what they were.

A floating-point type does not have every whole number, but all those below a bound: 2 to the power
of 24 in float32. A number beyond the bound is rounded to one that is not below it, so what comes
back below it is what was there, and no more than what comes back has to be read.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import torch

from tether.record.arrays.contents import words_of
from tether.record.identity import Snapshot
from tether.record.tape import Tape
from tether.record.values.indexed import View
from tether.record.values.laid_out import carried, geometry_of, version_of

_LAST = 64  # tensors of whole numbers as floating-point numbers that are known at a time
_BITS = {torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}
"""Bits of the significand. What float16 has not becomes infinite, and comes back as anything."""
_WHOLE = {
    torch.uint8: np.uint8, torch.int8: np.int8, torch.int16: np.int16, torch.int32: np.int32,
    torch.int64: np.int64,
}  # fmt: skip


class CameBack(NamedTuple):
    """What a tensor of whole numbers has the elements of."""

    source: Snapshot
    view: View
    since: int  # the call that converted them


class _Converted(NamedTuple):
    """Floating-point numbers as they were made of whole ones."""

    source: Snapshot
    shown: View  # of the memory of the source
    dtype: torch.dtype  # of the source
    made: View
    version: int
    event: int


class WholeNumbersLog:
    """Follows whole numbers through a conversion and back."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._known: OrderedDict[int, _Converted] = OrderedDict()  # by the storage of the result

    def converted(self, result: torch.Tensor, source: torch.Tensor, event: int) -> None:
        """Remember floating-point numbers that were made of whole ones."""
        if source.dtype not in _WHOLE or result.dtype not in _BITS or result.shape != source.shape:
            return
        who = self._tape.who
        made, shown = who.snapshot(result)[1], who.snapshot(source)
        if made < 0 or shown[1] < 0 or made == shown[1]:
            return
        self._known[made] = _Converted(
            shown, geometry_of(source), source.dtype, geometry_of(result), version_of(result), event
        )
        while len(self._known) > _LAST:
            self._known.popitem(last=False)

    def leads_back(self, result: torch.Tensor, source: torch.Tensor) -> bool:
        """Whether a call made whole numbers of what was made of whole numbers of their type."""
        return self._before(result, source) is not None

    def came_back(self, result: torch.Tensor, source: torch.Tensor) -> CameBack | None:
        """Return what the elements of a result were; None where another might have become them."""
        before = self._before(result, source)
        if before is None or not _are_below(result, _BITS[source.dtype]):
            return None
        view = carried(geometry_of(source), before.made, before.shown)
        return None if view is None else CameBack(before.source, view, before.event)

    def _before(self, result: torch.Tensor, source: torch.Tensor) -> _Converted | None:
        if not self._known or source.dtype not in _BITS or result.shape != source.shape:
            return None
        before = self._known.get(self._tape.who.snapshot(source)[1])
        if before is None or before.dtype != result.dtype or before.version != version_of(source):
            return None
        return before if before.version >= 0 else None


def _are_below(tensor: torch.Tensor, bits: int) -> bool:
    """Whether the magnitude of each whole number is below a power of two."""
    words = words_of(tensor)
    if words is None or not words.size:
        return False
    numbers = words.view(_WHOLE[tensor.dtype])
    return max(-int(numbers.min()), int(numbers.max())) < 1 << bits
