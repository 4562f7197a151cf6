"""One name that was put on another's memory to follow it: part of `alias-write`."""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from tether.analysis.history import History
from tether.analysis.shared_memory import Sharing

LEAST_WRITES = 3
"""Fewer may be read in between by chance."""


def follows(history: History, found: Sharing, shared: int, reader: int) -> bool:
    """Whether a parameter came to a memory once, and is read between all writes to it.

    An actor that always acts with the newest weights does so. Who meant a copy of a moment makes it
    again when that moment is over, and the second time the memory is the same already.
    """
    event, operand = history.events[shared], history.operand_of(reader)
    if event.operation not in ("Parameter", "data.__set__") or operand is None:
        return False
    memory = history.flow.memory(operand)
    calls = (history.events[at] for at in history.on_storage(operand))
    if sum((one.operation, one.site) == (event.operation, event.site) for one in calls) > 1:
        return False
    writes = sorted({one.at for one in found.writes.get(memory, ()) if one.at > shared})
    reads = sorted(one.at for one in found.reads.get(memory, ()) if one.operand.tensor == reader)
    between = (bisect_left(reads, a) < bisect_left(reads, b) for a, b in pairwise(writes))
    return len(writes) >= LEAST_WRITES and all(between)


def written_for(history: History, found: Sharing, record: int, shared: int) -> bool:
    """Whether what is written on a record's memory is read through the record alone.

    Nothing reads the memory by another name, nor makes another tensor on it after a write: who
    fills it anew by that other name means the values to be seen through the record.
    """
    operand = history.operand_of(record)
    if not history.whole or operand is None or found.record_of(record) != record:
        return False
    memory = history.flow.memory(operand)

    def is_its_own(tensor: int) -> bool:
        return tensor == record or any(link.source == record for link in found.chain(tensor))

    if not all(is_its_own(one.operand.tensor) for one in found.reads.get(memory, ())):
        return False
    writes = found.writes.get(memory, ())
    first = min((one.at for one in writes if one.at > shared), default=shared)
    later = (history.events[at] for at in history.on_memory(memory) if at > first)
    shown = {one.tensor for event in later for one in event.results}
    return all(is_its_own(tensor) or not _made_after(found, tensor, first) for tensor in shown)


def _made_after(found: Sharing, tensor: int, moment: int) -> bool:
    """Whether a call after a moment made a tensor on memory that was there."""
    link = found.links.get(tensor)
    return link is not None and link.at > moment
