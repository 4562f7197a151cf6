"""Copies whose values others take the place of before anything reads them.

However they are written: by a call that leaves nothing of the old values, an assignment to the
elements that numbers and slices name, an ``out=``; all at once, or part by part.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

from tether.analysis.copies.already_there import Copied, nbytes
from tether.analysis.copies.layouts import contiguous
from tether.analysis.copies.other_processes import OtherProcesses
from tether.analysis.history import History
from tether.facts import OUT, UNKNOWN, Event, Operand
from tether.operations.table import ALL, operation
from tether.regions import element_size, may_overlap

MOST_PARTS = 16
"""Parts that do not lie one behind the other of which it is asked whether any two overlap."""


class Fate(NamedTuple):
    """What became of the values that were copied."""

    read: bool  # something was given them, as far as is known
    at: int = UNKNOWN  # the call since which all are others; UNKNOWN: there is none


_READ = Fate(read=True)


def fate_of(history: History, copied: Copied, *, drawn: bool) -> Fate:
    """Return what became of the values of a copy; `drawn`: those that chance puts there count."""
    copy, parts = copied.copy, list[Operand]()
    if copied.part or copied.taken is not None:
        return _READ
    later = [at for at in history.on_storage(copy) if at > copied.position]
    for number, at in enumerate(later, 1):
        event = history.events[at]
        if operation(event.operation).rebinds and not event.raised:
            # What shows the old memory may still be asked.
            return _rebound(history, copied, later[number - 1 :])
        if _reads_no_values(event, copy):
            continue
        given = _given_others(history, event, copy, drawn=drawn)
        parts += given
        if not given or _covers(parts, copy):
            return _seen(history, copied, at) if given else _READ
    return Fate(read=False)


def _rebound(history: History, copied: Copied, events: Sequence[int]) -> Fate:
    """Say of a tensor that was given other memory whether that was the last of the old one."""
    first = history.events[events[0]]
    target, *others = [one.storage == copied.copy.storage for one in first.reads] or [False]
    alone = target and not any(others) and len(events) == 1
    return _seen(history, copied, events[0]) if alone else _READ


def _seen(history: History, copied: Copied, at: int) -> Fate:
    """Say that a copy has other values since a call, unless another process could see it before."""
    seen = history.get(OtherProcesses).read(copied.copy, copied.position, at)
    return _READ if seen else Fate(read=False, at=at)


def _reads_no_values(event: Event, copy: Operand) -> bool:
    """Whether a call only shows a memory as another tensor, or asks how it lies."""
    row = operation(event.operation)
    if event.raised or event.writes or row.leaves:
        return False
    return bool(row.strides or row.template == ALL or event.shows(copy))


def _given_others(history: History, event: Event, copy: Operand, *, drawn: bool) -> list[Operand]:
    """Return what a call gave other values, without a look at those that there were."""
    row, memory = operation(event.operation), history.flow.memory
    replaces = event.named or event.flags & OUT or row.overwrites
    if event.raised or not replaces or (row.random and not drawn):
        return []
    written = [one for one in event.writes if memory(one) == memory(copy)]
    read = [one for one in event.reads if memory(one) == memory(copy)]
    # Each of what it writes is an argument as well, and is one once.
    return written if len(read) == len({one.tensor for one in written}) else []


def _covers(parts: Sequence[Operand], copy: Operand) -> bool:
    """Whether parts of a memory are all of a copy together."""
    if any(nbytes(one) == nbytes(copy) for one in parts):
        return True
    if any(one.storage != copy.storage or one.dtype != copy.dtype for one in parts):
        return False
    if all(one.strides == contiguous(one.shape) for one in parts):
        return _one_behind_the_other(parts, copy)
    apart = len(parts) <= MOST_PARTS and not any(
        may_overlap(*two) for two in combinations(parts, 2)
    )
    return apart and sum(map(nbytes, parts)) == nbytes(copy)


def _one_behind_the_other(parts: Sequence[Operand], copy: Operand) -> bool:
    width = element_size(copy.dtype)
    ends = sorted((one.offset, one.offset + nbytes(one) // width) for one in parts)
    last = copy.offset
    for first, until in ends:
        if first > last:
            return False
        last = max(last, until)
    return last >= copy.offset + nbytes(copy) // width
