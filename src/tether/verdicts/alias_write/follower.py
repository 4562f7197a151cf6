"""One name that was put on another's memory to follow it: part of `alias-write`."""

from __future__ import annotations

from bisect import bisect_left

from tether.analysis.history import History
from tether.analysis.sharing.shared_memory import Sharing
from tether.facts import UNKNOWN, Event, Operand
from tether.operations.table import operation
from tether.verdicts.alias_write.records import hands_over

LEAST_TURNS = 3
"""Writes, and a read after them. Fewer may come about by chance."""


def follows(history: History, found: Sharing, shared: int, reader: int) -> bool:
    """Whether a module's tensor came to a memory once, and is read in turn with the writes to it.

    An actor that always acts with the newest weights does so; and what another memory is brought up
    to date by, whatever tensor it is. Who meant a copy of a moment makes it again when that moment
    is over, and the second time the memory is the same already.
    """
    event, operand = history.events[shared], history.operand_of(reader)
    if operand is None:
        return False
    memory = history.flow.memory(operand)
    reads = [one.at for one in found.reads_of(memory) if one.operand.tensor == reader]
    if not hands_over(event.operation) and not _beside(history, found, reader):
        reads = [at for at in reads if _writes_another(history, at, memory) or _told(history, at)]
    if _came_again(history, event, operand):
        return False
    writes = sorted({one.at for one in found.writes.get(memory) if one.at > shared})
    return len({bisect_left(writes, one) for one in reads} - {0}) >= LEAST_TURNS


def _came_again(history: History, event: Event, operand: Operand) -> bool:
    """Whether a line made something on a memory more than once by the same operation."""
    calls = (history.events[at] for at in history.on_storage(operand))
    return sum(one[:2] == event[:2] for one in calls) > 1


def _writes_another(history: History, at: int, memory: int) -> bool:
    """Whether a call writes other memory by what it reads: an average that is brought up to date.

    One of values that stand still would have nothing to follow.
    """
    event = history.events[at]
    written = {history.flow.memory(one) for one in event.writes}
    return bool(written) and memory not in written and event.operation != "step"


def _told(history: History, at: int) -> bool:
    """Whether a line takes a number of one tensor alone out of PyTorch, as a log of it does.

    The number of one that stands still would be the same each time.
    """
    line, event = history.site_of(history.events[at]), history.events[at]
    while operation(event.operation).leaves != "number":
        if len(event.reads) != 1 or len(event.results) != 1:
            return False
        at = next(history.readers(event.results[0], at), UNKNOWN)
        if at == UNKNOWN or history.site_of(history.events[at]).line != line.line:
            return False
        event = history.events[at]
    return len(event.reads) == 1


def _beside(history: History, found: Sharing, record: int) -> bool:
    """Whether a module was given a record as its buffer by the line that tied its parameters.

    A parameter made of a state lies on the memory of the state's own; a buffer is the state's own.
    """
    given = history.trace.reassigned
    lines = {one.site for one in given if one.new == record}
    return any(
        one.site in lines and found.record_of(_source(found, one.new)) != UNKNOWN
        for one in given
        if one.new != record
    )


def _source(found: Sharing, tensor: int) -> int:
    """Return what a parameter was made of."""
    link = found.links.get(tensor)
    return UNKNOWN if link is None else link.source
