"""A parameter that was put on another's memory to follow it: part of `alias-write`."""

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
